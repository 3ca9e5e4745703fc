package place

import (
	"testing"
	"testing/synctest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Bundles of one policy share what is worked out from its placement, and others do not.
func TestEqualTermsShareAFilter(t *testing.T) {
	x := newIndex()
	a, same := x.compile(schedule.Terms{Placement: names("a"), Kinds: []string{"v1 ConfigMap"}}), x.compile(schedule.Terms{Placement: names("a"), Kinds: []string{"v1 ConfigMap"}})
	if a.filter != same.filter || a.placement != atoll.PlacementHash(names("a")) {
		t.Error("equal terms are compiled twice")
	}
	for name, other := range map[string]schedule.Terms{
		"placement": {Placement: names("b"), Kinds: []string{"v1 ConfigMap"}},
		"kinds":     {Placement: names("a"), Kinds: []string{"v1 Secret"}},
		"sets":      {Placement: names("a"), Kinds: []string{"v1 ConfigMap"}, Bound: []string{"s"}},
		"no sets":   {Placement: names("a"), Kinds: []string{"v1 ConfigMap"}, Bound: []string{}},
	} {
		if x.compile(other).filter == a.filter {
			t.Errorf("terms that differ in %s share a filter", name)
		}
	}
}

// A Bundle that has no Revision yet is not decided on: nothing could come of it.
func TestNothingIsDecidedBeforeThereIsARevision(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		synctest.Wait()
		r.index.mu.Lock()
		decided := r.index.entries["web"].filter != nil
		r.index.mu.Unlock()
		if decided {
			t.Error("it was decided on")
		}
		m.cut("web", &atoll.Content{})
		want(t, m, "web", "a Active r1")
	})
}

// What Bundles of the same terms know of the fleet is of the fleet as it is.
func TestBundlesOfTheSameTermsSeeTheFleetAsItIs(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c")
	m.cluster("a", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
	run(t, m, func(t *testing.T, r *Reconciler) {
		place := func(uid string) {
			m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = labelled(map[string]string{"env": "prod"}) })
			m.cut(uid, &atoll.Content{})
		}
		place("first")
		want(t, m, "first", "a Active r1")
		m.cluster("b", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
		m.cluster("a", func(c *v1alpha1.Cluster) { c.Labels = nil })
		synctest.Wait()
		place("second")
		want(t, m, "second", "b Active r1")
		shared := r.index.entries["second"].shared
		if shared != r.index.entries["first"].shared || len(shared.admits) != 3 {
			t.Errorf("they share %+v", shared)
		}
	})
}
