package rollout

import (
	"fmt"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// CopyTally counts the copies of a Bundle for its disruption budget. The zero value has no budget, and bounds nothing.
type CopyTally struct {
	budget *v1alpha1.DisruptionBudget
	// expected counts the connected clusters that are to hold the Bundle, and those that lose it without a replacement. Of the copies in
	// connected clusters, present counts all and available the healthy ones.
	expected, present, available int
	// all and allExpected count as if every cluster were connected and every copy available.
	all, allExpected int
	unavailable      int
	unavailableNames []string
	// isExact: copies that nothing replaces are expected, too.
	isExact bool
}

// NewCopyTally returns a tally without copies; a nil budget bounds nothing.
func NewCopyTally(b *v1alpha1.DisruptionBudget) CopyTally { return CopyTally{budget: b} }

// AddChosen counts equal rows of clusters that are to hold the Bundle. The names are those of the clusters, or the first of them.
func (t *CopyTally) AddChosen(row Row, isConnected bool, n int, names ...string) {
	t.all += n
	t.allExpected += n
	if !isConnected {
		return
	}
	t.expected += n
	t.present += n
	if row.isReady() {
		t.available += n
		return
	}
	t.addUnavailable(n, names...)
}

// AddWithheld counts clusters that are to hold the Bundle once other clusters have lost it: both copies are never there at one time.
func (t *CopyTally) AddWithheld(isConnected bool, n int) {
	if t.allExpected += n; isConnected {
		t.expected += n
	}
}

// AddLeaving counts equal rows of clusters that are to lose the Bundle.
func (t *CopyTally) AddLeaving(row Row, isConnected bool, n int) {
	t.all += n
	if !isConnected {
		return
	}
	t.present += n
	if row.isReady() {
		t.available += n
	}
}

// expectLeaving counts copies as expected although their clusters are to lose them: nothing replaces them.
func (t *CopyTally) expectLeaving(connected, all int) {
	t.expected += connected
	t.allExpected += all
}

func (t *CopyTally) addUnavailable(n int, names ...string) {
	t.unavailable += n
	t.unavailableNames = insertFewNames(t.unavailableNames, names)
}

// Room returns how many available copies may be taken; negative: fewer are available than must stay.
func (t *CopyTally) Room() int {
	if t.budget == nil {
		return noBound
	}
	return t.available - t.budget.RequiredOf(t.expected)
}

// roomOfEdit is Room for a copy that an edit of the placement moves: an edit to fewer clusters than must stay available is the user's own.
func (t *CopyTally) roomOfEdit() int {
	return t.available - min(t.budget.RequiredOf(t.expected), t.expected)
}

// take counts an available copy as taken by this step.
func (t *CopyTally) take(cluster string) {
	t.available--
	t.addUnavailable(1, cluster)
}

// isSpent reports whether no available copy may be taken.
func (t *CopyTally) isSpent() bool { return t.budget != nil && t.Room() <= 0 }

// isTooStrict reports whether no copy may be taken even while all are available.
func (t *CopyTally) isTooStrict() bool {
	return t.budget != nil && t.letsNoneGo(t.budget.RequiredOf(t.allExpected))
}

// letsNoneGo reports whether all copies are no more than so many that must stay.
func (t *CopyTally) letsNoneGo(required int) bool { return t.all > 0 && t.all <= required }

// Reason returns why no available copy may be taken.
func (t *CopyTally) Reason() atoll.Reason {
	if t.isTooStrict() {
		return atoll.ReasonDisruptionBudgetTooStrict
	}
	return atoll.ReasonDisruptionBudget
}

// reasonOfEdit is Reason for a copy that an edit of the placement moves.
func (t *CopyTally) reasonOfEdit() atoll.Reason {
	if t.letsNoneGo(min(t.budget.RequiredOf(t.allExpected), t.allExpected)) {
		return atoll.ReasonDisruptionBudgetTooStrict
	}
	return atoll.ReasonDisruptionBudget
}

// Describe returns what a copy waits for that the budget keeps.
func (t *CopyTally) Describe() string { return t.DescribeHold(t.Reason()) }

// DescribeHold returns what a copy waits for that a budget keeps by the reason; empty without a budget.
func (t *CopyTally) DescribeHold(reason atoll.Reason) string {
	switch {
	case t.budget == nil:
		return ""
	case reason == atoll.ReasonPodDisruptionBudget:
		return "a PodDisruptionBudget of the Bundle in the cluster to allow a disruption"
	case reason == atoll.ReasonDisruptionBudgetTooStrict:
		all := "its only copy is"
		if t.all != 1 {
			all = fmt.Sprintf("all %d copies are", t.all)
		}
		return fmt.Sprintf("an edit of disruptionBudget: %s lets no copy go, even while %s available", t.budget, all)
	}
	awaited := phrase.JoinFirst(t.unavailableNames, fewNames, t.unavailable)
	if awaited == "" {
		awaited = "more copies"
	}
	text := fmt.Sprintf("%s to become available: %d of %s are, and disruptionBudget states %s", awaited, t.available, countCopyNoun(t.present), t.budget)
	if t.isExact {
		text += fmt.Sprintf(", so that %d must stay", t.budget.RequiredOf(t.expected))
	}
	return text
}

func countCopyNoun(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}
