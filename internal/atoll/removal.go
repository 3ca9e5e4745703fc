package atoll

import (
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// HashCleanPlan returns the hash of what a cluster that is cleaned loses: the items of all that
// is cleanable there, in whichever order and Bundle, by the removal that was requested at the
// time in AnnotationRemovalRequested. Changes of their content do not change the hash. Another
// removal of the same has another hash, so that a confirmation which is kept somewhere does not
// confirm it.
func HashCleanPlan(clusterUID, asked string, items []ItemKey) string {
	keys := make([]string, len(items))
	for i, k := range items {
		keys[i] = k.String()
	}
	slices.Sort(keys)
	return HashJSON([]any{clusterUID, asked, slices.Compact(keys)})[:16]
}

// IsCleanable reports whether a row is one of those that the plan of a cleaned cluster is about:
// those that are there and not on their way out already.
func IsCleanable(b enginev1.BundleRef, spec RowSpec) bool {
	return !b.IsNamespaceRef() && spec.Phase != RowRemoving && !spec.Phase.OrdersNothing()
}

// IncludesItem reports whether a row brings an item of its Revision to its cluster: override
// rules may exclude it.
func (r RowSpec) IncludesItem(item ItemKey) bool { return !slices.Contains(r.Absent, item.String()) }
