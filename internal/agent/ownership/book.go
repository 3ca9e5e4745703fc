package ownership

import (
	"encoding/json"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// OwnershipRecords holds the records of all objects and the Holdings of all Bundles.
type OwnershipRecords struct {
	records map[atoll.ItemKey]*Record
	bundles map[string]*indexedHolding
	// claimed are the keys that each Bundle has claims on.
	claimed map[string]map[atoll.ItemKey]bool
	// inside are the keys of each namespace, shards the records of each shard.
	inside map[string]map[atoll.ItemKey]bool
	shards map[string]map[*Record]bool
	parked map[atoll.ItemKey]bool
	// sent are the Bundles whose manifests have each namespace, tombstoned those whose manifests have a tombstone of
	// each key.
	sent       map[string]map[string]bool
	tombstoned map[atoll.ItemKey]map[string]bool
	// buried are Bundles that were removed here, and when (Unix seconds).
	buried map[string]int64
	dirty  map[string]bool
	// stirred are the Bundles that changes of claims since Stirred concern.
	stirred map[string]bool
	// leaving are the leaving claims of each Bundle, in their turns.
	leaving map[string]*leavingClaims
	// unblocked are keys of objects that waited for others to leave, and may leave now.
	unblocked map[atoll.ItemKey]bool
}

type indexedHolding struct {
	holding    BundleHolding
	content    map[atoll.ItemKey]*atoll.RenderedItem // last good, by key
	listed     map[atoll.ItemKey]*atoll.RenderedItem // the manifest's items
	tombstones map[atoll.ItemKey][]atoll.Tombstone
	firstWave  int32
}

// NewOwnershipRecords returns an empty Book.
func NewOwnershipRecords() *OwnershipRecords {
	return &OwnershipRecords{
		records: map[atoll.ItemKey]*Record{},
		bundles: map[string]*indexedHolding{},
		claimed: map[string]map[atoll.ItemKey]bool{},
		inside:  map[string]map[atoll.ItemKey]bool{},
		shards:  map[string]map[*Record]bool{},
		parked:  map[atoll.ItemKey]bool{},
		sent:    map[string]map[string]bool{},
		buried:  map[string]int64{},
		dirty:   map[string]bool{},
		stirred: map[string]bool{},

		tombstoned: map[atoll.ItemKey]map[string]bool{},
		leaving:    map[string]*leavingClaims{}, unblocked: map[atoll.ItemKey]bool{},
	}
}

// RestoreRecord puts a stored record into the OwnershipRecords. Records come before Holdings.
// Records come before Holdings.
func (b *OwnershipRecords) RestoreRecord(r Record) {
	c := r.clone()
	b.put(&c)
	for uid, claim := range c.Claims {
		b.indexClaim(c.Key, uid, &claim)
	}
}

// MaxRemoved bounds the removed Bundles that an agent stores.
const MaxRemoved = 10_000

// RemovedBundlesCutoff returns from when on removals are remembered, of more than MaxRemoved times: the newest
// nine tenths of MaxRemoved, so that few removals are forgotten at a time. It sorts the times.
func RemovedBundlesCutoff(times []int64) int64 {
	slices.Sort(times)
	return times[len(times)-MaxRemoved*9/10]
}

// RememberRemovedBundle stores a Bundle that was removed at the given Unix second, so that a
// late tombstone which moved an item there does not wait for it. The oldest ones over MaxRemoved are forgotten.
func (b *OwnershipRecords) RememberRemovedBundle(uid string, at int64) {
	b.buried[uid] = at
	if len(b.buried) <= MaxRemoved {
		return
	}
	oldest := RemovedBundlesCutoff(slices.Collect(maps.Values(b.buried)))
	maps.DeleteFunc(b.buried, func(_ string, at int64) bool { return at < oldest })
}

// Record returns the record of the key; false when nothing is known of it. The value is a copy.
func (b *OwnershipRecords) Record(key atoll.ItemKey) (Record, bool) {
	if r := b.records[key]; r != nil {
		return r.clone(), true
	}
	return Record{}, false
}

// ObjectUID returns the UID of the key's object, empty while it is not known; false when nothing
// is known of it.
func (b *OwnershipRecords) ObjectUID(key atoll.ItemKey) (uid string, ok bool) {
	if r := b.records[key]; r != nil {
		return r.UID, true
	}
	return "", false
}

// NamespacesWithRecords returns the namespaces in which there are records, in no order.
func (b *OwnershipRecords) NamespacesWithRecords() []string {
	return slices.Collect(maps.Keys(b.inside))
}

// WantsTemplate reports whether a Bundle claims the key's object with that template.
func (b *OwnershipRecords) WantsTemplate(key atoll.ItemKey, template string) bool {
	if r := b.records[key]; r != nil {
		for _, c := range r.Claims {
			if c.isLive() && c.Template == template {
				return true
			}
		}
	}
	return false
}

// RecordedKeys lists the keys of all records, in no order.
func (b *OwnershipRecords) RecordedKeys() []atoll.ItemKey {
	return slices.Collect(maps.Keys(b.records))
}

// HasKind reports whether anything of the kind is recorded. It lists no keys, since it is asked for each object that
// is deleted.
func (b *OwnershipRecords) HasKind(group, kind string) bool {
	for key := range b.records {
		if key.Group == group && key.Kind == kind {
			return true
		}
	}
	return false
}

// KeysInNamespace lists the keys of the records of a namespace, in no order.
func (b *OwnershipRecords) KeysInNamespace(namespace string) []atoll.ItemKey {
	return slices.Collect(maps.Keys(b.inside[namespace]))
}

// NeedsNamespace reports whether something in the namespace is recorded that is not only observed, or a
// manifest has the namespace.
func (b *OwnershipRecords) NeedsNamespace(namespace string) bool {
	if len(b.sent[namespace]) > 0 {
		return true
	}
	for key := range b.inside[namespace] {
		if !b.isOnlyObserved(key) {
			return true
		}
	}
	return false
}

// BundlesWithNamespace lists the Bundles whose manifests have the namespace, sorted.
func (b *OwnershipRecords) BundlesWithNamespace(namespace string) []string {
	return slices.Sorted(maps.Keys(b.sent[namespace]))
}

// KeysClaimedByBundle lists the keys that the Bundle has claims on, in no order.
func (b *OwnershipRecords) KeysClaimedByBundle(uid string) []atoll.ItemKey {
	return slices.Collect(maps.Keys(b.claimed[uid]))
}

// BundleUIDs lists the UIDs of the Bundles that are held, sorted.
func (b *OwnershipRecords) BundleUIDs() []string { return slices.Sorted(maps.Keys(b.bundles)) }

// HoldingOf returns the Holding of the Bundle; nil when it is not held. Read-only.
func (b *OwnershipRecords) HoldingOf(uid string) *BundleHolding {
	if h := b.bundles[uid]; h != nil {
		return &h.holding
	}
	return nil
}

// ObjectByHash finds the part of that hash in any manifest that is held, and in what is kept of
// older ones.
func (b *OwnershipRecords) ObjectByHash(hash string) (json.RawMessage, bool) {
	for _, h := range b.bundles {
		for _, m := range []*atoll.Manifest{&h.holding.Manifest, {Items: h.holding.Kept}} {
			if part, ok := m.FindPart(hash); ok {
				return part, true
			}
		}
	}
	return nil, false
}

// ItemToApplyOrObserve returns what the Bundle applies or observes for the key; nil when it has no good content of
// it. Read-only.
func (b *OwnershipRecords) ItemToApplyOrObserve(uid string, key atoll.ItemKey) *atoll.RenderedItem {
	if b.isObserver(uid, key) {
		return b.bundles[uid].listed[key]
	}
	return b.ItemToApply(uid, key)
}

// ItemToApply is what the Bundle applies for the key; nil when it has no good
// content of it. Read-only.
func (b *OwnershipRecords) ItemToApply(uid string, key atoll.ItemKey) *atoll.RenderedItem {
	if h := b.bundles[uid]; h != nil {
		return h.content[key]
	}
	return nil
}

// NamespaceMeta is the metadata in the manifests for a namespace that the agent may have to make;
// the lowest Bundle UID with it wins.
func (b *OwnershipRecords) NamespaceMeta(namespace string) atoll.NamespaceMeta {
	for _, uid := range b.BundlesWithNamespace(namespace) {
		return b.bundles[uid].holding.Manifest.Namespaces[namespace]
	}
	return atoll.NamespaceMeta{}
}

// DirtyShards lists the shards whose records changed since MarkClean.
func (b *OwnershipRecords) DirtyShards() []string { return slices.Sorted(maps.Keys(b.dirty)) }

// MarkClean marks a shard as stored.
func (b *OwnershipRecords) MarkClean(shard string) { delete(b.dirty, shard) }

// TakeChangedBundles returns the Bundles whose claims changed since the last call, whichever
// Bundle changed them: the report of each may have changed.
func (b *OwnershipRecords) TakeChangedBundles() []string {
	out := slices.Sorted(maps.Keys(b.stirred))
	clear(b.stirred)
	return out
}

// BundlesWithClaimOrTombstone lists the Bundles of whose status the key's object is a part: those
// that claim it, and those that have a tombstone of it.
func (b *OwnershipRecords) BundlesWithClaimOrTombstone(key atoll.ItemKey) (out []string) {
	var claims map[string]Claim
	if r := b.records[key]; r != nil {
		claims = r.Claims
	}
	for uid := range claims {
		if b.bundles[uid] != nil {
			out = append(out, uid)
		}
	}
	for uid := range b.tombstoned[key] {
		if _, claimed := claims[uid]; !claimed {
			out = append(out, uid)
		}
	}
	return out
}

// MarkDirty marks a shard as not stored.
func (b *OwnershipRecords) MarkDirty(shard string) { b.dirty[shard] = true }

// ShardOf returns the shard in which a key's record is stored: one per namespace.
func ShardOf(key atoll.ItemKey) string { return atoll.HashParts([]byte(key.Namespace))[:8] }

// RecordsInShard lists the records of a shard, sorted by key; none means that the shard
// is empty.
func (b *OwnershipRecords) RecordsInShard(shard string) []Record {
	var out []Record
	for r := range b.shards[shard] {
		out = append(out, r.clone())
	}
	slices.SortFunc(out, func(x, y Record) int { return CompareKeys(x.Key, y.Key) })
	return out
}

func (b *OwnershipRecords) put(r *Record) {
	if r.Claims == nil {
		r.Claims = map[string]Claim{}
	}
	shard := ShardOf(r.Key)
	if old := b.records[r.Key]; old != nil {
		remove(b.shards, shard, old)
	}
	b.records[r.Key] = r
	add(b.shards, shard, r)
	if r.Key.Namespace != "" {
		add(b.inside, r.Key.Namespace, r.Key)
	}
}

// ensureRecord returns the record of the key, made if missing.
func (b *OwnershipRecords) ensureRecord(key atoll.ItemKey) *Record {
	r := b.records[key]
	if r == nil {
		r = &Record{Key: key}
		b.put(r)
		b.markDirty(key)
	}
	return r
}

// dropRecord drops a record that has no claims.
func (b *OwnershipRecords) dropRecord(key atoll.ItemKey) {
	remove(b.shards, ShardOf(key), b.records[key])
	delete(b.records, key)
	remove(b.inside, key.Namespace, key)
	b.markDirty(key)
}

func (b *OwnershipRecords) markDirty(key atoll.ItemKey) { b.dirty[ShardOf(key)] = true }

// setClaim writes (or, with nil, drops) a claim and its indexes.
func (b *OwnershipRecords) setClaim(r *Record, uid string, c *Claim) {
	if c == nil {
		delete(r.Claims, uid)
	} else {
		r.Claims[uid] = *c
	}
	b.indexClaim(r.Key, uid, c)
	b.markDirty(r.Key)
	b.stirred[uid] = true
	for _, other := range b.BundlesWithClaimOrTombstone(r.Key) {
		b.stirred[other] = true
	}
}

func (b *OwnershipRecords) indexClaim(key atoll.ItemKey, uid string, c *Claim) {
	b.indexLeaving(key, uid, c)
	if c == nil {
		remove(b.claimed, uid, key)
		return
	}
	add(b.claimed, uid, key)
	if c.State == Parked {
		b.parked[key] = true
	}
}

func add[A, K comparable](m map[A]map[K]bool, at A, key K) {
	if m[at] == nil {
		m[at] = map[K]bool{}
	}
	m[at][key] = true
}

func remove[A, K comparable](m map[A]map[K]bool, at A, key K) {
	delete(m[at], key)
	if len(m[at]) == 0 {
		delete(m, at)
	}
}
