package binder

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
)

// ownershipIndex records which Bundle places each template, which contents hold each item, and
// which Bundles wait for dependencies. All methods may be called concurrently.
type ownershipIndex struct {
	mu              sync.RWMutex
	placedBy        map[atoll.ItemKey]policymatch.BundleID
	bundles         map[policymatch.BundleID]*bundleEntry
	byNamespace     map[string]map[policymatch.BundleID]bool // Bundles by namespace
	bySource        map[sourceName]map[policymatch.BundleID]bool
	holders         keyIndex // by items of contents
	dependents      keyIndex // by dependencies
	releasing       keyIndex // by tombstones with finalizers that their templates still have
	byUID           map[string]policymatch.BundleID
	deletedUIDs     map[atoll.ItemKey]map[string]bool
	handoverTargets map[policymatch.BundleID]map[policymatch.BundleID]bool // Bundles that are yet to take items over

	family     childIndex
	selections *labelSelections
}

type keyIndex map[atoll.ItemKey]map[policymatch.BundleID]bool

func (x keyIndex) bundlesOf(key atoll.ItemKey) []policymatch.BundleID {
	return slices.SortedFunc(maps.Keys(x[key]), policymatch.BundleID.Compare)
}

// bundleEntry is one Bundle, that may not exist yet.
type bundleEntry struct {
	origin     bundleOrigin
	placedKeys map[atoll.ItemKey]bool
	// Content of its latest Revision.
	uid          string
	items        map[atoll.ItemKey]heldItem
	dependencies []atoll.ItemKey
	releasing    []atoll.ItemKey        // tombstones with finalizers that their templates still have
	undecided    map[atoll.ItemKey]bool // own items from before the start, until an event decides what places them
	waitsForSync bool
	// hasUnconfirmed: the removal of an item waits for a confirmation.
	hasUnconfirmed bool
}

// heldItem is an item of a Bundle's content.
type heldItem struct {
	isOwn bool // chosen by the source; else a dependency
	// sinceRevision is the number of the Revision that added the item; 0 when this process did
	// not see it come.
	sinceRevision int64
}

// sourceName names a source of Bundles, in any namespace.
type sourceName struct{ kind, name string }

// bundleOrigin is the source of a Bundle.
type bundleOrigin struct {
	source          v1alpha1.BundleSource
	group           string
	annotatedObject atoll.ItemKey // carries the annotation, for SourceAnnotation
}

func newOwnershipIndex() *ownershipIndex {
	return &ownershipIndex{
		placedBy: map[atoll.ItemKey]policymatch.BundleID{}, bundles: map[policymatch.BundleID]*bundleEntry{},
		holders: keyIndex{}, dependents: keyIndex{}, releasing: keyIndex{}, byUID: map[string]policymatch.BundleID{}, deletedUIDs: map[atoll.ItemKey]map[string]bool{},
		handoverTargets: map[policymatch.BundleID]map[policymatch.BundleID]bool{},
		byNamespace:     map[string]map[policymatch.BundleID]bool{}, bySource: map[sourceName]map[policymatch.BundleID]bool{},
		family: newChildIndex(), selections: newLabelSelections(),
	}
}

func (c *ownershipIndex) ensureEntry(id policymatch.BundleID) *bundleEntry {
	if c.bundles[id] == nil {
		c.bundles[id] = &bundleEntry{placedKeys: map[atoll.ItemKey]bool{}, undecided: map[atoll.ItemKey]bool{}}
		addToSet(c.byNamespace, id.Namespace, id)
	}
	return c.bundles[id]
}

// setOrigin records the source of a Bundle.
func (c *ownershipIndex) setOrigin(id policymatch.BundleID, o bundleOrigin) {
	b := c.ensureEntry(id)
	if was, is := sourceNameOf(b.origin), sourceNameOf(o); was != is {
		removeFromSet(c.bySource, was, id)
		addToSet(c.bySource, is, id)
	}
	b.origin = o
}

// removeEntry removes a Bundle from the index.
func (c *ownershipIndex) removeEntry(id policymatch.BundleID) {
	removeFromSet(c.bySource, sourceNameOf(c.bundles[id].origin), id)
	removeFromSet(c.byNamespace, id.Namespace, id)
	delete(c.bundles, id)
}

func sourceNameOf(o bundleOrigin) sourceName { return sourceName{o.source.Kind, o.source.Name} }

func addToSet[K, L comparable](x map[K]map[L]bool, key K, id L) {
	if x[key] == nil {
		x[key] = map[L]bool{}
	}
	x[key][id] = true
}

func removeFromSet[K, L comparable](x map[K]map[L]bool, key K, id L) {
	if delete(x[key], id); len(x[key]) == 0 {
		delete(x, key)
	}
}

// findHolder returns the Bundle that places the key, or whose content holds it as its own item.
// It returns none before a content holds the key: policies and templates come by separate
// watches, and a policy that was applied before an object must win in either order.
func (c *ownershipIndex) findHolder(key atoll.ItemKey) (policymatch.BundleID, *v1alpha1.BundleSource) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, placed := c.placedBy[key]
	by := c.holders.bundlesOf(key)
	i := slices.IndexFunc(by, func(h policymatch.BundleID) bool { return c.bundles[h].items[key].isOwn })
	if i < 0 {
		return policymatch.BundleID{}, nil
	}
	if !placed {
		id = by[i]
	}
	source := c.bundles[id].origin.source
	return id, &source
}

// itemArrival is a Bundle that holds an item as its own, and the Revision that added it.
type itemArrival struct {
	uid           string
	sinceRevision int64
}

// ownItemArrivals lists the Bundles that hold the key as their own item.
func (c *ownershipIndex) ownItemArrivals(key atoll.ItemKey) (out []itemArrival) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id := range c.holders[key] {
		if b := c.bundles[id]; b.items[key].isOwn {
			out = append(out, itemArrival{b.uid, b.items[key].sinceRevision})
		}
	}
	return out
}

// recordSourceIfAbsent records the source of a Bundle that exists, unless a source is recorded.
func (c *ownershipIndex) recordSourceIfAbsent(id policymatch.BundleID, source v1alpha1.BundleSource, group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.ensureEntry(id)
	if b.origin.source.Kind != "" {
		return
	}
	c.setOrigin(id, bundleOrigin{source: source, group: group})
	if source.Kind != v1alpha1.SourceAnnotation {
		return
	}
	for key, h := range b.items {
		if h.isOwn && policymatch.IsBundleOfAnnotation(id, key) {
			b.origin.annotatedObject = key
		}
	}
}

// assignTemplate records that the Bundle places the key.
func (c *ownershipIndex) assignTemplate(key atoll.ItemKey, id policymatch.BundleID, o bundleOrigin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.placedBy[key]; ok && old != id {
		delete(c.bundles[old].placedKeys, key)
	}
	c.setOrigin(id, o)
	c.ensureEntry(id).placedKeys[key] = true
	c.placedBy[key] = id
}

// unassignTemplate records that no Bundle places the key.
func (c *ownershipIndex) unassignTemplate(key atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.placedBy[key]; ok {
		delete(c.bundles[old].placedKeys, key)
		delete(c.placedBy, key)
	}
}

// bundlesTouchedBy lists the Bundles that a change of the key concerns.
func (c *ownershipIndex) bundlesTouchedBy(key atoll.ItemKey) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := maps.Clone(c.holders[key])
	if out == nil {
		out = map[policymatch.BundleID]bool{}
	}
	maps.Copy(out, c.dependents[key])
	maps.Copy(out, c.releasing[key])
	if id, ok := c.placedBy[key]; ok {
		out[id] = true
	}
	return slices.SortedFunc(maps.Keys(out), policymatch.BundleID.Compare)
}

// bundlesWithItem lists the Bundles whose contents hold the key.
func (c *ownershipIndex) bundlesWithItem(key atoll.ItemKey) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.holders.bundlesOf(key)
}

// setContent records the content of a Bundle's latest Revision, and returns the keys that are
// new. number is the Revision's when this process saw it come; it is 0 for a Revision from
// before the start, whose own items are undecided.
func (c *ownershipIndex) setContent(id policymatch.BundleID, uid string, number int64, content *atoll.Content) (added []atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.ensureEntry(id)
	items := make(map[atoll.ItemKey]heldItem, len(content.Items))
	b.hasUnconfirmed = false
	for i := range content.Items {
		item := &content.Items[i]
		was, had := b.items[item.Key]
		if !had || b.uid != uid {
			was.sinceRevision = number
		}
		items[item.Key] = heldItem{isOwn: !item.Dependency, sinceRevision: was.sinceRevision}
		b.hasUnconfirmed = b.hasUnconfirmed || item.State == atoll.ItemUnconfirmed
		if number == 0 && !item.Dependency {
			b.undecided[item.Key] = true
		}
		if !had {
			added = append(added, item.Key)
		}
		addToSet(c.holders, item.Key, id)
	}
	if content.NamespaceAlone {
		key := id.OwnNamespace()
		items[key] = heldItem{isOwn: true, sinceRevision: number}
		addToSet(c.holders, key, id)
	}
	for key := range b.items {
		if _, has := items[key]; !has {
			removeFromSet(c.holders, key, id)
			delete(b.undecided, key)
		}
	}
	delete(c.byUID, b.uid)
	c.byUID[uid] = id
	b.uid, b.items = uid, items
	c.setTombstonesWithFinalizers(id, content.Tombstones)
	return added
}

// setTombstonesWithFinalizers records the tombstones of a Bundle whose templates still have finalizers that were sent.
func (c *ownershipIndex) setTombstonesWithFinalizers(id policymatch.BundleID, tombstones []atoll.Tombstone) {
	b := c.bundles[id]
	for _, key := range b.releasing {
		removeFromSet(c.releasing, key, id)
	}
	b.releasing = nil
	for _, t := range tombstones {
		if len(t.Finalizers) > 0 {
			addToSet(c.releasing, t.Key, id)
			b.releasing = append(b.releasing, t.Key)
		}
	}
}

// findByUID finds a Bundle by its UID.
func (c *ownershipIndex) findByUID(uid string) (policymatch.BundleID, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, ok := c.byUID[uid]
	return id, ok
}

// hasNoItems reports whether the Bundle's content has no items.
func (c *ownershipIndex) hasNoItems(id policymatch.BundleID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	return b == nil || len(b.items) == 0
}

// holdsOnlyNamespace reports whether the Bundle's content is its namespace without an object.
func (c *ownershipIndex) holdsOnlyNamespace(id policymatch.BundleID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	if b == nil || len(b.items) != 1 {
		return false
	}
	_, holds := b.items[id.OwnNamespace()]
	return holds
}

// setDependencies records the dependencies of a Bundle, by key and by label selection.
func (c *ownershipIndex) setDependencies(id policymatch.BundleID, keys []atoll.ItemKey, by []atoll.Selection) {
	c.selections.setBundleSelections(id, by)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.ensureEntry(id)
	for _, key := range b.dependencies {
		removeFromSet(c.dependents, key, id)
	}
	for _, key := range keys {
		addToSet(c.dependents, key, id)
	}
	b.dependencies = keys
}

// dropBundleContent drops the content of a deleted Bundle; its placed keys stay.
func (c *ownershipIndex) dropBundleContent(id policymatch.BundleID, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bundles[id]
	if b == nil || b.uid != uid {
		return
	}
	for key := range b.items {
		removeFromSet(c.holders, key, id)
	}
	for _, key := range b.dependencies {
		removeFromSet(c.dependents, key, id)
	}
	c.setTombstonesWithFinalizers(id, nil)
	c.selections.setBundleSelections(id, nil)
	delete(c.byUID, uid)
	clear(b.undecided)
	b.uid, b.items, b.dependencies, b.hasUnconfirmed = "", nil, nil, false
	if len(b.placedKeys) == 0 {
		c.removeEntry(id)
	}
}

// originAndPlacedKeys returns a Bundle's source and the keys that it places.
func (c *ownershipIndex) originAndPlacedKeys(id policymatch.BundleID) (bundleOrigin, []atoll.ItemKey) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	if b == nil {
		return bundleOrigin{}, nil
	}
	return b.origin, slices.SortedFunc(maps.Keys(b.placedKeys), atoll.ItemKey.Compare)
}

// markDecided records that what places a template is decided.
func (c *ownershipIndex) markDecided(key atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.holders[key] {
		delete(c.bundles[id].undecided, key)
	}
}

// undecidedItems lists the undecided items of a Bundle that no Bundle places.
func (c *ownershipIndex) undecidedItems(id policymatch.BundleID) (out []atoll.ItemKey) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	if b == nil {
		return nil
	}
	for key := range b.undecided {
		if _, placed := c.placedBy[key]; b.items[key].isOwn && !placed {
			out = append(out, key)
		}
	}
	return out
}

// isSingleObjectBundle reports whether the Bundle is one object, with what that needs.
func (c *ownershipIndex) isSingleObjectBundle(id policymatch.BundleID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	return b != nil && policymatch.IsSingleObjectBundle(b.origin.source, b.origin.group)
}

// bundlesOfSource lists the Bundles of a source in a namespace; "": in all namespaces.
func (c *ownershipIndex) bundlesOfSource(kind, ns, name string) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []policymatch.BundleID
	for id := range c.bySource[sourceName{kind, name}] {
		if ns == "" || id.Namespace == ns {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, policymatch.BundleID.Compare)
	return out
}

// bundlesContaining lists the Bundles in a namespace ("": in all) whose content has an object of
// the set.
func (c *ownershipIndex) bundlesContaining(ns string, set objectSet) []policymatch.BundleID {
	if ns != "" && !set.hasWholeKinds() {
		return c.bundlesHolding(ns, set.names)
	}
	return c.bundlesWhere(ns, func(id policymatch.BundleID, b *bundleEntry) bool {
		for key := range b.items {
			if set.has(key) {
				return true
			}
		}
		return false
	})
}

// bundlesWithKinds lists the Bundles that hold or place an object of one of the kinds.
func (c *ownershipIndex) bundlesWithKinds(kinds func(schema.GroupKind) bool) []policymatch.BundleID {
	asked := map[schema.GroupKind]bool{}
	is := func(key atoll.ItemKey) bool {
		gk := policymatch.GroupKindOf(key)
		means, known := asked[gk]
		if !known {
			means = kinds(gk)
			asked[gk] = means
		}
		return means
	}
	return c.bundlesWhere("", func(_ policymatch.BundleID, b *bundleEntry) bool {
		for key := range b.items {
			if is(key) {
				return true
			}
		}
		for key := range b.placedKeys {
			if is(key) {
				return true
			}
		}
		return false
	})
}

// bundlesWithAny lists the Bundles of a namespace whose content has an item that matches.
func (c *ownershipIndex) bundlesWithAny(ns string, matches func(atoll.ItemKey) bool) []policymatch.BundleID {
	return c.bundlesWhere(ns, func(_ policymatch.BundleID, b *bundleEntry) bool {
		for key := range b.items {
			if matches(key) {
				return true
			}
		}
		return false
	})
}

// bundlesHolding lists the Bundles of a namespace whose content has one of the names, in that
// namespace or cluster-scoped.
func (c *ownershipIndex) bundlesHolding(ns string, names map[atoll.ItemKey]bool) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found := map[policymatch.BundleID]bool{}
	for key := range names {
		for _, in := range []string{ns, ""} {
			key.Namespace = in
			for id := range c.holders[key] {
				if id.Namespace == ns {
					found[id] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), policymatch.BundleID.Compare)
}

// keysChosenBySource lists the keys that Bundles of a source place or hold as their own.
func (c *ownershipIndex) keysChosenBySource(kind, ns, name string) []atoll.ItemKey {
	keys := map[atoll.ItemKey]bool{}
	for _, id := range c.bundlesOfSource(kind, ns, name) {
		c.mu.RLock()
		if b := c.bundles[id]; b != nil {
			maps.Copy(keys, b.placedKeys)
			for key, h := range b.items {
				if h.isOwn {
					keys[key] = true
				}
			}
		}
		c.mu.RUnlock()
	}
	return slices.SortedFunc(maps.Keys(keys), atoll.ItemKey.Compare)
}

// setWaitsForSync records whether a Bundle waits for kinds to sync.
func (c *ownershipIndex) setWaitsForSync(id policymatch.BundleID, blocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ensureEntry(id).waitsForSync = blocked
}

func (c *ownershipIndex) bundlesWaitingForSync() []policymatch.BundleID {
	return c.bundlesWhere("", func(_ policymatch.BundleID, b *bundleEntry) bool { return b.waitsForSync })
}

func (c *ownershipIndex) bundlesInNamespace(ns string) []policymatch.BundleID {
	return c.bundlesWhere(ns, func(policymatch.BundleID, *bundleEntry) bool { return true })
}

// bundlesWhere lists the Bundles in a namespace ("": in all) for which is returns true.
func (c *ownershipIndex) bundlesWhere(ns string, is func(policymatch.BundleID, *bundleEntry) bool) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []policymatch.BundleID
	if ns != "" {
		for id := range c.byNamespace[ns] {
			if is(id, c.bundles[id]) {
				out = append(out, id)
			}
		}
	} else {
		for id, b := range c.bundles {
			if is(id, b) {
				out = append(out, id)
			}
		}
	}
	slices.SortFunc(out, policymatch.BundleID.Compare)
	return out
}

// recordDeletion records that a user deleted a template.
func (c *ownershipIndex) recordDeletion(key atoll.ItemKey, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	addToSet(c.deletedUIDs, key, uid)
}

// wasDeleted reports whether recordDeletion was called for the template.
func (c *ownershipIndex) wasDeleted(key atoll.ItemKey, uid string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.deletedUIDs[key][uid]
}

// dropDeletionsUnlessHeld drops the deletions of a key that no content holds or releases any more.
func (c *ownershipIndex) dropDeletionsUnlessHeld(key atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.holders[key]) == 0 && len(c.releasing[key]) == 0 {
		delete(c.deletedUIDs, key)
	}
}

// bundlesDependingOn lists the Bundles that have the key as a dependency.
func (c *ownershipIndex) bundlesDependingOn(key atoll.ItemKey) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.dependents.bundlesOf(key)
}

// placedByOf is World.PlacedBy for a Bundle. It also returns the Bundle that places the key.
func (c *ownershipIndex) placedByOf(id policymatch.BundleID, key atoll.ItemKey) (bundlecontent.PlacedBy, bool, policymatch.BundleID) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	placed, ok := c.placedBy[key]
	switch {
	case !ok:
		return bundlecontent.PlacedByNone, false, policymatch.BundleID{}
	case placed == id:
		return bundlecontent.PlacedByThis, true, id
	}
	_, held := c.bundles[placed].items[key]
	return bundlecontent.PlacedByOther, held, placed
}

// otherHolders is World.OtherHolderUIDs for a Bundle.
func (c *ownershipIndex) otherHolders(id policymatch.BundleID, key atoll.ItemKey) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []string
	for _, h := range c.holders.bundlesOf(key) {
		if h != id {
			out = append(out, c.bundles[h].uid)
		}
	}
	return out
}
