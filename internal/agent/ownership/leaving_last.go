package ownership

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// indexLeaving notes whether a Bundle's claim on a key leaves, and in which turn. nil: there is no claim.
func (b *OwnershipRecords) indexLeaving(key atoll.ItemKey, uid string, c *Claim) {
	wasFirst := len(b.leavingFirst[uid]) > 0
	remove(b.leavingFirst, uid, key)
	remove(b.leavingLast, uid, key)
	switch {
	case c == nil || c.State != Leaving:
	case c.Last:
		add(b.leavingLast, uid, key)
	case !leavesAfterOthers(key):
		add(b.leavingFirst, uid, key)
	}
	if wasFirst && len(b.leavingFirst[uid]) == 0 {
		maps.Copy(b.unblocked, b.leavingLast[uid])
	}
}

// leavesAfterOthers reports whether an object itself stays until others are gone, which may be those that leave last: a
// definition until the objects of its kind are, a namespace until all in it are, and a volume claim until its Pods are.
// So nothing waits for it.
func leavesAfterOthers(key atoll.ItemKey) bool {
	return IsCRD(key) || key.IsNamespace() || key.Group == "" && key.Kind == "PersistentVolumeClaim"
}

// OthersLeavingFirst returns how many other objects have to leave before the key's object, of the Bundles of its
// leaving claims. A claim without Last waits for none, and so does the object.
func (b *OwnershipRecords) OthersLeavingFirst(key atoll.ItemKey) (n int) {
	r := b.records[key]
	if r == nil {
		return 0
	}
	for uid, c := range r.Claims {
		if c.State != Leaving {
			continue
		}
		if !c.Last {
			return 0
		}
		n += len(b.leavingFirst[uid])
	}
	return n
}

// TakeUnblocked returns the keys of objects that waited for others to leave, and no longer do. Sorted.
func (b *OwnershipRecords) TakeUnblocked() []atoll.ItemKey {
	if len(b.unblocked) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.unblocked), CompareKeys)
	clear(b.unblocked)
	return keys
}
