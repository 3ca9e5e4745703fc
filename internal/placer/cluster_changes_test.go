package placer

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// A change of a cluster without a row concerns a Bundle only where it can give a cluster a row: the
// cluster fits now, or it was one of those among which a limited placement chooses.
func TestClusterChangesThatCanGiveRows(t *testing.T) {
	labelled := func(env string) schedule.Cluster {
		return schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a", Labels: map[string]string{"env": env}}, Accepted: true}
	}
	every := placementLabelled(map[string]string{"env": "prod"})
	two := every
	two.MaxClusters = 2
	prod, test := labelled("prod"), labelled("test")
	for _, c := range []struct {
		name                    string
		placement               v1alpha1.PlacementSpec
		wantsMore, needsAllRows bool
		was, is                 schedule.Cluster
		want                    bool
	}{
		{"it starts to fit", every, false, false, test, prod, true},
		{"it stops to fit", every, false, false, prod, test, false},
		{"it does not fit", every, false, false, test, test, false},
		{"limited, it starts to fit and more are wanted", two, true, false, test, prod, true},
		{"limited, it starts to fit and no more are wanted", two, false, false, test, prod, false},
		{"limited, it starts to fit before a step over all rows", two, false, true, test, prod, true},
		{"limited, it stops to fit and more are wanted", two, true, false, prod, test, true},
		{"limited, it does not fit", two, true, false, test, test, false},
	} {
		e := &bundleEntry{filter: schedule.CompilePlacement(c.placement), wantsMore: c.wantsMore, needsAllRows: c.needsAllRows}
		if got := e.couldGainRow(c.was, c.is); got != c.want {
			t.Errorf("%s: could gain a row is %t", c.name, got)
		}
	}
}

// A held plan is reported once, and again when it comes back after its removal was not pending any
// more.
func TestHeldPlansAreReportedOnce(t *testing.T) {
	filter := schedule.CompilePlacement(v1alpha1.PlacementSpec{})
	x := &bundleIndex{entries: map[string]*bundleEntry{"web": {uid: "web", filter: filter}}}
	step := func(pending *rollout.PendingRemoval) {
		x.recordStep(bundleView{uid: "web", filter: filter}, stepResult{output: rollout.Output{PendingRemoval: pending}})
	}
	for i, c := range []struct {
		plan string
		want bool
	}{{"p1", true}, {"p1", false}, {"p2", true}} {
		step(&rollout.PendingRemoval{})
		if got := x.recordReportedPlan("web", c.plan); got != c.want {
			t.Errorf("step %d: plan %s is new: %t", i, c.plan, got)
		}
	}
	step(nil)
	step(&rollout.PendingRemoval{})
	if !x.recordReportedPlan("web", "p2") {
		t.Error("a plan that comes back is not reported again")
	}
	if x.recordReportedPlan("other", "p2") {
		t.Error("a plan of an unknown Bundle is reported")
	}
}
