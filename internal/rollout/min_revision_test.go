package rollout_test

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// Rows that are there keep to a revision that differs from the target in nothing but
// overrides that wait for the next change; a row that comes starts with the target, and
// so does one that was on its way out of the cluster altogether.
func TestRowsKeepTheirOverridesUntilTheNextChange(t *testing.T) {
	revision := func(n int64) string { return atoll.RevisionName("b", n, "0123456789abcdef") }
	row := func(c string, n int64, phase atoll.RowPhase) rollout.Row {
		return rollout.Row{Online: true, Spec: atoll.RowSpec{UID: "u-" + c, Generation: 7, Revision: revision(n), Variant: "own", Phase: phase, Since: 1}}
	}
	in := rollout.Input{
		BundleUID: "b", Revision: revision(6), MinRevision: 4, Now: time.Unix(100, 0),
		Rows: map[string]rollout.Row{
			"old": row("old", 3, atoll.RowActive), "base": row("base", 4, atoll.RowActive), "later": row("later", 5, atoll.RowActive),
			"other": row("other", 5, atoll.RowActive), "back": row("back", 5, atoll.RowRemoving),
		},
		Variants: map[string]string{}, CurrentVariants: map[string]string{"later": "own", "other": "other rules target it now"},
	}
	for _, c := range []string{"back", "base", "later", "new", "old", "other"} {
		in.Variants[c] = "new"
		in.Decision.Verdicts = append(in.Decision.Verdicts, schedule.Verdict{Cluster: c, UID: "u-" + c, Outcome: schedule.OutcomePlaced})
	}
	check := func(what string, in rollout.Input, stay ...string) {
		t.Helper()
		out := rollout.AdvanceRows(in)
		stays := map[string]bool{}
		for _, c := range stay {
			stays[c] = true
		}
		for c := range in.Variants {
			spec, changes := out.Changes[c]
			switch {
			case stays[c] && changes && (spec.Generation != 7 || spec.Variant != "own"):
				t.Errorf("%s: %s should stay, and becomes %+v", what, c, spec)
			case !stays[c] && (!changes || spec.Revision != in.Revision || spec.Variant != "new"):
				t.Errorf("%s: %s should move, and becomes %+v", what, c, spec)
			}
		}
	}
	check("with the next change", in, "base", "later")
	in.MinRevision = 0
	check("the next change", in)
}
