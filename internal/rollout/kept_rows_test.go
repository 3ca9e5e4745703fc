package rollout

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Rows of one plan that an administrator keeps come back without a second decision, also where one of them waits for
// an old copy.
func TestAKeptRowIsAskedAboutOnce(t *testing.T) {
	gone := func(c string) Row {
		return Row{Online: true, Status: &atoll.RowStatus{Generation: 9, State: atoll.RowRemoved}, Spec: atoll.RowSpec{
			UID: c, Generation: 9, Revision: "r1", Phase: atoll.RowRemoving, Since: 200, Recall: &atoll.RememberedRemoval{RemovedAt: 150, Placement: "p1"}}}
	}
	late := gone("c")
	late.Status = nil // it has not confirmed the recall yet
	in := Input{
		BundleUID: "bundle", Revision: "r1", PlacementHash: "p1", Now: time.Unix(1000, 0), MoveOrder: OldFirst,
		Rows: map[string]Row{
			"a": {Online: true, Spec: atoll.RowSpec{UID: "a", Generation: 5, Revision: "r1", Phase: atoll.RowRemoving, Since: 300}},
			"b": gone("b"), "c": late,
		},
		Decision: schedule.Decision{Verdicts: []schedule.Verdict{
			{Cluster: "a", UID: "a", Outcome: schedule.OutcomeOut}, {Cluster: "b", UID: "b", Outcome: schedule.OutcomePlaced}, {Cluster: "c", UID: "c", Outcome: schedule.OutcomePlaced},
		}},
	}
	in.KeptPlan = AdvanceRows(in).PendingRemoval.Hash
	out := AdvanceRows(in)
	in = applyOutput(in, out)
	if p := AdvanceRows(in).PendingRemoval; p != nil {
		t.Errorf("what was kept is asked about again: %v", p.Lines)
	}
}
