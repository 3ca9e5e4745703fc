package binder

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// childIndex holds, by the UIDs of parents, the objects that controllers made of them. The parent need
// not exist.
type childIndex struct {
	parentUIDs map[atoll.ItemKey]string
	children   map[string]map[atoll.ItemKey]bool
}

func newChildIndex() childIndex {
	return childIndex{parentUIDs: map[atoll.ItemKey]string{}, children: map[string]map[atoll.ItemKey]bool{}}
}

func (x childIndex) clone() childIndex {
	out := childIndex{parentUIDs: maps.Clone(x.parentUIDs), children: map[string]map[atoll.ItemKey]bool{}}
	cloneSets(out.children, x.children)
	return out
}

// setParent records the parent of an object; "": it has none.
func (c *ownershipIndex) setParent(key atoll.ItemKey, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, had := c.family.parentUIDs[key]
	if had && was != uid {
		removeFromSet(c.family.children, was, key)
		delete(c.family.parentUIDs, key)
	}
	if uid != "" {
		c.family.parentUIDs[key] = uid
		addToSet(c.family.children, uid, key)
	}
}

// childrenOf lists the objects that controllers made of the object with the UID.
func (c *ownershipIndex) childrenOf(uid string) []atoll.ItemKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(c.family.children[uid]), atoll.ItemKey.Compare)
}

// allChildren lists the objects that controllers made.
func (c *ownershipIndex) allChildren() []atoll.ItemKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(c.family.parentUIDs), atoll.ItemKey.Compare)
}

// placingBundle returns the Bundle that places the key; zero: none does.
func (c *ownershipIndex) placingBundle(key atoll.ItemKey) policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.placedBy[key]
}

// keepWithHolder records that the Bundle that holds the key as its own item places it, unless one
// places it already.
func (c *ownershipIndex) keepWithHolder(key atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, placed := c.placedBy[key]; placed {
		return
	}
	for _, id := range c.holders.bundlesOf(key) {
		if c.bundles[id].items[key].isOwn {
			c.bundles[id].placedKeys[key] = true
			c.placedBy[key] = id
			return
		}
	}
}

// ownItems lists the items of a Bundle's content that are not dependencies.
func (c *ownershipIndex) ownItems(id policymatch.BundleID) (out []atoll.ItemKey) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if b := c.bundles[id]; b != nil {
		for key, h := range b.items {
			if h.isOwn {
				out = append(out, key)
			}
		}
	}
	slices.SortFunc(out, atoll.ItemKey.Compare)
	return out
}
