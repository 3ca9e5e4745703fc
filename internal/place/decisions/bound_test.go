package decisions

import (
	"sync"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// limits say which sets namespaces may place on.
type limits struct {
	mu    sync.Mutex
	bound map[string][]string
	fns   []func(string)
}

func (l *limits) Bound(ns string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bound[ns]
}

func (l *limits) Subscribe(fn func(string)) { l.fns = append(l.fns, fn) }

func (l *limits) bind(ns string, sets ...string) {
	l.mu.Lock()
	l.bound[ns] = sets
	l.mu.Unlock()
	for _, fn := range l.fns {
		fn(ns)
	}
}

// byLabel see a cluster in the set that its label env names.
type byLabel struct{ plain }

func (byLabel) Of(c *v1alpha1.Cluster) schedule.Cluster {
	out := schedule.ClusterOf(c)
	out.Sets = []string{c.Labels["env"]}
	return out
}

// A Placement publishes clusters of its namespace's sets alone; a ClusterPlacement is
// bound to none.
func TestPublishesWithinTheSetsOfTheNamespace(t *testing.T) {
	l := &limits{bound: map[string][]string{"shop": {"prod"}}}
	runWith(t, func(c *Config) { c.Sets, c.Views = l, byLabel{} }, func(t *testing.T, h *hub) {
		want := func(when, ns, names string) {
			t.Helper()
			if got := h.published(ns); got != names {
				t.Errorf("%s: published %q, want %q", when, got, names)
			}
		}
		h.cluster("a", env("prod"))
		h.cluster("b", env("test"))
		h.place(t, "shop", v1alpha1.PlacementSpec{})
		h.place(t, "blog", v1alpha1.PlacementSpec{})
		h.place(t, "", v1alpha1.PlacementSpec{})
		want("bound to prod", "shop", "a")
		want("bound to nothing", "blog", "")
		want("in no namespace", "", "a b")
		h.cluster("b", env("prod"))
		want("a cluster comes into the set", "shop", "a b")
		h.cluster("b", env("test"))
		want("and goes", "shop", "a")
		l.bind("shop", "test")
		want("another binding", "shop", "b")
		l.bind("blog", "prod", "test")
		want("a first binding", "blog", "a b")
	})
}
