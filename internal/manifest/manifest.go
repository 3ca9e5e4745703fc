package manifest

import (
	"cmp"
	"maps"
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/userfields"
)

// ManifestInput is the input of BuildManifest.
type ManifestInput struct {
	Bundle  enginev1.BundleRef
	Row     atoll.RowSpec
	Content *atoll.Content
	// Rules that MatchRules returned for the row's cluster. Items that they exclude become
	// tombstones.
	Rules []int
	// Items that RenderItems returned for the row; ignored for a row that is Removing.
	Items []atoll.RenderedItem
	// HasActiveRow returns whether the Bundle of that UID has a row in this cluster that is not
	// Removing. Nil: no Bundle has.
	HasActiveRow func(bundleUID string) bool
	// ClusterLeaving: the row's cluster leaves the fleet, and its workloads stay.
	ClusterLeaving bool
	// Namespaces of the hub by name; those that nothing needs are left out.
	Namespaces map[string]atoll.NamespaceMeta
	// DeletedNamespaces that the agent may remove once they are empty.
	DeletedNamespaces []string
	// HashKey of the hub, with which the content is hashed. The row's status shows the hash, and a
	// reader without the key cannot test guesses of a Secret against it.
	HashKey []byte
}

// BuildManifest returns what the row's member holds of the Bundle. Equal content hashes mean equal
// manifests, whatever their generations.
func BuildManifest(in ManifestInput) atoll.Manifest {
	m := atoll.Manifest{
		Bundle: in.Bundle.UID, Namespace: in.Bundle.Namespace, Name: in.Bundle.Name,
		Generation:         in.Row.Generation,
		Items:              in.Items,
		ConflictResolution: in.Content.ConflictResolution,
		Removal:            in.Content.Removal,
		DeletedNamespaces:  slices.Sorted(slices.Values(in.DeletedNamespaces)),
	}
	if in.Row.Phase == atoll.RowRemoving {
		m.Remove, m.Items, m.RemovalHooks = true, nil, in.Row.RemovalHooks
		if in.Row.Orphan {
			m.Removal = v1alpha1.RemoveOrphan
			m.ClusterDecommissioned = isOrphanedByDecommission(in.Row)
		}
	} else {
		in.Items = withApprovals(in.Items, in.Row.Approvals)
		m.HookRun = NameHookRun(in.Items)
		m.Items, m.ConflictResolution = extractCommonConflictResolution(in)
		m.Namespaces = neededNamespaces(in)
		m.Interpreters = script.InterpretersForMember(in.Content.Interpreters)
	}
	for _, t := range in.Content.Tombstones {
		if in.isMovedWhileClusterLeaves(t) {
			continue
		}
		t.MovedTo = slices.DeleteFunc(slices.Clone(t.MovedTo), func(uid string) bool {
			return in.HasActiveRow == nil || !in.HasActiveRow(uid)
		})
		if len(t.MovedTo) == 0 {
			t.MovedTo = nil
		}
		t.Finalizers, t.RemovalHook = nil, false
		m.Tombstones = append(m.Tombstones, t)
	}
	if m.Remove {
		m.Tombstones = append(m.Tombstones, removalModeTombstones(in)...)
	} else {
		m.Tombstones = append(m.Tombstones, tombstonesForExcludedItems(in)...)
	}
	m.Content = hashManifest(in.HashKey, m)
	return m
}

// withApprovals returns the items with the approvals of those that wait for one. Items without approvals are the
// argument itself.
func withApprovals(items []atoll.RenderedItem, approvals []atoll.DriftApproval) []atoll.RenderedItem {
	if len(approvals) == 0 {
		return items
	}
	ids := make(map[string]string, len(approvals))
	for _, a := range approvals {
		ids[a.Item] = a.ID
	}
	items = slices.Clone(items)
	for i := range items {
		if items[i].Observe == atoll.ObserveForApproval {
			items[i].Approval = ids[items[i].Key.String()]
		}
	}
	return items
}

// conflictOrder has the resolution first that takes over least.
var conflictOrder = []v1alpha1.ConflictResolution{v1alpha1.ConflictAbort, v1alpha1.ConflictAdoptIfSame, v1alpha1.ConflictOverwrite}

// extractCommonConflictResolution returns the items with the resolutions that differ from that of all others, which it
// returns, too. The least resolution of an item or the content is that of all others: agents without
// support for items' resolutions take over nothing that an item forbids.
func extractCommonConflictResolution(in ManifestInput) ([]atoll.RenderedItem, v1alpha1.ConflictResolution) {
	least, stated := in.Content.ConflictResolution, false
	for i := range in.Items {
		r := in.Items[i].ConflictResolution
		if stated = stated || r != ""; r != "" && slices.Index(conflictOrder, r) < slices.Index(conflictOrder, least) {
			least = r
		}
	}
	if !stated {
		return in.Items, least
	}
	items := slices.Clone(in.Items)
	for i := range items {
		r := cmp.Or(items[i].ConflictResolution, in.Content.ConflictResolution)
		if items[i].ConflictResolution = ""; r != least {
			items[i].ConflictResolution = r
		}
	}
	return items, least
}

// isMovedWhileClusterLeaves returns whether the tombstone's item moved to a Bundle that has no place here only
// because the cluster leaves the fleet with its workloads. The move was no request to delete the
// item. The row keeps it, and releases it with everything else.
func (in *ManifestInput) isMovedWhileClusterLeaves(t atoll.Tombstone) bool {
	if len(t.MovedTo) == 0 || in.HasActiveRow != nil && slices.ContainsFunc(t.MovedTo, in.HasActiveRow) {
		return false
	}
	return in.ClusterLeaving || isOrphanedByDecommission(in.Row)
}

// isOrphanedByDecommission returns whether a row is orphaned because its cluster leaves the fleet, and not
// because a policy requests it.
func isOrphanedByDecommission(row atoll.RowSpec) bool {
	return row.Phase == atoll.RowRemoving && row.Orphan && atoll.ParseRowReason(row.Reason).Reason == atoll.ReasonClusterRemoved
}

// isDeletedWithBundle reports whether a row is removed because its Bundle is deleted, or the Bundle's namespace.
func isDeletedWithBundle(row atoll.RowSpec) bool {
	return row.Phase == atoll.RowRemoving && atoll.ParseRowReason(row.Reason).Reason == atoll.ReasonBundleDeleted
}

// KeepReason returns the part of a row's reason on which its manifest depends; empty: none.
func KeepReason(row atoll.RowSpec) string {
	switch {
	case isOrphanedByDecommission(row):
		return string(atoll.ReasonClusterRemoved)
	case isDeletedWithBundle(row):
		return string(atoll.ReasonBundleDeleted)
	}
	return ""
}

// removalModeTombstones returns tombstones of the items of a row that goes, where they are removed in another
// mode than all others. A row that is orphaned as a whole has none.
func removalModeTombstones(in ManifestInput) (out []atoll.Tombstone) {
	if in.Row.Orphan {
		return nil
	}
	stays := (*atoll.Item).StaysAsOrphan
	if isDeletedWithBundle(in.Row) {
		stays = (*atoll.Item).StaysWithoutBundle
	}
	for i := range in.Content.Items {
		item := &in.Content.Items[i]
		if orphan := stays(item, in.Content); orphan != (in.Content.Removal == v1alpha1.RemoveOrphan) || item.Treatment.IsRemovedLast() {
			out = append(out, atoll.Tombstone{Key: item.Key, UID: item.UID, Cause: atoll.CauseExcluded, Orphan: orphan, Last: item.Treatment.IsRemovedLast()})
		}
	}
	return out
}

// tombstonesForExcludedItems returns the tombstones of items that rules exclude from the cluster. An item
// that is still rendered, because an atomic rule failed, stays.
func tombstonesForExcludedItems(in ManifestInput) (out []atoll.Tombstone) {
	content := in.Content
	for _, key := range AbsentItems(content, RenderInputOf(in.Row, in.Rules, nil)) {
		if slices.ContainsFunc(in.Items, func(r atoll.RenderedItem) bool { return r.Key == key }) {
			continue
		}
		for i := range content.Items {
			if item := &content.Items[i]; item.Key == key && item.State != atoll.ItemRemovalHeld {
				out = append(out, atoll.Tombstone{Key: key, UID: item.UID, Cause: atoll.CauseExcluded, Orphan: item.StaysAsOrphan(content), Last: item.Treatment.IsRemovedLast()})
			}
		}
	}
	return out
}

// neededNamespaces returns the namespaces of the items that are written, or may be by an approval, and that of a content without items that is its namespace.
func neededNamespaces(in ManifestInput) map[string]atoll.NamespaceMeta {
	out := map[string]atoll.NamespaceMeta{}
	add := func(ns string) {
		if meta, ok := in.Namespaces[ns]; ok && ns != "" {
			user := UserNamespaceMeta(meta.Labels, meta.Annotations)
			user.ServiceAccount = meta.ServiceAccount
			out[ns] = user
		}
	}
	for _, item := range in.Items {
		if item.Observe == "" || item.Approval != "" {
			add(item.Key.Namespace)
		}
	}
	if in.Content.NamespaceAlone {
		add(in.Bundle.Namespace)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// UserNamespaceMeta returns a hub namespace's labels and annotations without the hub's own, and the ServiceAccount that
// its annotation names, as it stands there.
func UserNamespaceMeta(labels, annotations map[string]string) atoll.NamespaceMeta {
	bare := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(k, _ string) bool { return userfields.IsHubKey(k) || k == "kubernetes.io/metadata.name" })
		if len(m) == 0 {
			return nil
		}
		return m
	}
	return atoll.NamespaceMeta{Labels: bare(labels), Annotations: bare(annotations), ServiceAccount: annotations[atoll.AnnotationServiceAccount]}
}

// hashManifest hashes the manifest without its generation; its parts count by their hashes.
func hashManifest(key []byte, m atoll.Manifest) string {
	m = m.WithoutParts()
	m.Generation, m.Content = 0, ""
	if m.Items == nil {
		m.Items = []atoll.RenderedItem{} // nil and empty hash alike
	}
	return atoll.KeyedHash(key, []byte(atoll.HashJSON(m.WithListedAssessments())))
}
