package rollout

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// isUnchanged reports whether a spec orders and stores the same as the row.
func isUnchanged(row atoll.RowSpec, next *atoll.RowSpec) bool {
	return row.UID == next.UID && isSameWork(row, *next) && isSameBookkeeping(row, *next)
}

// isSameWork reports whether the agent has nothing to do about the difference.
func isSameWork(a, b atoll.RowSpec) bool {
	return a.Revision == b.Revision && a.Variant == b.Variant && a.Phase == b.Phase &&
		a.Orphan == b.Orphan && a.RemovalHooks == b.RemovalHooks && maps.Equal(a.Assigned, b.Assigned) && maps.Equal(a.OrdinalStarts, b.OrdinalStarts) && maps.Equal(a.ExcludedPending, b.ExcludedPending) &&
		!slices.ContainsFunc(b.Approvals, func(x atoll.DriftApproval) bool { return !slices.Contains(a.Approvals, x) })
}

// isSameBookkeeping reports whether rows of the same work also store the same.
func isSameBookkeeping(a, b atoll.RowSpec) bool {
	return a.Reason == b.Reason && a.Since == b.Since && a.PlacementFingerprint == b.PlacementFingerprint &&
		a.GrownAt == b.GrownAt && a.MovingSince == b.MovingSince && a.RequestedPods == b.RequestedPods && slices.Equal(a.HomeItems, b.HomeItems) && slices.Equal(a.Absent, b.Absent) &&
		maps.Equal(a.ShrinkTo, b.ShrinkTo) && a.Recall.Equal(b.Recall) && slices.Equal(a.Approvals, b.Approvals) && a.HasSameTurn(b)
}
