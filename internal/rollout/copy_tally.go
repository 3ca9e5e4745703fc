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
	// expected counts the connected clusters that are to hold the Bundle, and those that lose it without a replacement. present counts
	// the copies in connected clusters, and available the healthy ones of these.
	expected, present, available int
	// chosen counts the clusters that are to hold the Bundle, connected or not, and withheld those of them that come after old copies have ended.
	chosen, withheld int
	// unreplaced counts the expected copies that leave.
	unreplaced       int
	unavailable      int
	unavailableNames []string
	// isExact: copies that nothing replaces are expected, too.
	isExact bool
}

// NewCopyTally returns a tally without copies; a nil budget bounds nothing.
func NewCopyTally(b *v1alpha1.DisruptionBudget) CopyTally { return CopyTally{budget: b} }

// AddChosen counts equal rows of clusters that are to hold the Bundle. The names are those of the clusters, or the first of them.
func (t *CopyTally) AddChosen(row Row, isConnected bool, n int, names ...string) {
	t.chosen += n
	if !isConnected {
		return
	}
	t.expected += n
	t.present += n
	if row.wasReady() {
		t.available += n
		return
	}
	t.addUnavailable(n, names...)
}

// AddWithheld counts clusters that are to hold the Bundle once other clusters have lost it: both copies are never there at one time.
func (t *CopyTally) AddWithheld(isConnected bool, n int) {
	t.chosen += n
	if t.withheld += n; isConnected {
		t.expected += n
	}
}

// AddLeaving counts equal rows of clusters that are to lose the Bundle.
func (t *CopyTally) AddLeaving(row Row, isConnected bool, n int) {
	if !isConnected {
		return
	}
	t.present += n
	if row.wasReady() {
		t.available += n
	}
}

// expectLeaving counts copies in connected clusters as expected although the clusters are to lose them: nothing replaces them.
func (t *CopyTally) expectLeaving(n int) {
	t.expected += n
	t.unreplaced = n
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

// takeCopy counts an available copy as taken by this step.
func (t *CopyTally) takeCopy(cluster string) {
	t.available--
	t.addUnavailable(1, cluster)
}

// isSpent reports whether no available copy may be taken.
func (t *CopyTally) isSpent() bool { return t.budget != nil && t.Room() <= 0 }

// isTooStrict reports whether no row may change even while all copies are available.
func (t *CopyTally) isTooStrict() bool {
	most := t.chosen - t.withheld
	return t.budget != nil && most > 0 && most <= t.budget.RequiredOf(t.chosen)
}

// Reason returns why no row with an available copy may change.
func (t *CopyTally) Reason() atoll.Reason {
	if t.isTooStrict() {
		return atoll.ReasonDisruptionBudgetTooStrict
	}
	return atoll.ReasonDisruptionBudget
}

// reasonOfLeaving returns why an available copy may not leave. One more copy than those of the chosen clusters may be available then.
func (t *CopyTally) reasonOfLeaving(isEdit bool) atoll.Reason {
	expected := t.chosen + min(t.unreplaced, 1)
	required := t.budget.RequiredOf(expected)
	if isEdit {
		required = min(required, expected)
	}
	if t.chosen-t.withheld+1 <= required {
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
		return fmt.Sprintf("an edit of disruptionBudget: %s lets no copy go, even while all are available", t.budget)
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
