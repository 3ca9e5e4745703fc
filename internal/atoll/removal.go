package atoll

import (
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// RemovalPlanUnknown is the reason of a Cluster's condition Removing while what would be removed
// cannot be told, since tables lag: the hub looks again, and nothing is to be confirmed yet.
const RemovalPlanUnknown = "PlanUnknown"

// CleanPlan gives the hash of what a cluster that is cleaned loses: the items of all that is
// cleanable there, in whichever order and Bundle, by the removal that was asked for at the time
// that AnnotationRemovalAsked tells. What becomes of their content changes nothing. Another
// removal of the same has another hash, so that a confirmation which is kept somewhere does not
// confirm it.
func CleanPlan(clusterUID, asked string, items []ItemKey) string {
	keys := make([]string, len(items))
	for i, k := range items {
		keys[i] = k.String()
	}
	slices.Sort(keys)
	return HashJSON([]any{clusterUID, asked, slices.Compact(keys)})[:16]
}

// Cleanable tells whether a row is one of those that the plan of a cleaned cluster is about:
// those that are there and not on their way out already.
func Cleanable(b enginev1.BundleRef, spec RowSpec) bool {
	return !b.OfNamespace() && spec.Phase != RowRemoving
}

// Has tells whether a row brings an item of its Revision to its cluster: not what override
// rules keep out of it.
func (r RowSpec) Has(item ItemKey) bool { return !slices.Contains(r.NotHere, item.String()) }
