package rollout

import (
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// An order about hooks reaches rows that are being removed, as a new order to their clusters. It stays when the annotation goes,
// and ends when the row comes back.
func TestOrdersAboutHooksReachRemovingRows(t *testing.T) {
	removing := atoll.RowSpec{UID: "a", Generation: 5, Revision: "r1", Phase: atoll.RowRemoving, Since: 100, Reason: string(atoll.ReasonBundleDeleted)}
	ordered := removing
	ordered.RemovalHooks = "Retry"
	active := atoll.RowSpec{UID: "a", Generation: 5, Revision: "r1", Phase: atoll.RowActive, Since: 100}
	for name, c := range map[string]struct {
		row        atoll.RowSpec
		order      string
		isDeleting bool
		want       string // the order of the row afterwards; "-": the row does not change
		generation int64
	}{
		"no order":           {removing, "", true, "-", 5},
		"an order":           {removing, "Skip", true, "Skip", 6},
		"the same order":     {ordered, "Retry", true, "-", 5},
		"another order":      {ordered, "Retry-2", true, "Retry-2", 6},
		"it is taken back":   {ordered, "", true, "-", 5},
		"the removal begins": {active, "Skip", true, "Skip", 6},
		"the row comes back": {ordered, "Retry", false, "", 6},
		"a row that stays":   {active, "Skip", false, "-", 5},
	} {
		v := schedule.Verdict{Cluster: "a", UID: "a", Outcome: schedule.OutcomeOut}
		if !c.isDeleting {
			v.Outcome = schedule.OutcomePlaced
		}
		out := AdvanceRows(Input{
			BundleUID: "bundle", Revision: "r1", Now: time.Unix(1000, 0), RemovalMode: v1alpha1.RemoveDelete, RemovalHooks: c.order, Deleting: c.isDeleting,
			Rows: map[string]Row{"a": {Spec: c.row, Online: true}}, Decision: schedule.Decision{Verdicts: []schedule.Verdict{v}},
		})
		next := out.Changes["a"]
		switch {
		case c.want == "-":
			if next != nil {
				t.Errorf("%s: the row became %+v", name, *next)
			}
		case next == nil || next.RemovalHooks != c.want || next.Generation < c.generation || (next.Phase == atoll.RowRemoving) != c.isDeleting:
			t.Errorf("%s: the row became %+v", name, next)
		}
	}
}
