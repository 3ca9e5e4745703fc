package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/rollout"
)

// A row that keeps older overrides until the next change says so; one that is to move does
// not.
func TestARowThatKeepsItsOverridesSaysSo(t *testing.T) {
	name := func(n int64) string { return atoll.RevisionName("b", n, "0123456789abcdef") }
	b := Bundle{Latest: name(3), Content: &atoll.Content{MinRevision: 2}, Numbers: map[string]int64{}}
	for n, want := range map[int64]bool{1: false, 2: true, 3: false} {
		row := rollout.Row{Online: true, Spec: atoll.RowSpec{Revision: name(n), Phase: atoll.RowActive}}
		r := ExplanationInput{Now: time.Unix(100, 0)}.explainRow(b, "a", row, true)
		notes := strings.Join(Explanation{}.rowNotes(BundleExplanation{}, ClusterExplanation{Row: r}), "\n")
		if r.OverridesWait != want || strings.Contains(notes, "keeps its overrides until the next change") != want {
			t.Errorf("at revision %d: %t, notes %q", n, r.OverridesWait, notes)
		}
	}
}

// Only a row that is active stays at a revision: one that leaves goes with what it has.
func TestOnlyActiveRowsStayAtARevision(t *testing.T) {
	name := func(n int64) string { return atoll.RevisionName("b", n, "0123456789abcdef") }
	content := &atoll.Content{MinRevision: 2}
	for what, c := range map[string]struct {
		content *atoll.Content
		phase   atoll.RowPhase
		want    bool
	}{"active": {content, atoll.RowActive, true}, "leaving": {content, atoll.RowLeaving, false}, "removing": {content, atoll.RowRemoving, false}, "without content": {nil, atoll.RowActive, false}} {
		if got := (Bundle{Latest: name(3), Content: c.content}).staysAtRevision(atoll.RowSpec{Revision: name(2), Phase: c.phase}); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// An exclusion by a rule, or of a part, is explained in words.
func TestOverridesInWords(t *testing.T) {
	for want, o := range map[string]Override{
		"/a = 1 by OverridePolicy/shop/p rule 1 mergePatch (variant prod of Source web: a\\x0a)":    {Path: "/a", Policy: "OverridePolicy/shop/p", Rule: 1, Overrider: "mergePatch", Value: 1, Description: "variant prod of Source web: a\n"},
		"not here, by OverridePolicy/shop/p rule 0 (variant off)":                                   {Policy: "OverridePolicy/shop/p", Overrider: "notHere", Value: true, Description: "variant off"},
		`/spec/a = 1 by OverridePolicy/shop/p rule 0 ordered[1].plaintext`:                          {Path: "/spec/a", Policy: "OverridePolicy/shop/p", Overrider: "ordered[1].plaintext", Value: 1},
		`Deployment/web left out OverridePolicy/shop/p rule 2 plaintext[0]: there is no "a" to add`: {Item: "Deployment/web", Policy: "OverridePolicy/shop/p", Rule: 2, Overrider: "plaintext[0]", Skipped: `there is no "a" to add`},
		`/spec/a = null by OverridePolicy/shop/p rule 0 plaintext[0]`:                               {Path: "/spec/a", Policy: "OverridePolicy/shop/p", Overrider: "plaintext[0]", Value: json.RawMessage("null")},
		`/spec/a taken away by OverridePolicy/shop/p rule 0 plaintext[0]`:                           {Path: "/spec/a", Policy: "OverridePolicy/shop/p", Overrider: "plaintext[0]"},
		`not here, by OverridePolicy/shop/p rule 0`:                                                 {Policy: "OverridePolicy/shop/p", Overrider: "notHere", Value: true},
		`/spec/replicas = 2 by the placement`:                                                       {Path: "/spec/replicas", Policy: overrides.PolicyPlacement, Value: 2},
	} {
		if got := o.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
