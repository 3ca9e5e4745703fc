package preview

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// OldCopyWait is what clusters wait for before a Bundle starts there.
type OldCopyWait struct {
	Clusters []string     `json:"clusters"`
	For      string       `json:"for"`
	Reason   atoll.Reason `json:"reason"`
}

// BudgetWait is what clusters wait for before a budget lets the copy there go.
type BudgetWait struct {
	Clusters []string     `json:"clusters"`
	For      string       `json:"for"`
	Reason   atoll.Reason `json:"reason"`
	// Actor must act.
	Actor atoll.Actor `json:"actor"`
}

// oldCopyWaits lists the waits for old copies, equal ones together.
func (c *bundleComparison) oldCopyWaits() (out []OldCopyWait) {
	eachWait(c.OldCopyWaits, func(clusters []string, w rollout.RowWait) {
		out = append(out, OldCopyWait{Clusters: clusters, For: w.For, Reason: w.Reason})
	})
	return out
}

// budgetWaits lists the waits for budgets, equal ones together.
func (c *bundleComparison) budgetWaits() (out []BudgetWait) {
	eachWait(c.DisruptionWaits, func(clusters []string, w rollout.RowWait) {
		out = append(out, BudgetWait{Clusters: clusters, For: w.For, Reason: w.Reason, Actor: w.Actor})
	})
	return out
}

// eachWait calls fn for equal waits together, in the order of their first clusters.
func eachWait(waits map[string]rollout.RowWait, fn func(clusters []string, w rollout.RowWait)) {
	var order []rollout.RowWait
	clusters := map[string][]string{}
	for _, cluster := range slices.Sorted(maps.Keys(waits)) {
		w := waits[cluster]
		if clusters[w.For] == nil {
			order = append(order, w)
		}
		clusters[w.For] = append(clusters[w.For], cluster)
	}
	for _, w := range order {
		fn(clusters[w.For], w)
	}
}

// describeStrictBudget returns an edited disruptionBudget that would let none of the copies go; empty: it lets some.
func (c *bundleComparison) describeStrictBudget() string {
	copies := 0
	for _, row := range c.After {
		if row.Phase.IsChosen() {
			copies++
		}
	}
	if !c.BudgetEdited || !c.DisruptionBudget.LetsNoneGo(copies) {
		return ""
	}
	return fmt.Sprintf("disruptionBudget with %s would let no copy in %s go, even while all are available", c.DisruptionBudget, phrase.CountNoun(copies, "cluster"))
}

// writeBudgetWaits writes which copies a budget would keep.
func (x BundlePlan) writeBudgetWaits(b *strings.Builder, all bool) {
	if x.StrictBudget != "" {
		fmt.Fprintf(b, "  %s: changes of healthy copies would wait for an edit of it, and so would drains without a replacement.\n", x.StrictBudget)
	}
	for _, w := range x.KeptByBudget {
		fmt.Fprintf(b, "  The copy in %s cannot leave because of its budget, and would wait for %s (%s); %s must act.\n", abbreviateNames(w.Clusters, all), w.For, w.Reason, w.Actor)
	}
}
