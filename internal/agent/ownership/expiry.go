package ownership

import "atoll.dev/atoll/internal/atoll"

// RecordFinish records since when the object of that UID is finished, as a Unix second. The first time counts. 0: it is
// not finished.
func (b *OwnershipRecords) RecordFinish(key atoll.ItemKey, uid string, at int64) {
	r := b.records[key]
	if r == nil || uid == "" || r.UID != uid || at != 0 && r.FinishedAt != 0 || r.FinishedAt == at {
		return
	}
	r.FinishedAt = at
	b.markDirty(key)
}

// MayExpire reports whether the object may be deleted because it is finished: Atoll made it for the present content of the
// item, for one Bundle alone, would not make it again, and its deletion takes nothing along.
func (r *Record) MayExpire(it *atoll.RenderedItem) bool {
	if it == nil || it.Hook != nil || r.UID == "" || r.FinishedAt == 0 || r.Adopted || DeletionLosesDataOrDependents(r.Key) {
		return false
	}
	return len(r.Claims) == 1 && r.Claims[r.Owner].State == Wanted && r.Template == it.UID && r.Applied == it.Hash && r.Label == r.Owner && r.HasRun(it, it.Hash)
}
