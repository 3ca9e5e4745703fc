package place

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// bounds say which sets namespaces are bound to, and which clusters are in them.
type bounds struct {
	mu    sync.Mutex
	bound map[string][]string // by namespace
	sets  map[string][]string // by cluster
	onNS  []func(string)
	seen  []func(string)
}

func (s *bounds) Bound(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bound[namespace]
}

func (s *bounds) Subscribe(fn func(string)) { s.onNS = append(s.onNS, fn) }

// bind the namespace to these sets and no others.
func (s *bounds) bind(namespace string, sets ...string) {
	s.mu.Lock()
	s.bound[namespace] = sets
	s.mu.Unlock()
	for _, fn := range s.onNS {
		fn(namespace)
	}
}

// boundViews see the sets.
type boundViews struct{ *bounds }

func (v boundViews) Of(c *v1alpha1.Cluster) schedule.Cluster {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := schedule.ClusterOf(c)
	out.Sets = v.sets[c.Name]
	return out
}

func (v boundViews) Subscribe(fn func(string)) { v.seen = append(v.seen, fn) }

// put the cluster into these sets and no others.
func (s *bounds) put(cluster string, sets ...string) {
	s.mu.Lock()
	s.sets[cluster] = sets
	s.mu.Unlock()
	for _, fn := range s.seen {
		fn(cluster)
	}
}

// A Bundle is placed on the sets of its namespace alone. What leaves them later keeps
// what runs, says so, and gets nothing new; cluster policies are bound to no set.
func TestBundlesStayInTheSetsOfTheirNamespace(t *testing.T) {
	m := newMemory()
	s := &bounds{bound: map[string][]string{"shop": {"asia"}}, sets: map[string][]string{"a": {"asia"}, "b": {"asia", "prod"}, "c": {"europe"}}}
	fleet(m, "a", "b", "c")
	runWith(t, m, func(c *Config) { c.Sets, c.Views = s, boundViews{s} }, func(t *testing.T, r *Reconciler) {
		m.bundle("web", func(*state.Bundle) {})
		m.cut("web", &atoll.Content{})
		want(t, m, "web", "a Active r1, b Active r1")
		m.bundle("all", func(b *state.Bundle) { b.Spec.Source.Kind = v1alpha1.SourceClusterPropagationPolicy })
		m.cut("all", &atoll.Content{})
		want(t, m, "all", "a Active r1, b Active r1, c Active r1")
		m.settle("web")
		kept := func(when string, clusters ...string) {
			t.Helper()
			b, _ := m.config().Bundles.Get("web")
			p, err := r.Preview(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, v := range p.Decision.Verdicts {
				if v.Outcome == schedule.Kept && v.Filter == "NotInBoundSet" && v.Word == atoll.RowUnfit {
					got[v.Cluster] = true
				}
			}
			if is := slices.Sorted(maps.Keys(got)); !slices.Equal(is, clusters) {
				t.Errorf("%s: %q are kept as NotInBoundSet, not %q", when, is, clusters)
			}
		}
		kept("at first")

		s.put("a", "europe")
		want(t, m, "web", "a Active r1, b Active r1")
		kept("a cluster has left the set", "a")
		s.put("c", "asia")
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		m.settle("web")
		kept("another has come", "a")

		s.bind("shop", "prod")
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		kept("another binding", "a", "c")
		s.bind("shop")
		kept("no binding", "a", "b", "c")
		s.bind("shop", "europe")
		kept("a binding again", "b", "c")
	})
}
