package rollout

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// A row that leaves with its cluster, and then for another reason, leaves by a removal of its own: what no person
// confirmed waits. A confirmed removal goes on.
func TestALeavingRowWaitsWhenItsClusterStays(t *testing.T) {
	for name, tc := range map[string]struct {
		was    atoll.Reason
		orphan bool
		want   atoll.RowPhase
	}{
		"its cluster stays, and the placement leaves it": {was: atoll.ReasonClusterRemoved, want: atoll.RowHeld},
		"its cluster still leaves":                       {was: atoll.ReasonClusterRemoved, orphan: true, want: atoll.RowRemoving},
		"confirmed before":                               {was: atoll.ReasonPlacementEdited, want: atoll.RowRemoving},
	} {
		in := Input{
			BundleUID: "bundle", Revision: "r1", Now: time.Unix(1000, 0), MustConfirmRemovals: true,
			Rows: map[string]Row{"a": {Spec: atoll.RowSpec{UID: "a", Generation: 5, Revision: "r1", Phase: atoll.RowLeaving, Since: 100, MovingSince: 100, Reason: string(tc.was)}, Online: true}},
			Decision: schedule.Decision{Verdicts: []schedule.Verdict{
				{Cluster: "a", UID: "a", Outcome: schedule.OutcomeLeaves, RowReason: atoll.ReasonPlacementEdited, Orphan: tc.orphan},
			}},
		}
		if tc.orphan {
			in.Decision.Verdicts[0].RowReason = atoll.ReasonClusterRemoved
		}
		if spec := AdvanceRows(in).Changes["a"]; spec == nil || spec.Phase != tc.want || spec.Orphan != tc.orphan {
			t.Errorf("%s: the row became %+v, want %s", name, spec, tc.want)
		}
	}
}
