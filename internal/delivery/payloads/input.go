package payloads

import (
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// ManifestInput is everything that the manifest of a row depends on, as it was at one
// moment. Renderer.ReadManifestInput makes it. The value is immutable.
type ManifestInput struct {
	Bundle enginev1.BundleRef
	// Row has the fields of the row's spec that a manifest depends on, and no others.
	Row atoll.RowSpec
	// PresentBundles are the UIDs of Bundles that took over items of the content's
	// tombstones and have a row in the cluster that stays. They are sorted.
	PresentBundles []string
	// ClusterLeaves is true while the cluster leaves the fleet and its workloads stay.
	ClusterLeaves bool
	// NamespaceDeleted is true when the hub's namespace of the Bundle is deleted or is
	// being deleted.
	NamespaceDeleted bool
	// HeldBack are the keys of items that must not be sent, because members recorded their deletion.
	// They are sorted as in the content.
	HeldBack []string

	// content is what Row.Revision names.
	content *atoll.Content
	// view of the row's cluster; nil where the cluster does not exist. Row.Variant stands
	// for it in the cache key: another view of the same variant renders the same.
	view *atoll.ClusterView
	// cluster is the name of the row's cluster, for errors.
	cluster string
}

// CacheKey returns the hash of the input. Inputs of equal keys render equal manifests.
func (in ManifestInput) CacheKey() string { return atoll.HashJSON(in) }

// hasPresentBundle reports whether the Bundle of that UID has a row in the cluster that stays.
func (in ManifestInput) hasPresentBundle(bundleUID string) bool {
	return slices.Contains(in.PresentBundles, bundleUID)
}

// manifestFields returns a copy of the spec with only the fields that a manifest depends on. It
// keeps of the reason what the manifest depends on, and of ExcludedPending the keys.
func manifestFields(spec atoll.RowSpec) atoll.RowSpec {
	out := atoll.RowSpec{
		Revision: spec.Revision, Variant: spec.Variant, Assigned: spec.Assigned, OrdinalStarts: spec.OrdinalStarts,
		Phase: atoll.RowActive, Orphan: spec.Orphan, Reason: manifest.KeepReason(spec),
	}
	if spec.Phase == atoll.RowRemoving {
		out.Phase, out.RemovalHooks = atoll.RowRemoving, spec.RemovalHooks
	}
	if len(spec.ExcludedPending) > 0 {
		out.ExcludedPending = make(map[string]int64, len(spec.ExcludedPending))
		for item := range spec.ExcludedPending {
			out.ExcludedPending[item] = 0
		}
	}
	for _, a := range spec.Approvals {
		out.Approvals = append(out.Approvals, atoll.DriftApproval{Item: a.Item, ID: a.ID})
	}
	return out
}
