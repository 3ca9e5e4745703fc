package place

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// sight is a Views that knows what clusters serve.
type sight struct {
	mu   sync.Mutex
	apis map[string]*schedule.APIs
	fns  []func(string)
}

func (s *sight) Of(c *v1alpha1.Cluster) schedule.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := schedule.ClusterOf(c)
	out.APIs = s.apis[c.Name]
	return out
}

func (s *sight) Subscribe(fn func(string)) { s.fns = append(s.fns, fn) }

func (s *sight) serves(cluster string, kinds ...string) {
	s.mu.Lock()
	s.apis[cluster] = schedule.APIsOf(kinds)
	s.mu.Unlock()
	for _, fn := range s.fns {
		fn(cluster)
	}
}

// What clusters serve decides who gets a Bundle, by the placement and by its kinds; it
// takes nothing away.
func TestServedAPIsDecide(t *testing.T) {
	m, s := newMemory(), &sight{apis: map[string]*schedule.APIs{}}
	fleet(m, "a", "b", "c")
	s.apis["a"] = schedule.APIsOf([]string{"apps/v1/Deployment", "x.io/v1/Thing"})
	s.apis["b"] = schedule.APIsOf([]string{"apps/v1/Deployment"})
	runWith(t, m, func(c *Config) { c.Views = s }, func(t *testing.T, r *Reconciler) {
		m.bundle("web", func(b *state.Bundle) {
			b.Spec.Placement.APIs = []v1alpha1.ServedAPI{{APIVersion: "apps/v1", Kind: "Deployment"}}
			b.Spec.WhenUnfit = v1alpha1.UnfitRemove
		})
		thing := atoll.Item{Key: atoll.ItemKey{Group: "x.io", Kind: "Thing", Namespace: "shop", Name: "t"}, APIVersion: "x.io/v1", Object: json.RawMessage(`{}`)}
		m.cut("web", &atoll.Content{Items: []atoll.Item{thing}})
		want(t, m, "web", "a Active r1, c Active r1") // nobody knows yet what c serves
		m.settle("web")
		s.serves("b", "apps/v1/Deployment", "x.io/v1/Thing")
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		m.settle("web")
		s.serves("a", "/v1/Pod")
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		b, _ := m.config().Bundles.Get("web")
		p, err := r.Preview(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := p.Decision.Verdict("a"); v.Outcome != schedule.Kept || v.Filter != schedule.FilterAPIs {
			t.Errorf("a is %s", v)
		}
	})
}

// A content asks for the kinds of its items, but for those that it defines itself.
func TestKindsOfAContent(t *testing.T) {
	item := func(apiVersion, group, kind, object string) atoll.Item {
		return atoll.Item{Key: atoll.ItemKey{Group: group, Kind: kind, Name: "n"}, APIVersion: apiVersion, Object: json.RawMessage(object)}
	}
	content := &atoll.Content{Items: []atoll.Item{
		item("apps/v1", "apps", "Deployment", "{}"), item("v1", "", "Service", "{}"), item("apps/v1", "apps", "Deployment", "{}"),
		item("x.io/v1", "x.io", "Thing", "{}"), item("x.io/v2", "x.io", "Thing", "{}"), item("x.io/v1", "x.io", "Other", "{}"),
		item("apiextensions.k8s.io/v1", "apiextensions.k8s.io", "CustomResourceDefinition",
			`{"spec":{"group":"x.io","names":{"kind":"Thing"},"versions":[{"name":"v1"},{"name":"v2"}]}}`),
	}}
	want := []string{"/v1/Service", "apiextensions.k8s.io/v1/CustomResourceDefinition", "apps/v1/Deployment", "x.io/v1/Other"}
	if got := kindsOf(content); !reflect.DeepEqual(got, want) {
		t.Errorf("kinds %q, want %q", got, want)
	}
}
