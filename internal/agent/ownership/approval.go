package ownership

import "atoll.dev/atoll/internal/atoll"

// RecordDrift records the differences that a comparison found, by their hash, and returns their ID. Other
// differences than before get the ID fresh. An empty hash records that nothing is to be approved, and has no ID.
func (b *OwnershipRecords) RecordDrift(key atoll.ItemKey, hash, fresh string) (id string) {
	r := b.records[key]
	if r == nil {
		return ""
	}
	if r.DriftHash != hash || r.DriftID == "" && hash != "" {
		if hash == "" {
			fresh = ""
		}
		r.DriftID, r.DriftHash = fresh, hash
		b.markDirty(key)
	}
	return r.DriftID
}

// SpendApproval records that the correction of the drift under the ID begins. It returns false when the drift has
// another ID by now. The record must be stored before the correction, so that an approval is used once.
func (b *OwnershipRecords) SpendApproval(key atoll.ItemKey, id string) bool {
	r := b.records[key]
	if r == nil || id == "" || r.DriftID != id {
		return false
	}
	r.DriftID = ""
	b.markDirty(key)
	return true
}

// ReturnApproval records that the correction of the drift under the ID changed nothing, so that the correction is
// tried again.
func (b *OwnershipRecords) ReturnApproval(key atoll.ItemKey, id string) {
	if r := b.records[key]; r != nil && r.DriftID == "" && r.DriftHash != "" {
		r.DriftID = id
		b.markDirty(key)
	}
}

// endApprovals ends the ID of the object's drift where the owner has an item that no person approves: the item is written,
// or only reported. An old approval is then good for nothing when the rule returns.
func (b *OwnershipRecords) endApprovals(r *Record) {
	nb := b.bundles[r.Owner]
	if r.DriftHash == "" || nb == nil || nb.listed[r.Key] == nil {
		return
	}
	if it := nb.listed[r.Key]; !it.Failed() && it.Observe != atoll.ObserveForApproval {
		b.RecordDrift(r.Key, "", "")
	}
}

// IsKeptForOther reports whether the key's object was made for another template than its owner means, and is kept
// for a Bundle that takes it over.
func (b *OwnershipRecords) IsKeptForOther(key atoll.ItemKey) bool {
	r := b.records[key]
	return r != nil && r.UID != "" && r.Template != r.Claims[r.Owner].Template && r.isKeptForOtherBundle(r.Template)
}
