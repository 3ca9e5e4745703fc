package preview

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// A plan says which clusters wait for old copies, equal waits in one line, and counts the move as a move.
func TestAPlanNamesWaitsForOldCopies(t *testing.T) {
	c := shopChange()
	row := c.Before["oslo"]
	c.After = map[string]atoll.RowSpec{"bergen": row, "lima": row}
	wait := rollout.RowWait{Reason: atoll.ReasonWaitsForOldCopy, For: "the old copy in oslo, tokyo to end"}
	c.OldCopyWaits = map[string]rollout.RowWait{"lima": wait, "bergen": wait}
	p := BuildPlan(Input{Bundles: []BundleChange{c}})
	if b := p.Bundles[0]; len(b.OldCopies) != 1 || strings.Join(b.OldCopies[0].Clusters, " ") != "bergen lima" || b.OldCopies[0].Reason != atoll.ReasonWaitsForOldCopy {
		t.Errorf("the waits are %+v", p.Bundles[0].OldCopies)
	}
	text := p.FormatText(false)
	for _, want := range []string{
		"Bundle shop/web (PropagationPolicy web), moves from oslo, tokyo to bergen, lima\n",
		"  bergen, lima would wait for the old copy in oslo, tokyo to end; the workload would not run in between (moveOrder).\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
}
