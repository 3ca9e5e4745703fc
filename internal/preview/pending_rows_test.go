package preview

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A plan shows that a copy starts which waits now, and does not show one that waits as removed.
func TestAPlanFromAPendingRow(t *testing.T) {
	c := shopChange()
	row := c.Before["oslo"]
	waits := row
	waits.Phase = atoll.RowPending
	c.Before = map[string]atoll.RowSpec{"tokyo": waits}
	c.After = map[string]atoll.RowSpec{"tokyo": row} // such as with moveOrder: Surge
	if p := BuildPlan(Input{Bundles: []BundleChange{c}}); len(p.Bundles) == 0 || len(p.Bundles[0].Rows) == 0 {
		t.Errorf("the workload would start in tokyo, and the plan shows no change: %s", p.FormatText(false))
	}
	c.After = map[string]atoll.RowSpec{"lima": row}
	for _, b := range BuildPlan(Input{Bundles: []BundleChange{c}}).Bundles {
		for _, r := range b.Rows {
			if r.Change == ChangeRemoved {
				t.Errorf("nothing runs in tokyo, and the plan removes it: %+v", r)
			}
		}
	}
}
