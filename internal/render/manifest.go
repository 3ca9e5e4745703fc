package render

import (
	"maps"
	"slices"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
)

// ManifestInput is what BuildManifest puts together.
type ManifestInput struct {
	Bundle  enginev1.BundleRef
	Row     atoll.RowSpec
	Content *atoll.Content
	// Rules as the function Rules gave them for the row's cluster: what they keep out of
	// it is taken out of it.
	Rules []int
	// Items as Render gave them for the row; not looked at for a row that is
	// Removing.
	Items []atoll.Rendered
	// Here tells whether the Bundle of that UID has a row in this cluster that is
	// not Removing. Nil: none has.
	Here func(bundleUID string) bool
	// Leaves: the row's cluster leaves the fleet, and what runs there stays.
	Leaves bool
	// Namespaces of the hub by name; those that no item needs are left out.
	Namespaces map[string]atoll.NamespaceMeta
	// DeletedNamespaces that the agent may remove once they are empty.
	DeletedNamespaces []string
	// Key of the hub, under which the content is hashed: the hash lies in the row's
	// status, and who sees it cannot test guesses of a Secret against it.
	Key []byte
}

// BuildManifest gives what the row's member is to hold of the Bundle. Equal content
// hashes mean equal manifests whatever their generations.
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
		m.Remove, m.Items = true, nil
		if in.Row.Orphan {
			m.Removal = v1alpha1.RemoveOrphan
			m.LeftBehind = LeftBehind(in.Row)
		}
	} else {
		m.Namespaces = needed(in)
		m.Interpreters = script.ForMember(in.Content.Interpreters)
	}
	for _, t := range in.Content.Tombstones {
		if in.leftBehind(t) {
			continue
		}
		t.MovedTo = slices.DeleteFunc(slices.Clone(t.MovedTo), func(uid string) bool {
			return in.Here == nil || !in.Here(uid)
		})
		if len(t.MovedTo) == 0 {
			t.MovedTo = nil
		}
		m.Tombstones = append(m.Tombstones, t)
	}
	if !m.Remove {
		m.Tombstones = append(m.Tombstones, keptOut(in)...)
	}
	m.Content = contentHash(in.Key, m)
	return m
}

// leftBehind tells whether the tombstone's item went over to a Bundle that has no place in
// this cluster only because the cluster leaves the fleet with what runs in it: to move it
// was never a wish that it goes. The row keeps it, and lets go of it with all else.
func (in *ManifestInput) leftBehind(t atoll.Tombstone) bool {
	if len(t.MovedTo) == 0 || in.Here != nil && slices.ContainsFunc(t.MovedTo, in.Here) {
		return false
	}
	return in.Leaves || LeftBehind(in.Row)
}

// LeftBehind tells whether a row is orphaned since its cluster leaves the fleet, and not
// because a policy says so.
func LeftBehind(row atoll.RowSpec) bool {
	return row.Phase == atoll.RowRemoving && row.Orphan && atoll.ParseRowReason(row.Reason).Word == atoll.RowClusterRemoved
}

// keptOut gives the tombstones of items that the rules keep out of the cluster. What is
// among the row's items all the same, since an atomic rule stopped all of them, stays.
func keptOut(in ManifestInput) (out []atoll.Tombstone) {
	content := in.Content
	for _, key := range NotHere(content, InputOf(in.Row, in.Rules, nil)) {
		if slices.ContainsFunc(in.Items, func(r atoll.Rendered) bool { return r.Key == key }) {
			continue
		}
		for i := range content.Items {
			if item := &content.Items[i]; item.Key == key && item.State != atoll.ItemRemovalHeld {
				out = append(out, atoll.Tombstone{Key: key, UID: item.UID, Cause: atoll.CauseNotHere, Orphan: content.Removal == v1alpha1.RemoveOrphan})
			}
		}
	}
	return out
}

func needed(in ManifestInput) map[string]atoll.NamespaceMeta {
	out := map[string]atoll.NamespaceMeta{}
	for _, item := range in.Items {
		if ns := item.Key.Namespace; ns != "" {
			if meta, ok := in.Namespaces[ns]; ok {
				out[ns] = NamespaceMeta(meta.Labels, meta.Annotations)
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// NamespaceMeta leaves out of a hub namespace's labels and annotations what is the
// hub's own.
func NamespaceMeta(labels, annotations map[string]string) atoll.NamespaceMeta {
	bare := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(k, _ string) bool { return own(k) || k == "kubernetes.io/metadata.name" })
		if len(m) == 0 {
			return nil
		}
		return m
	}
	return atoll.NamespaceMeta{Labels: bare(labels), Annotations: bare(annotations)}
}

// contentHash is over all of the manifest but its generation; its parts count by their
// hashes.
func contentHash(key []byte, m atoll.Manifest) string {
	m = m.Bare()
	m.Generation, m.Content = 0, ""
	if m.Items == nil {
		m.Items = []atoll.Rendered{} // none is none, however it was said
	}
	return atoll.KeyedHash(key, []byte(atoll.HashJSON(m)))
}
