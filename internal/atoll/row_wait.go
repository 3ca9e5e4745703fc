package atoll

import (
	"slices"
	"strings"
)

// IsOrderDeclined reports whether the cluster did not take the order of the status's generation. All else in the status
// is about an older order.
func (s *RowStatus) IsOrderDeclined() bool {
	return s.State == RowFailed && (s.Reason == ReasonOrderTooLarge || s.Reason == ReasonAgentMemoryFull)
}

// HasTriedItems reports whether the cluster has applied, or tried to apply, each item of the status's generation. It lists
// those that it could not apply.
func (s *RowStatus) HasTriedItems() bool {
	return s.Applied || s.State == RowFailed && !s.IsOrderDeclined()
}

// WaitReason returns the reason for which an Active row with this status is not done; empty when it is.
// The status is of the row's generation.
func (s *RowStatus) WaitReason() Reason {
	switch {
	case s.hasInterpreterFailure():
		return ReasonInterpreterFailed
	case s.State == RowProgressing:
		return s.progressingReason()
	case s.State == RowDegraded:
		return ReasonDegraded
	case s.State == RowFailed && s.isRefusedWith(ReasonDeniedByPolicy):
		return ReasonDeniedByPolicy
	case s.State == RowFailed && s.isRefusedWith(ReasonServiceAccountForbidden):
		return ReasonServiceAccountForbidden
	case s.State == RowFailed:
		return ReasonFailed
	}
	return ""
}

// progressingReason returns the reason for which a row is Progressing.
func (s *RowStatus) progressingReason() Reason {
	switch {
	case s.hasItemWith(ReasonHealthRuleFailed):
		return ReasonHealthRuleFailed
	case s.hasItemWith(ReasonHeldByPolicy):
		return ReasonHeldByPolicy
	case s.Reason == ReasonMissing:
		return ReasonMissing
	}
	return ReasonProgressing
}

// isRefusedWith reports whether the member's administrator does not allow the items, by the reason.
func (s *RowStatus) isRefusedWith(reason Reason) bool {
	if s.Reason != "" {
		return s.Reason == reason
	}
	return slices.ContainsFunc(s.Items, func(it ItemStatus) bool { return it.Health != Healthy && it.Reason == reason })
}

// hasInterpreterFailure reports whether a failing script blocks the row.
func (s *RowStatus) hasInterpreterFailure() bool {
	switch s.State {
	case RowProgressing:
		return s.hasItemWith(ReasonInterpreterFailed)
	case RowFailed: // the first item that is not healthy is named
		i := slices.IndexFunc(s.Items, func(it ItemStatus) bool { return it.Health != Healthy })
		return s.Reason == "" && i >= 0 && s.Items[i].Reason == ReasonInterpreterFailed
	}
	return false
}

// hasItemWith reports whether an item has the reason.
func (s *RowStatus) hasItemWith(reason Reason) bool {
	return slices.ContainsFunc(s.Items, func(it ItemStatus) bool { return it.Reason == reason })
}

// RemovalBlocker returns what the agent reports to keep a Removing row from going, other than that it
// takes time; empty when nothing does. The status is of the row's generation.
func (s *RowStatus) RemovalBlocker() string {
	if s.State == RowRemoved {
		return ""
	}
	for _, it := range s.Items {
		if it.Message != "" && (it.Error || it.Reason == ReasonTerminating || it.Reason == ReasonForeignObjects || it.Reason == ReasonHeldByPolicy) {
			return it.Key.Kind + " " + it.Key.Name + ": " + it.Message
		}
	}
	if s.State == RowFailed {
		return strings.TrimSpace(string(s.Reason) + " " + s.Message)
	}
	return ""
}

// RemovalHookWait returns the hook for which a Removing row waits, with its reason and its message; empty where it waits for
// none. A hook that failed comes first. The status is of the row's generation.
func (s *RowStatus) RemovalHookWait() (reason Reason, text string) {
	for _, it := range s.Items {
		if it.Reason != ReasonHookFailed && it.Reason != ReasonWaitsForHook {
			continue
		}
		if reason == "" || it.Reason == ReasonHookFailed {
			reason, text = it.Reason, it.Key.Kind+" "+it.Key.Name+": "+it.Message
		}
		if reason == ReasonHookFailed {
			break
		}
	}
	return reason, text
}

// IsTurnReason reports whether a row with the reason keeps its revision until its turn in a rollout.
func IsTurnReason(r Reason) bool {
	switch r {
	case ReasonRolloutPaused, ReasonChangesFrozen, ReasonDispatchingSuspended, ReasonOutsideWindow, ReasonStageFailed, ReasonWaitsForStage, ReasonWaitsForSuccessTime, ReasonMaxConcurrencyReached, ReasonMaxUnavailableReached, ReasonTooManyUnhealthy, ReasonDisruptionBudget, ReasonDisruptionBudgetTooStrict,
		ReasonWaitsForApproval, ReasonWaitsForGateTime, ReasonWaitsForExpression, ReasonWaitsForMeasurement, ReasonGateHasNoData, ReasonGateFailed, ReasonRollingBack, ReasonRolledBack, ReasonRollbackFailed:
		return true
	}
	return IsOrderReason(r)
}

// IsOrderReason reports whether a row with the reason waits for Bundles of other policies.
func IsOrderReason(r Reason) bool {
	switch r {
	case ReasonWaitsForDependency, ReasonDependencyMissing, ReasonDependencyNotPlaced, ReasonDependencyDisconnected, ReasonDependencyCycle, ReasonWaitsForDependents:
		return true
	}
	return false
}

// IsBudgetReason reports whether a budget keeps a copy with the reason from a voluntary disruption.
func IsBudgetReason(r Reason) bool {
	return r == ReasonDisruptionBudget || r == ReasonDisruptionBudgetTooStrict || r == ReasonPodDisruptionBudget
}
