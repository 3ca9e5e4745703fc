package preview

import (
	"strings"
	"testing"
)

func TestARebalanceSaysTheSumsFirst(t *testing.T) {
	var all Rebalance
	for i, name := range []string{"web", "api"} {
		p := Plan{Changes: true, Bundles: []BundlePlan{{Namespace: "shop", Name: name, Source: "PropagationPolicy " + name, Rows: []RowGroup{{Clusters: []string{"a"}, Change: ChangeRemoved, Why: "others were chosen from scratch"}, {Clusters: []string{"b"}, Change: ChangeAdded}}}}}
		more := Rebalance{Asked: []string{"first", "second"}[i], Plan: p, Looked: 3}
		if i == 1 {
			more.Refused = []Refusal{{Object: "Bundle shop/db", Why: "you may not"}}
			more.Placements = []PlacementChange{{Namespace: "shop", Name: "edge", Added: []string{"b"}, Removed: []string{"a"}}}
		}
		all.Add(more)
	}
	if all.Asked != "first" {
		t.Errorf("asked at %s: all are to be asked with one time", all.Asked)
	}
	want := `Of 6 that were looked at: 2 Bundles: 2 added, 2 removed, 0 changed.
1 Placement would publish other clusters.
Placement shop/edge
  + b
  - a
! Bundle shop/db would be refused: you may not
Bundle shop/web (PropagationPolicy web), moves from a to b
  - a: others were chosen from scratch
  + b
Bundle shop/api (PropagationPolicy api), moves from a to b
  - a: others were chosen from scratch
  + b
`
	if got := all.FormatText(false); got != want {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
	none := Rebalance{Looked: 4}
	if got := none.FormatText(false); !strings.HasPrefix(got, "Of 4 that were looked at: Nothing would change in any cluster.\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("nothing: %q", got)
	}
	var refused Rebalance
	refused.Add(Rebalance{Plan: Plan{Refused: []Refusal{{Object: "Bundle shop/nosuch", Why: "the hub has none"}}}})
	if got, want := refused.FormatText(false), "! Bundle shop/nosuch would be refused: the hub has none\n"; got != want || refused.Bundles == nil {
		t.Errorf("says %q, want %q; bundles are %v", got, want, refused.Bundles)
	}
	if (BundlePlan{NoFit: true}).WouldMove() || !(BundlePlan{Held: []string{"x"}}).WouldMove() {
		t.Error("what is asked for is what would move")
	}
}
