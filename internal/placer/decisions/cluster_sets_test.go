package decisions

import (
	"sync"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// fakeSets return which sets namespaces may place on.
type fakeSets struct {
	mu          sync.Mutex
	byNamespace map[string][]string
	onNamespace []func(string)
}

func (l *fakeSets) AllowedSets(ns string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byNamespace[ns]
}

func (l *fakeSets) Subscribe(fn func(string)) { l.onNamespace = append(l.onNamespace, fn) }

func (l *fakeSets) bindNamespace(ns string, sets ...string) {
	l.mu.Lock()
	l.byNamespace[ns] = sets
	l.mu.Unlock()
	for _, fn := range l.onNamespace {
		fn(ns)
	}
}

// labelSetViews see a cluster in the set that its label env names.
type labelSetViews struct{ plainViews }

func (labelSetViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster {
	out := schedule.ClusterOf(c)
	out.Sets = []string{c.Labels["env"]}
	return out
}

// A Placement publishes clusters of its namespace's sets alone; a ClusterPlacement is
// bound to none.
func TestPublishesWithinTheSetsOfTheNamespace(t *testing.T) {
	l := &fakeSets{byNamespace: map[string][]string{"shop": {"prod"}}}
	runWith(t, func(c *Config) { c.Sets, c.Views = l, labelSetViews{} }, func(t *testing.T, h *fakeHub) {
		want := func(when, ns, names string) {
			t.Helper()
			if got := h.publishedText(ns); got != names {
				t.Errorf("%s: published %q, want %q", when, got, names)
			}
		}
		h.changeCluster("a", withEnv("prod"))
		h.changeCluster("b", withEnv("test"))
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{})
		h.putPlacement(t, "blog", v1alpha1.PlacementSpec{})
		h.putPlacement(t, "", v1alpha1.PlacementSpec{})
		want("bound to prod", "shop", "a")
		want("bound to nothing", "blog", "")
		want("in no namespace", "", "a b")
		h.changeCluster("b", withEnv("prod"))
		want("a cluster comes into the set", "shop", "a b")
		h.changeCluster("b", withEnv("test"))
		want("and goes", "shop", "a")
		l.bindNamespace("shop", "test")
		want("another binding", "shop", "b")
		l.bindNamespace("blog", "prod", "test")
		want("a first binding", "blog", "a b")
	})
}
