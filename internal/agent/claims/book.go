package claims

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// Book holds the records of all objects and the Holdings of all Bundles.
type Book struct {
	records map[atoll.ItemKey]*Record
	bundles map[string]*bundle
	// claimed are the keys that each Bundle has claims on.
	claimed map[string]map[atoll.ItemKey]bool
	// inside are the keys of each namespace.
	inside map[string]map[atoll.ItemKey]bool
	parked map[atoll.ItemKey]bool
	// buried are Bundles that were removed here, and when (Unix seconds).
	buried map[string]int64
	dirty  map[string]bool
	// stirred are the Bundles that changes of claims since Stirred concern.
	stirred map[string]bool
}

type bundle struct {
	holding    Holding
	content    map[atoll.ItemKey]*atoll.Rendered // last good, by key
	listed     map[atoll.ItemKey]*atoll.Rendered // the manifest's items
	tombstones map[atoll.ItemKey][]atoll.Tombstone
}

// NewBook gives an empty Book.
func NewBook() *Book {
	return &Book{
		records: map[atoll.ItemKey]*Record{},
		bundles: map[string]*bundle{},
		claimed: map[string]map[atoll.ItemKey]bool{},
		inside:  map[string]map[atoll.ItemKey]bool{},
		parked:  map[atoll.ItemKey]bool{},
		buried:  map[string]int64{},
		dirty:   map[string]bool{},
		stirred: map[string]bool{},
	}
}

// Restore puts a stored record into the Book. Records come before Holdings.
func (b *Book) Restore(r Record) {
	c := r.clone()
	b.put(&c)
	for uid, claim := range c.Claims {
		b.index(c.Key, uid, &claim)
	}
}

// Bury remembers a Bundle that was removed at the given Unix second, so that a
// late tombstone which moved an item there does not wait for it.
func (b *Book) Bury(uid string, at int64) { b.buried[uid] = at }

// Record of the key; false when nothing is known of it. The value is a copy.
func (b *Book) Record(key atoll.ItemKey) (Record, bool) {
	if r := b.records[key]; r != nil {
		return r.clone(), true
	}
	return Record{}, false
}

// UID of the key's object, empty while it is not known; false when nothing
// is known of it.
func (b *Book) UID(key atoll.ItemKey) (uid string, ok bool) {
	if r := b.records[key]; r != nil {
		return r.UID, true
	}
	return "", false
}

// Namespaces in which there are records, in no order.
func (b *Book) Namespaces() []string { return slices.Collect(maps.Keys(b.inside)) }

// Wants tells whether some Bundle claims the key's object, made from that template.
func (b *Book) Wants(key atoll.ItemKey, template string) bool {
	if r := b.records[key]; r != nil {
		for _, c := range r.Claims {
			if c.live() && c.Template == template {
				return true
			}
		}
	}
	return false
}

// Keys lists the keys of all records, in no order.
func (b *Book) Keys() []atoll.ItemKey { return slices.Collect(maps.Keys(b.records)) }

// Inside lists the keys of the records of a namespace, in no order.
func (b *Book) Inside(namespace string) []atoll.ItemKey {
	return slices.Collect(maps.Keys(b.inside[namespace]))
}

// ClaimedBy lists the keys that the Bundle has claims on, in no order.
func (b *Book) ClaimedBy(uid string) []atoll.ItemKey {
	return slices.Collect(maps.Keys(b.claimed[uid]))
}

// Bundles lists the UIDs of the Bundles that are held, sorted.
func (b *Book) Bundles() []string { return slices.Sorted(maps.Keys(b.bundles)) }

// Holding of the Bundle; nil when it is not held. Read-only.
func (b *Book) Holding(uid string) *Holding {
	if h := b.bundles[uid]; h != nil {
		return &h.holding
	}
	return nil
}

// Object finds the part of that hash in any manifest that is held, and in what is kept of
// older ones.
func (b *Book) Object(hash string) (json.RawMessage, bool) {
	for _, h := range b.bundles {
		for _, m := range []*atoll.Manifest{&h.holding.Manifest, {Items: h.holding.Kept}} {
			if part, ok := m.Part(hash); ok {
				return part, true
			}
		}
	}
	return nil, false
}

// Content is what the Bundle wants to apply for the key; nil when it has no good
// content of it. Read-only.
func (b *Book) Content(uid string, key atoll.ItemKey) *atoll.Rendered {
	if h := b.bundles[uid]; h != nil {
		return h.content[key]
	}
	return nil
}

// Contents calls f for every item that some Bundle holds content of.
func (b *Book) Contents(f func(uid string, item *atoll.Rendered)) {
	for uid, h := range b.bundles {
		for _, it := range h.content {
			f(uid, it)
		}
	}
}

// Meta is what the manifests say about a namespace that the agent may have to
// make; the lowest Bundle UID that speaks of it wins.
func (b *Book) Meta(namespace string) atoll.NamespaceMeta {
	for _, uid := range b.Bundles() {
		if m, ok := b.bundles[uid].holding.Manifest.Namespaces[namespace]; ok {
			return m
		}
	}
	return atoll.NamespaceMeta{}
}

// Dirty lists the shards whose records changed since Clean.
func (b *Book) Dirty() []string { return slices.Sorted(maps.Keys(b.dirty)) }

// Clean marks a shard as stored.
func (b *Book) Clean(shard string) { delete(b.dirty, shard) }

// Stirred lists the Bundles that a claim which changed since it was last called
// concerns, whoever changed it: what is reported of each may have changed.
func (b *Book) Stirred() []string {
	out := slices.Sorted(maps.Keys(b.stirred))
	clear(b.stirred)
	return out
}

// Concerned lists the Bundles of whose status the key's object is a part: those
// that claim it, and those that have a tombstone of it.
func (b *Book) Concerned(key atoll.ItemKey) (out []string) {
	r := b.records[key]
	for uid, nb := range b.bundles {
		claimed := false
		if r != nil {
			_, claimed = r.Claims[uid]
		}
		if claimed || len(nb.tombstones[key]) > 0 {
			out = append(out, uid)
		}
	}
	return out
}

// Soil marks a shard as not stored.
func (b *Book) Soil(shard string) { b.dirty[shard] = true }

// Shard that a key's record is stored in: one per namespace.
func Shard(key atoll.ItemKey) string { return atoll.Hash([]byte(key.Namespace))[:8] }

// Shards lists the records of a shard, sorted by key; none means that the shard
// is empty.
func (b *Book) Shards(shard string) []Record {
	var out []Record
	for key, r := range b.records {
		if Shard(key) == shard {
			out = append(out, r.clone())
		}
	}
	slices.SortFunc(out, func(x, y Record) int { return cmp.Compare(x.Key.String(), y.Key.String()) })
	return out
}

func (b *Book) put(r *Record) {
	if r.Claims == nil {
		r.Claims = map[string]Claim{}
	}
	b.records[r.Key] = r
	if r.Key.Namespace != "" {
		add(b.inside, r.Key.Namespace, r.Key)
	}
}

// ensure gives the record of the key, made if missing.
func (b *Book) ensure(key atoll.ItemKey) *Record {
	r := b.records[key]
	if r == nil {
		r = &Record{Key: key}
		b.put(r)
		b.soil(key)
	}
	return r
}

// forget drops a record that has no claims.
func (b *Book) forget(key atoll.ItemKey) {
	delete(b.records, key)
	delete(b.parked, key)
	remove(b.inside, key.Namespace, key)
	b.soil(key)
}

func (b *Book) soil(key atoll.ItemKey) { b.dirty[Shard(key)] = true }

// setClaim writes (or, with nil, drops) a claim and its indexes.
func (b *Book) setClaim(r *Record, uid string, c *Claim) {
	if c == nil {
		delete(r.Claims, uid)
	} else {
		r.Claims[uid] = *c
	}
	b.index(r.Key, uid, c)
	b.soil(r.Key)
	b.stirred[uid] = true
	for _, other := range b.Concerned(r.Key) {
		b.stirred[other] = true
	}
}

func (b *Book) index(key atoll.ItemKey, uid string, c *Claim) {
	if c == nil {
		remove(b.claimed, uid, key)
		return
	}
	add(b.claimed, uid, key)
	if c.State == Parked {
		b.parked[key] = true
	}
}

func add(m map[string]map[atoll.ItemKey]bool, at string, key atoll.ItemKey) {
	if m[at] == nil {
		m[at] = map[atoll.ItemKey]bool{}
	}
	m[at][key] = true
}

func remove(m map[string]map[atoll.ItemKey]bool, at string, key atoll.ItemKey) {
	delete(m[at], key)
	if len(m[at]) == 0 {
		delete(m, at)
	}
}
