package place

import (
	"testing"
	"testing/synctest"

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
