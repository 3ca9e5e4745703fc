package placer

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// fakeViews is a Views that knows what clusters serve.
type fakeViews struct {
	mu        sync.Mutex
	apisOf    map[string]*schedule.ServedAPIs
	versions  map[string]atoll.MemberVersions
	hub       atoll.HubVersions
	onCluster []func(string)
}

func (s *fakeViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := schedule.ClusterOf(c)
	out.APIs = s.apisOf[c.Name]
	if v := s.versions[c.Name]; v != nil {
		out.Versions = v
	}
	return out
}

func (s *fakeViews) Subscribe(fn func(string)) { s.onCluster = append(s.onCluster, fn) }

func (s *fakeViews) GetHubVersions() atoll.HubVersions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hub
}

func (s *fakeViews) setServed(cluster string, kinds ...string) {
	s.mu.Lock()
	s.apisOf[cluster] = schedule.APIsOf(kinds)
	s.mu.Unlock()
	for _, fn := range s.onCluster {
		fn(cluster)
	}
}

// The kinds that clusters serve decide which clusters get a Bundle, by placement and by content;
// they take nothing away.
func TestServedAPIsDecide(t *testing.T) {
	m, s := newFakeHub(), &fakeViews{apisOf: map[string]*schedule.ServedAPIs{}}
	addClusters(m, "a", "b", "c")
	s.apisOf["a"] = schedule.APIsOf([]string{"apps/v1/Deployment", "x.io/v1/Thing"})
	s.apisOf["b"] = schedule.APIsOf([]string{"apps/v1/Deployment"})
	runWith(t, m, func(c *Config) { c.Views = s }, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement.APIs = []v1alpha1.ServedAPI{{APIVersion: "apps/v1", Kind: "Deployment"}}
			b.Spec.WhenUnfit = v1alpha1.UnfitRemove
		})
		thing := atoll.Item{Key: atoll.ItemKey{Group: "x.io", Kind: "Thing", Namespace: "shop", Name: "t"}, APIVersion: "x.io/v1", Object: json.RawMessage(`{}`)}
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
		expectRows(t, m, "web", "a Active r1, c Active r1") // the kinds that c serves are unknown
		m.settleRows("web")
		s.setServed("b", "apps/v1/Deployment", "x.io/v1/Thing")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		m.settleRows("web")
		s.setServed("a", "/v1/Pod")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		b, _ := m.reconcilerConfig().Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := p.Decision.FindVerdict("a"); v.Outcome != schedule.OutcomeKept || v.Filter != schedule.FilterAPIs {
			t.Errorf("a is %s", v)
		}
	})
}

// olderThings are versions of a cluster that serves x.io/v1beta1 of Things alone, which have no field "new".
type olderThings struct{}

func (o olderThings) ListReplacements(apiVersion, kind string) []string {
	return o.ListOtherVersions(apiVersion, kind)
}

func (olderThings) ListOtherVersions(apiVersion, kind string) []string {
	if apiVersion == "x.io/v1" && kind == "Thing" {
		return []string{"x.io/v1beta1"}
	}
	return nil
}

func (olderThings) ConvertObject(object map[string]any, _ string) (map[string]any, error) {
	if object["new"] != nil {
		return nil, errors.New("cannot hold /new")
	}
	return object, nil
}

func (s *fakeViews) setVersions(cluster string, v atoll.MemberVersions, kinds ...string) {
	s.mu.Lock()
	if delete(s.versions, cluster); v != nil {
		s.versions[cluster] = v
	}
	s.mu.Unlock()
	s.setServed(cluster, kinds...)
}

// A cluster that serves another version of a kind gets the Bundle. Its row gets another variant once the member serves
// the version.
func TestServedVersionsDecide(t *testing.T) {
	m, s := newFakeHub(), &fakeViews{apisOf: map[string]*schedule.ServedAPIs{}, versions: map[string]atoll.MemberVersions{}}
	addClusters(m, "a", "b")
	s.apisOf["a"], s.apisOf["b"] = schedule.APIsOf([]string{"x.io/v1/Thing"}), schedule.APIsOf([]string{"x.io/v1beta1/Thing"})
	runWith(t, m, func(c *Config) { c.Views = s }, func(t *testing.T, r *PlacementReconciler) {
		thing := atoll.Item{Key: atoll.ItemKey{Group: "x.io", Kind: "Thing", Namespace: "shop", Name: "t"}, APIVersion: "x.io/v1", VersionChoice: atoll.CurrentVersionChoice, Object: json.RawMessage(`{}`)}
		m.changeBundle("web", func(*state.Bundle) {})
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
		expectRows(t, m, "web", "a Active r1") // the hub does not convert Things
		m.settleRows("web")
		s.setVersions("b", olderThings{}, "x.io/v1beta1/Thing")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		variant := func(cluster string) string {
			row, _ := (fakeRows{m}).Get("web", cluster)
			return row.Spec.Variant
		}
		if variant("a") != "" || variant("b") == "" {
			t.Errorf("the variants are %q and %q", variant("a"), variant("b"))
		}
		m.settleRows("web")
		s.setVersions("b", nil, "x.io/v1/Thing")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		if v := variant("b"); v != "" {
			t.Errorf("once b serves the version its variant is %q", v)
		}
	})
}

func TestAVersionThatLosesAFieldKeepsTheClusterOut(t *testing.T) {
	m, s := newFakeHub(), &fakeViews{apisOf: map[string]*schedule.ServedAPIs{}, versions: map[string]atoll.MemberVersions{"b": olderThings{}}, hub: olderThings{}}
	addClusters(m, "a", "b")
	s.apisOf["a"], s.apisOf["b"] = schedule.APIsOf([]string{"x.io/v1/Thing"}), schedule.APIsOf([]string{"x.io/v1beta1/Thing"})
	runWith(t, m, func(c *Config) { c.Views = s }, func(t *testing.T, r *PlacementReconciler) {
		thing := atoll.Item{Key: atoll.ItemKey{Group: "x.io", Kind: "Thing", Namespace: "shop", Name: "t"}, APIVersion: "x.io/v1", VersionChoice: atoll.CurrentVersionChoice, Object: json.RawMessage(`{"new":1}`)}
		m.changeBundle("web", func(*state.Bundle) {})
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
		expectRows(t, m, "web", "a Active r1")
		b, _ := m.reconcilerConfig().Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := p.Decision.FindVerdict("b"); v.ReasonCode() != atoll.ReasonVersionLosesFields || !strings.Contains(v.Reason, "x.io/v1beta1 cannot hold /new") {
			t.Errorf("b is %v for %s", v.ReasonCode(), v.Reason)
		}
		thing.Object = json.RawMessage(`{}`)
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2, b Active r2")
	})
}

// A newer hub that converts a kind places nothing by itself: a Bundle whose template an older hub read goes to a cluster that serves
// another version once a user edits the template.
func TestANewerHubSendsNoOtherVersionByItself(t *testing.T) {
	m, s := newFakeHub(), &fakeViews{apisOf: map[string]*schedule.ServedAPIs{}, versions: map[string]atoll.MemberVersions{"b": olderThings{}}, hub: olderThings{}}
	addClusters(m, "a", "b")
	s.apisOf["a"], s.apisOf["b"] = schedule.APIsOf([]string{"x.io/v1/Thing"}), schedule.APIsOf([]string{"x.io/v1beta1/Thing"})
	runWith(t, m, func(c *Config) { c.Views = s }, func(t *testing.T, r *PlacementReconciler) {
		thing := atoll.Item{Key: atoll.ItemKey{Group: "x.io", Kind: "Thing", Namespace: "shop", Name: "t"}, APIVersion: "x.io/v1", Object: json.RawMessage(`{}`)}
		m.changeBundle("web", func(*state.Bundle) {})
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
		expectRows(t, m, "web", "a Active r1")
		b, _ := m.reconcilerConfig().Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := p.Decision.FindVerdict("b"); v.ReasonCode() != atoll.ReasonKindNotServed || !strings.Contains(v.Reason, "edit the template") {
			t.Errorf("b is %v for %s", v.ReasonCode(), v.Reason)
		}
		thing.VersionChoice, thing.Object = atoll.CurrentVersionChoice, json.RawMessage(`{"edited":1}`)
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2, b Active r2")
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
	if got := requiredKindsOf(content); !reflect.DeepEqual(got, want) {
		t.Errorf("kinds %q, want %q", got, want)
	}
}
