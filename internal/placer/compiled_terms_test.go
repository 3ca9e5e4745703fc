package placer

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
	x := newBundleIndex()
	a, same := x.compileTerms(schedule.PlacementTerms{Placement: placementNamed("a"), Kinds: []string{"v1 ConfigMap"}}), x.compileTerms(schedule.PlacementTerms{Placement: placementNamed("a"), Kinds: []string{"v1 ConfigMap"}})
	if a.filter != same.filter || a.placementHash != atoll.HashPlacement(placementNamed("a")) {
		t.Error("equal terms are compiled twice")
	}
	for name, other := range map[string]schedule.PlacementTerms{
		"placement": {Placement: placementNamed("b"), Kinds: []string{"v1 ConfigMap"}},
		"kinds":     {Placement: placementNamed("a"), Kinds: []string{"v1 Secret"}},
		"sets":      {Placement: placementNamed("a"), Kinds: []string{"v1 ConfigMap"}, BoundSets: []string{"s"}},
		"no sets":   {Placement: placementNamed("a"), Kinds: []string{"v1 ConfigMap"}, BoundSets: []string{}},
	} {
		if x.compileTerms(other).filter == a.filter {
			t.Errorf("terms that differ in %s share a filter", name)
		}
	}
}

// A Bundle that has no Revision yet is not decided on: nothing could come of it.
func TestNothingIsDecidedBeforeThereIsARevision(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		synctest.Wait()
		r.index.mu.Lock()
		decided := r.index.entries["web"].filter != nil
		r.index.mu.Unlock()
		if decided {
			t.Error("it was decided on")
		}
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r1")
	})
}

// Bundles of the same terms share the present state of the fleet.
func TestBundlesOfTheSameTermsSeeTheFleetAsItIs(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		place := func(uid string) {
			m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = placementLabelled(map[string]string{"env": "prod"}) })
			m.cutRevision(uid, &atoll.Content{})
		}
		place("first")
		expectRows(t, m, "first", "a Active r1")
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = nil })
		synctest.Wait()
		place("second")
		expectRows(t, m, "second", "b Active r1")
		shared := r.index.entries["second"].compiledTerms
		if shared != r.index.entries["first"].compiledTerms || len(shared.admitted) != 3 {
			t.Errorf("they share %+v", shared)
		}
	})
}
