package bundlestatus

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// countDisruptions counts the copies for the disruption budget, as the placer does. Copies that leave without a replacement are not distinguished from the
// others here, because equal rows are counted together.
func (in StatusInput) countDisruptions() rollout.CopyTally {
	budget := in.Bundle.Spec.DisruptionBudget
	out := rollout.NewCopyTally(budget)
	if budget == nil {
		return out
	}
	for _, r := range in.Rows {
		n, isConnected := int(r.rowCount()), r.Reachable || r.CountsUntil.After(in.Now)
		switch {
		case !isInRollout(r):
		case r.Spec.Phase == atoll.RowPending && !in.awaitsTurn(r):
			out.AddWithheld(isConnected, n)
		case r.Spec.Phase.IsChosen():
			out.AddChosen(r.inRollout(), isConnected, n, r.clusterNames()...)
		default:
			out.AddLeaving(r.inRollout(), isConnected, n)
		}
	}
	return out
}

// setBudgetWait sets for what a row waits that a budget keeps from leaving.
func (t *rowTally) setBudgetWait(reason atoll.Reason, w *waitCause) {
	w.reason, w.text = reason, t.progress.Copies.DescribeHold(reason)
	if needsPerson(string(reason)) {
		w.rank = rankHeldTurn
	}
	if w.text == "" { // the Bundle is deleted, or its budget was removed a moment ago
		w.text = "the budget that keeps it"
	}
}
