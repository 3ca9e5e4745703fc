package placer

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

// fakeSets return which sets namespaces are bound to, and which clusters are in them.
type fakeSets struct {
	mu            sync.Mutex
	byNamespace   map[string][]string // by namespace
	setsOfCluster map[string][]string // by cluster
	onNamespace   []func(string)
	onCluster     []func(string)
}

func (s *fakeSets) AllowedSets(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byNamespace[namespace]
}

func (s *fakeSets) Subscribe(fn func(string)) { s.onNamespace = append(s.onNamespace, fn) }

// bindNamespace the namespace to these sets and no others.
func (s *fakeSets) bindNamespace(namespace string, sets ...string) {
	s.mu.Lock()
	s.byNamespace[namespace] = sets
	s.mu.Unlock()
	for _, fn := range s.onNamespace {
		fn(namespace)
	}
}

// setViews see the sets.
type setViews struct{ *fakeSets }

func (v setViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := schedule.ClusterOf(c)
	out.Sets = v.setsOfCluster[c.Name]
	return out
}

func (v setViews) Subscribe(fn func(string)) { v.onCluster = append(v.onCluster, fn) }

// putCluster the cluster into these sets and no others.
func (s *fakeSets) putCluster(cluster string, sets ...string) {
	s.mu.Lock()
	s.setsOfCluster[cluster] = sets
	s.mu.Unlock()
	for _, fn := range s.onCluster {
		fn(cluster)
	}
}

// A Bundle is placed on the sets of its namespace alone. A cluster that leaves them keeps its
// workloads, with a report, and gets nothing new; cluster policies are bound to no set.
func TestBundlesStayInTheSetsOfTheirNamespace(t *testing.T) {
	m := newFakeHub()
	s := &fakeSets{byNamespace: map[string][]string{"shop": {"asia"}}, setsOfCluster: map[string][]string{"a": {"asia"}, "b": {"asia", "prod"}, "c": {"europe"}}}
	addClusters(m, "a", "b", "c")
	runWith(t, m, func(c *Config) { c.Sets, c.Views = s, setViews{s} }, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(*state.Bundle) {})
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r1, b Active r1")
		m.changeBundle("all", func(b *state.Bundle) { b.Spec.Source.Kind = v1alpha1.SourceClusterPropagationPolicy })
		m.cutRevision("all", &atoll.Content{})
		expectRows(t, m, "all", "a Active r1, b Active r1, c Active r1")
		m.settleRows("web")
		kept := func(when string, clusters ...string) {
			t.Helper()
			b, _ := m.reconcilerConfig().Bundles.Get("web")
			p, err := r.PreviewBundle(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, v := range p.Decision.Verdicts {
				if v.Outcome == schedule.OutcomeKept && v.Filter == "NotInBoundSet" && v.RowReason == atoll.ReasonUnfit {
					got[v.Cluster] = true
				}
			}
			if is := slices.Sorted(maps.Keys(got)); !slices.Equal(is, clusters) {
				t.Errorf("%s: %q are kept as NotInBoundSet, not %q", when, is, clusters)
			}
		}
		kept("at first")

		s.putCluster("a", "europe")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		kept("a cluster has left the set", "a")
		s.putCluster("c", "asia")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		m.settleRows("web")
		kept("another has come", "a")

		s.bindNamespace("shop", "prod")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		kept("another binding", "a", "c")
		s.bindNamespace("shop")
		kept("no binding", "a", "b", "c")
		s.bindNamespace("shop", "europe")
		kept("a binding again", "b", "c")
	})
}
