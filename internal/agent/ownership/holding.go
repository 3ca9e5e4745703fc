package ownership

import (
	"encoding/json"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// BundleHolding is what the agent stores of one Bundle.
type BundleHolding struct {
	Manifest atoll.Manifest `json:"manifest"`
	// Kept is the last good content of items whose render failed, and of items
	// that the manifest lacks without a tombstone. In a removal it is the hooks that the removal runs, while they run.
	Kept []atoll.RenderedItem `json:"kept,omitempty"`
	// Install: the Bundle is new in the member, so that hooks of an install run for the content.
	Install bool `json:"install,omitempty"`
}

// encodedHolding is the encoded form of a BundleHolding: the assessments of all items are those of the manifest's list.
type encodedHolding struct {
	Manifest atoll.Manifest       `json:"manifest"`
	Kept     []atoll.RenderedItem `json:"kept,omitempty"`
	Install  bool                 `json:"install,omitempty"`
}

// MarshalJSON encodes each part of the items' assessments once.
func (h BundleHolding) MarshalJSON() ([]byte, error) {
	m, kept := h.Manifest.WithListedAssessmentsOf(h.Kept)
	return json.Marshal(encodedHolding{m, kept, h.Install})
}

// UnmarshalJSON decodes what MarshalJSON encoded, and what agents encoded before assessments were listed.
func (h *BundleHolding) UnmarshalJSON(text []byte) error {
	var encoded encodedHolding
	if err := json.Unmarshal(text, &encoded); err != nil {
		return err
	}
	if err := encoded.Manifest.ResolveAssessments(encoded.Kept...); err != nil {
		return err
	}
	h.Manifest, h.Kept, h.Install = encoded.Manifest, encoded.Kept, encoded.Install
	return nil
}

// TombstoneID is how reports name a tombstone: "key uid".
func TombstoneID(t atoll.Tombstone) string { return t.Key.String() + " " + t.UID }

// Merge makes the Holding for a newer manifest. prev is nil for a Bundle that is
// not held yet. Its values are shared with prev and m.
func Merge(prev *BundleHolding, m atoll.Manifest) BundleHolding {
	next := BundleHolding{Manifest: m}
	if m.Remove {
		next.keepRemovalHooks(prev)
		return next
	}
	if prev == nil || prev.Manifest.Remove {
		return next
	}
	items := make(map[atoll.ItemKey]*atoll.RenderedItem, len(m.Items))
	for i := range m.Items {
		items[m.Items[i].Key] = &m.Items[i]
	}
	dead := map[string]bool{}
	for _, t := range m.Tombstones {
		dead[TombstoneID(t)] = true
	}
	for _, old := range prev.renderedAndKeptItems() {
		now, listed := items[old.Key]
		switch {
		case dead[TombstoneID(atoll.Tombstone{Key: old.Key, UID: old.UID})]:
		case !listed, now.Failed() && now.UID == old.UID:
			next.Kept = append(next.Kept, old)
		}
	}
	return next
}

// appliedNothing reports whether an agent without support for hooks stored the holding, and so applied nothing of the Bundle.
func (h *BundleHolding) appliedNothing() bool {
	lost := func(it atoll.RenderedItem) bool { return it.Error == atoll.UnknownHook && !it.Hooked }
	applied := func(it atoll.RenderedItem) bool { return !it.Failed() }
	return len(h.Kept) == 0 && slices.ContainsFunc(h.Manifest.Items, lost) && !slices.ContainsFunc(h.Manifest.Items, applied)
}

// HasLostFields reports whether an agent without support for a field of the items stored the holding, and
// dropped the field.
func (h *BundleHolding) HasLostFields() bool {
	return slices.ContainsFunc(h.Manifest.Items, func(it atoll.RenderedItem) bool { return it.HasLostField() })
}

// renderedAndKeptItems lists every item that has content: the manifest's, and what is kept.
func (h *BundleHolding) renderedAndKeptItems() []atoll.RenderedItem {
	out := make([]atoll.RenderedItem, 0, len(h.Manifest.Items)+len(h.Kept))
	for _, it := range h.Manifest.Items {
		if it.IsWritten() {
			out = append(out, it)
		}
	}
	return append(out, h.Kept...)
}
