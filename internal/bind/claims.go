package bind

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
)

// claims is what the Binder remembers: who places which template, which Bundle's
// content has which item, and which Bundles wait for which dependencies. All
// methods may be called concurrently.
type claims struct {
	mu      sync.RWMutex
	placed  map[atoll.ItemKey]claim.BundleID
	bundles map[claim.BundleID]*bundleClaims
	spaces  map[string]map[claim.BundleID]bool // Bundles by namespace
	sources map[sourceName]map[claim.BundleID]bool
	held    keyIndex // by items of contents
	wanted  keyIndex // by dependencies
	byUID   map[string]claim.BundleID
	deleted map[atoll.ItemKey]map[string]bool
	awaits  map[claim.BundleID]map[claim.BundleID]bool // which others are to take items over

	selections *selections
}

type keyIndex map[atoll.ItemKey]map[claim.BundleID]bool

func (x keyIndex) add(key atoll.ItemKey, id claim.BundleID) {
	if x[key] == nil {
		x[key] = map[claim.BundleID]bool{}
	}
	x[key][id] = true
}

func (x keyIndex) remove(key atoll.ItemKey, id claim.BundleID) {
	if delete(x[key], id); len(x[key]) == 0 {
		delete(x, key)
	}
}

func (x keyIndex) of(key atoll.ItemKey) []claim.BundleID {
	return slices.SortedFunc(maps.Keys(x[key]), claim.BundleID.Compare)
}

// bundleClaims is one Bundle, whether it exists yet or not.
type bundleClaims struct {
	origin origin
	placed map[atoll.ItemKey]bool
	// What its latest Revision has.
	uid     string
	items   map[atoll.ItemKey]held
	wants   []atoll.ItemKey
	blocked bool
}

// held is an item of a Bundle's content.
type held struct {
	own bool // chosen; else a dependency
	// since is the number of the Revision by which it came, for those that this process
	// has seen come; 0: it was there before.
	since int64
}

// sourceName is who wants Bundles, in any namespace.
type sourceName struct{ kind, name string }

// origin is who wants a Bundle.
type origin struct {
	source v1alpha1.BundleSource
	group  string
	object atoll.ItemKey // of the annotation, for SourceAnnotation
}

func newClaims() *claims {
	return &claims{
		placed: map[atoll.ItemKey]claim.BundleID{}, bundles: map[claim.BundleID]*bundleClaims{},
		held: keyIndex{}, wanted: keyIndex{}, byUID: map[string]claim.BundleID{}, deleted: map[atoll.ItemKey]map[string]bool{},
		awaits: map[claim.BundleID]map[claim.BundleID]bool{},
		spaces: map[string]map[claim.BundleID]bool{}, sources: map[sourceName]map[claim.BundleID]bool{},
		selections: newSelections(),
	}
}

func (c *claims) bundle(id claim.BundleID) *bundleClaims {
	if c.bundles[id] == nil {
		c.bundles[id] = &bundleClaims{placed: map[atoll.ItemKey]bool{}}
		include(c.spaces, id.Namespace, id)
	}
	return c.bundles[id]
}

// from notes who wants the Bundle.
func (c *claims) from(id claim.BundleID, o origin) {
	b := c.bundle(id)
	if was, is := nameOf(b.origin), nameOf(o); was != is {
		exclude(c.sources, was, id)
		include(c.sources, is, id)
	}
	b.origin = o
}

// drop a Bundle.
func (c *claims) drop(id claim.BundleID) {
	exclude(c.sources, nameOf(c.bundles[id].origin), id)
	exclude(c.spaces, id.Namespace, id)
	delete(c.bundles, id)
}

func nameOf(o origin) sourceName { return sourceName{o.source.Kind, o.source.Name} }

func include[K, L comparable](x map[K]map[L]bool, key K, id L) {
	if x[key] == nil {
		x[key] = map[L]bool{}
	}
	x[key][id] = true
}

func exclude[K, L comparable](x map[K]map[L]bool, key K, id L) {
	if delete(x[key], id); len(x[key]) == 0 {
		delete(x, key)
	}
}

// holder gives the Bundle that places the key, or the one whose content has it as
// an item of its own; none before it is in any content. Policies and templates come by
// watches of their own: who applied a policy and then an object means that policy, also
// where the object is heard of first.
func (c *claims) holder(key atoll.ItemKey) (claim.BundleID, *v1alpha1.BundleSource) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, placed := c.placed[key]
	by := c.held.of(key)
	i := slices.IndexFunc(by, func(h claim.BundleID) bool { return c.bundles[h].items[key].own })
	if i < 0 {
		return claim.BundleID{}, nil
	}
	if !placed {
		id = by[i]
	}
	source := c.bundles[id].origin.source
	return id, &source
}

// arrival is in which Bundle an item is as its own, and by which Revision it came there.
type arrival struct {
	uid   string
	since int64
}

// arrivals of the key, in Bundles that hold it as their own.
func (c *claims) arrivals(key atoll.ItemKey) (out []arrival) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id := range c.held[key] {
		if b := c.bundles[id]; b.items[key].own {
			out = append(out, arrival{b.uid, b.items[key].since})
		}
	}
	return out
}

// adopt notes who wants a Bundle that exists, unless that is known already.
func (c *claims) adopt(id claim.BundleID, source v1alpha1.BundleSource, group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bundle(id)
	if b.origin.source.Kind != "" {
		return
	}
	c.from(id, origin{source: source, group: group})
	if source.Kind != v1alpha1.SourceAnnotation {
		return
	}
	for key, h := range b.items {
		if h.own && key.Name == source.Name {
			b.origin.object = key
		}
	}
}

// place notes that the Bundle places the key.
func (c *claims) place(key atoll.ItemKey, id claim.BundleID, o origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.placed[key]; ok && old != id {
		delete(c.bundles[old].placed, key)
	}
	c.from(id, o)
	c.bundle(id).placed[key] = true
	c.placed[key] = id
}

// unplace notes that nobody places the key.
func (c *claims) unplace(key atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.placed[key]; ok {
		delete(c.bundles[old].placed, key)
		delete(c.placed, key)
	}
}

// touched lists the Bundles that a change of the key is about.
func (c *claims) touched(key atoll.ItemKey) []claim.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := maps.Clone(c.held[key])
	if out == nil {
		out = map[claim.BundleID]bool{}
	}
	maps.Copy(out, c.wanted[key])
	if id, ok := c.placed[key]; ok {
		out[id] = true
	}
	return slices.SortedFunc(maps.Keys(out), claim.BundleID.Compare)
}

// has notes what a Bundle's latest Revision has, and gives the keys that are new. number
// is that of the Revision, if it is one that was seen to be cut; else 0.
func (c *claims) has(id claim.BundleID, uid string, number int64, content *atoll.Content) (added []atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bundle(id)
	items := make(map[atoll.ItemKey]held, len(content.Items))
	for i := range content.Items {
		item := &content.Items[i]
		was, had := b.items[item.Key]
		if !had || b.uid != uid {
			was.since = number
		}
		items[item.Key] = held{own: !item.Dependency, since: was.since}
		if !had {
			added = append(added, item.Key)
		}
		c.held.add(item.Key, id)
	}
	for key := range b.items {
		if _, has := items[key]; !has {
			c.held.remove(key, id)
		}
	}
	delete(c.byUID, b.uid)
	c.byUID[uid] = id
	b.uid, b.items = uid, items
	return added
}

// withUID finds a Bundle.
func (c *claims) withUID(uid string) (claim.BundleID, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, ok := c.byUID[uid]
	return id, ok
}

// empty tells whether the Bundle's content has no items.
func (c *claims) empty(id claim.BundleID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	return b == nil || len(b.items) == 0
}

// wants notes what a Bundle depends on: keys, and what it has asked selections for.
func (c *claims) wants(id claim.BundleID, keys []atoll.ItemKey, by []atoll.Selection) {
	c.selections.uses(id, by)
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bundle(id)
	for _, key := range b.wants {
		c.wanted.remove(key, id)
	}
	for _, key := range keys {
		c.wanted.add(key, id)
	}
	b.wants = keys
}

// forget a Bundle that is gone; what it placed stays placed there.
func (c *claims) forget(id claim.BundleID, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bundles[id]
	if b == nil || b.uid != uid {
		return
	}
	for key := range b.items {
		c.held.remove(key, id)
	}
	for _, key := range b.wants {
		c.wanted.remove(key, id)
	}
	c.selections.uses(id, nil)
	delete(c.byUID, uid)
	b.uid, b.items, b.wants = "", nil, nil
	if len(b.placed) == 0 {
		c.drop(id)
	}
}

// known gives a Bundle's origin and what it places.
func (c *claims) known(id claim.BundleID) (origin, []atoll.ItemKey) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	if b == nil {
		return origin{}, nil
	}
	return b.origin, slices.SortedFunc(maps.Keys(b.placed), atoll.ItemKey.Compare)
}

// ofSource lists the Bundles of a source in a namespace; all namespaces for "".
func (c *claims) ofSource(kind, ns, name string) []claim.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []claim.BundleID
	for id := range c.sources[sourceName{kind, name}] {
		if ns == "" || id.Namespace == ns {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, claim.BundleID.Compare)
	return out
}

// having lists the Bundles in a namespace (all for "") whose content has any of the
// set.
func (c *claims) having(ns string, set kindSet) []claim.BundleID {
	if ns != "" && !set.open() {
		return c.holding(ns, set.names)
	}
	return c.where(ns, func(id claim.BundleID, b *bundleClaims) bool {
		for key := range b.items {
			if set.has(key) {
				return true
			}
		}
		return false
	})
}

// about lists the Bundles that have, or are to have, an object of one of the kinds.
func (c *claims) about(kinds func(schema.GroupKind) bool) []claim.BundleID {
	asked := map[schema.GroupKind]bool{}
	is := func(key atoll.ItemKey) bool {
		gk := claim.GroupKind(key)
		means, known := asked[gk]
		if !known {
			means = kinds(gk)
			asked[gk] = means
		}
		return means
	}
	return c.where("", func(_ claim.BundleID, b *bundleClaims) bool {
		for key := range b.items {
			if is(key) {
				return true
			}
		}
		for key := range b.placed {
			if is(key) {
				return true
			}
		}
		return false
	})
}

// holding lists the Bundles whose content has any of the names in the namespace, or
// among what has none.
func (c *claims) holding(ns string, names map[atoll.ItemKey]bool) []claim.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found := map[claim.BundleID]bool{}
	for key := range names {
		for _, in := range []string{ns, ""} {
			key.Namespace = in
			for id := range c.held[key] {
				if id.Namespace == ns {
					found[id] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), claim.BundleID.Compare)
}

// chosenBy lists the keys that Bundles of a source place or hold as their own.
func (c *claims) chosenBy(kind, ns, name string) []atoll.ItemKey {
	keys := map[atoll.ItemKey]bool{}
	for _, id := range c.ofSource(kind, ns, name) {
		c.mu.RLock()
		if b := c.bundles[id]; b != nil {
			maps.Copy(keys, b.placed)
			for key, h := range b.items {
				if h.own {
					keys[key] = true
				}
			}
		}
		c.mu.RUnlock()
	}
	return slices.SortedFunc(maps.Keys(keys), atoll.ItemKey.Compare)
}

// block notes whether a Bundle waits for kinds to sync.
func (c *claims) block(id claim.BundleID, blocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bundle(id).blocked = blocked
}

func (c *claims) blocked() []claim.BundleID {
	return c.where("", func(_ claim.BundleID, b *bundleClaims) bool { return b.blocked })
}

func (c *claims) inNamespace(ns string) []claim.BundleID {
	return c.where(ns, func(claim.BundleID, *bundleClaims) bool { return true })
}

// where lists the Bundles in a namespace (all for "") of which that is true.
func (c *claims) where(ns string, is func(claim.BundleID, *bundleClaims) bool) []claim.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []claim.BundleID
	if ns != "" {
		for id := range c.spaces[ns] {
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
	slices.SortFunc(out, claim.BundleID.Compare)
	return out
}

// bury notes that a user was seen to delete a template.
func (c *claims) bury(key atoll.ItemKey, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted[key] == nil {
		c.deleted[key] = map[string]bool{}
	}
	c.deleted[key][uid] = true
}

// wasDeleted tells whether bury was called for the template.
func (c *claims) wasDeleted(key atoll.ItemKey, uid string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.deleted[key][uid]
}

// settle forgets deletions of a key that no Bundle's content has any more.
func (c *claims) settle(key atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held[key]) == 0 {
		delete(c.deleted, key)
	}
}

// needing lists the Bundles that want the key as a dependency.
func (c *claims) needing(key atoll.ItemKey) []claim.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.wanted.of(key)
}

// claim is World.Claim for a Bundle, and names the one that places the key.
func (c *claims) claim(id claim.BundleID, key atoll.ItemKey) (claim.Claim, bool, claim.BundleID) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	placed, ok := c.placed[key]
	switch {
	case !ok:
		return claim.Unclaimed, false, claim.BundleID{}
	case placed == id:
		return claim.Mine, true, id
	}
	_, held := c.bundles[placed].items[key]
	return claim.Others, held, placed
}

// holders is World.Holders for a Bundle.
func (c *claims) holders(id claim.BundleID, key atoll.ItemKey) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []string
	for _, h := range c.held.of(key) {
		if h != id {
			out = append(out, c.bundles[h].uid)
		}
	}
	return out
}
