package ownership

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// Verb is what is to be done about an object.
type Verb string

// The verbs.
const (
	// Nothing to do.
	Nothing Verb = "Nothing"
	// Apply the item: create or change the object.
	Apply Verb = "Apply"
	// Replace: delete the object by its UID; once it is gone, Next returns Apply.
	Replace Verb = "Replace"
	// Delete the object by its UID.
	Delete Verb = "Delete"
	// Expire: delete the object by its UID, because it is finished. It is not made again for its content.
	Expire Verb = "Expire"
	// Release the object: take our label and field manager off, and drop the record.
	Release Verb = "Release"
	// Search: whether the object exists is not known; Found or Gone record it.
	Search Verb = "Search"
	// DeleteNamespace that the agent made, once nothing foreign is in it.
	DeleteNamespace Verb = "DeleteNamespace"
)

// Step is the next act on one key.
type Step struct {
	Verb Verb
	Key  atoll.ItemKey
	// Owner and Item, for Apply. Item is read-only.
	Owner string
	Item  *atoll.RenderedItem
	// Observed is the item where the owner observes the object instead of writing it. Read-only.
	Observed *atoll.RenderedItem
	// ReleasedFinalizers, for Delete: they were removed from the template while it is being deleted.
	ReleasedFinalizers []string
	// Account is the ServiceAccount, as NAMESPACE/NAME, that must have the right to the step; empty: none.
	Account string
	// Hook is the state of the owner's hook; nil: the object is no hook.
	Hook *HookState
	// Record as it was when the step was decided. A copy.
	Record Record
}

// Next returns what must be done about the key.
func (b *OwnershipRecords) Next(key atoll.ItemKey) Step {
	r := b.records[key]
	if r == nil {
		return Step{Verb: Nothing, Key: key}
	}
	s := Step{Verb: Nothing, Key: key, Owner: r.Owner, Record: r.clone(), Account: r.accountOfStep()}
	leaving, parked := r.hasClaimIn(Leaving), r.hasClaimIn(Parked)
	if c := r.Claims[r.Owner]; c.isLive() {
		s.Item = b.ItemToApply(r.Owner, key)
		if _, s.Observed = b.ObservedItem(key); s.Observed == nil && !c.Observed {
			s.Verb, s.Hook = b.verbOfLive(r, c, s.Item)
		}
		if s.Verb == Nothing && leaving && r.UID == "" {
			s.Verb = Search
		}
		return s
	}
	switch s.Verb = removalVerb(r, leaving, parked); {
	case s.Verb == Delete && b.LeavingBefore(key).Objects > 0:
		s.Verb = Nothing
	case s.Verb == Delete:
		s.ReleasedFinalizers = b.releasedFinalizers(r)
	}
	return s
}

// verbOfLive returns what is to be done about the object of an item that a Bundle has, with the state of a hook.
func (b *OwnershipRecords) verbOfLive(r *Record, c Claim, item *atoll.RenderedItem) (Verb, *HookState) {
	if item == nil || item.Hook == nil || item.UID != c.Template {
		return applyVerb(r, c, item), nil
	}
	state := b.HookStateOf(r.Owner, item)
	if b.bundles[r.Owner].listed[r.Key] != item { // the manifest lacks it, or could not render it
		return Nothing, &state
	}
	if r.UID != "" && r.Template != c.Template && r.isKeptForOtherBundle(r.Template) {
		return Nothing, &state
	}
	return r.hookVerb(state, item), &state
}

// hasClaimIn reports whether a claim on the object is in the state.
func (r *Record) hasClaimIn(state State) bool {
	for _, c := range r.Claims {
		if c.State == state {
			return true
		}
	}
	return false
}

// ObservedItem returns the Bundle that observes the key's object, with its item; nil where the object is
// written, or no Bundle has it.
func (b *OwnershipRecords) ObservedItem(key atoll.ItemKey) (bundle string, item *atoll.RenderedItem) {
	r := b.records[key]
	if r == nil || !r.Claims[r.Owner].isLive() || !b.isObserver(r.Owner, key) {
		return "", nil
	}
	return r.Owner, b.bundles[r.Owner].listed[key]
}

// releasedFinalizers returns the finalizers that the tombstones of the record's leaving claims release.
func (b *OwnershipRecords) releasedFinalizers(r *Record) (out []string) {
	for uid, c := range r.Claims {
		nb := b.bundles[uid]
		if nb == nil || c.State != Leaving || c.Template == "" {
			continue
		}
		if t, dead := nb.tombstoneFor(r.Key, c.Template); dead {
			out = append(out, t.ReleasedFinalizers...)
		}
	}
	return out
}

// removalVerb returns what ends a record that no live claim owns.
func removalVerb(r *Record, leaving, parked bool) Verb {
	switch {
	case leaving && r.UID == "":
		return Search
	case parked:
		return Nothing
	case leaving && r.mustStay():
		return Release
	case leaving:
		return Delete
	case r.Implicit && (r.Doomed || r.Parting) && len(r.Claims) == 0:
		return DeleteNamespace
	}
	return Nothing
}

func applyVerb(r *Record, c Claim, item *atoll.RenderedItem) Verb {
	hash, known := "", item != nil && item.UID == c.Template
	if known {
		hash = item.Hash
	}
	switch {
	case r.UID == "" && r.hasRunTemplate(c.Template, hash, known && item.StatesCompletion()):
		return Nothing
	case r.needsReplacement(c):
		return Replace
	case r.UID != "" && r.Template != c.Template && r.isKeptForOtherBundle(r.Template):
		return Nothing
	case !known:
		return Nothing
	case r.UID == "", r.Applied != hash, r.Label != r.Owner, r.Template != c.Template:
		return Apply
	}
	return Nothing
}

// needsReplacement reports whether the object was made for another template than the
// claim means, and may be deleted for it. It stays while it is kept for a Bundle
// that takes it over: then the claim is one of an old manifest.
func (r *Record) needsReplacement(c Claim) bool {
	if r.UID == "" || r.Template == "" || r.Template == c.Template || r.Adopted || r.isKeptForOtherBundle(r.Template) {
		return false
	}
	return !r.Key.IsNamespace() && !IsCRD(r.Key) && (r.Chosen || !DeletionLosesDataOrDependents(r.Key))
}

// isKeptForOtherBundle reports whether the object of that template is kept for another Bundle.
func (r *Record) isKeptForOtherBundle(template string) bool {
	for _, c := range r.Claims {
		if c.State == Parked && c.Template == template {
			return true
		}
	}
	return false
}

// mustStay reports whether the object outlives its last claim.
func (r *Record) mustStay() bool {
	if r.Adopted || !r.Chosen && DeletionLosesDataOrDependents(r.Key) {
		return true
	}
	for _, c := range r.Claims {
		if c.Orphan {
			return true
		}
	}
	return false
}

// Fact is what an apply made true.
type Fact struct {
	UID, APIVersion, Template string
	Hash, Label, Owned        string
	Left                      []string
	// Adopted: the object was there before, and not ours.
	Adopted bool
	// HookRun is the value of the object's LabelHookRun; empty: it has none.
	HookRun string
	// At is the time of the apply, in Unix seconds.
	At int64
	// Account, of a namespace that the agent made, as in Record.
	Account string
	// Endless: the object states that it never runs to completion, although others of its
	// kind do, so that it is made again whenever it is gone.
	Endless bool
}

// RecordApplied records that an apply succeeded.
func (b *OwnershipRecords) RecordApplied(key atoll.ItemKey, f Fact) {
	r := b.ensureRecord(key)
	another := r.UID != f.UID
	if another {
		r.Adopted = false
	}
	if another || r.RanHash != f.Hash {
		r.FinishedAt = 0
	}
	r.UID, r.APIVersion, r.Template = f.UID, f.APIVersion, f.Template
	r.Applied, r.Label, r.Owned, r.Left = f.Hash, f.Label, f.Owned, f.Left
	r.Adopted = r.Adopted || f.Adopted
	r.Last, r.Going = nil, false
	r.noteHookApplied(f)
	switch {
	case f.Endless:
		r.Ran, r.RanHash = "", ""
	case RunsOnce(key):
		r.Ran, r.RanHash = f.Template, f.Hash
	case another || r.RanHash != f.Hash: // a rule defines when this one has run
		r.Ran, r.RanHash = "", ""
	}
	b.markDirty(key)
	b.resolveClaims(key)
}

// RecordFoundAfterInterruptedApply records that an object which an interrupted apply made exists, with the
// Bundle and the template that its labels name, and whether it was there before.
func (b *OwnershipRecords) RecordFoundAfterInterruptedApply(key atoll.ItemKey, f Fact) {
	r := b.records[key]
	if r == nil || r.UID == f.UID {
		return
	}
	r.UID, r.Label, r.Template, r.Adopted = f.UID, f.Label, f.Template, f.Adopted
	r.Applied, r.Owned, r.FinishedAt = "", "", 0
	r.noteHookApplied(f)
	if r.Ran, r.RanHash = "", ""; RunsOnce(key) {
		r.Ran = f.Template
	}
	b.markDirty(key)
	b.resolveClaims(key)
}

// RecordCompletion records whether the object of that UID has run to completion, as a rule defines it for a
// kind that does not run to completion by itself.
func (b *OwnershipRecords) RecordCompletion(key atoll.ItemKey, uid string, completed bool) {
	r := b.records[key]
	if r == nil || r.UID != uid || uid == "" || RunsOnce(key) {
		return
	}
	ran, hash := "", ""
	if completed {
		ran, hash = r.Template, r.Applied
	}
	if r.Ran != ran || r.RanHash != hash {
		r.Ran, r.RanHash, r.FinishedAt = ran, hash, 0
		b.markDirty(key)
	}
}

// IntendNamespace records that the agent is about to make a namespace because
// something needs it. It does nothing where a record of the namespace exists.
func (b *OwnershipRecords) IntendNamespace(name string) {
	if b.records[atoll.NamespaceKey(name)] == nil {
		b.ensureRecord(atoll.NamespaceKey(name)).Implicit = true
	}
}

// RecordMadeNamespace records such a namespace with its UID, and the hash of the
// metadata that it was given.
func (b *OwnershipRecords) RecordMadeNamespace(name string, f Fact) {
	r := b.ensureRecord(atoll.NamespaceKey(name))
	r.UID, r.Label, r.Applied, r.Owned, r.Implicit, r.Account = f.UID, f.Label, f.Hash, f.Owned, true, f.Account
	b.markDirty(r.Key)
}

// SetNamespaceRemovalWhenUnused starts or ends to part with a namespace that the agent made, or not any more: it goes once nothing is in
// it, unless something needs it again.
func (b *OwnershipRecords) SetNamespaceRemovalWhenUnused(name string, parting bool) {
	if r := b.records[atoll.NamespaceKey(name)]; r != nil && r.Implicit {
		r.Parting = parting
	}
}

// CancelNamespaceRemoval keeps a namespace that was to go.
func (b *OwnershipRecords) CancelNamespaceRemoval(name string) {
	if r := b.records[atoll.NamespaceKey(name)]; r != nil && (r.Doomed || r.Parting) {
		r.Doomed, r.Parting, r.SetClaims = false, false, nil
		b.markDirty(r.Key)
	}
}

// RecordStatefulSetVolumeClaims records volume claims that go along with a namespace that was deleted on the hub.
func (b *OwnershipRecords) RecordStatefulSetVolumeClaims(namespace string, uids []string) {
	if r := b.records[atoll.NamespaceKey(namespace)]; r != nil && r.Doomed {
		r.SetClaims = slices.Compact(slices.Sorted(slices.Values(append(r.SetClaims, uids...))))
		b.markDirty(r.Key)
	}
}

// ForgetNamespace drops the record of a namespace that the agent made and released.
func (b *OwnershipRecords) ForgetNamespace(name string) {
	if r := b.records[atoll.NamespaceKey(name)]; r != nil && r.Implicit && len(r.Claims) == 0 {
		r.Implicit, r.Doomed, r.Parting, r.SetClaims, r.UID = false, false, false, nil, ""
		b.resolveClaims(r.Key)
	}
}

// RecordForeignNamespace records that a namespace was there already.
func (b *OwnershipRecords) RecordForeignNamespace(name string) {
	if r := b.records[atoll.NamespaceKey(name)]; r != nil && r.Implicit && r.UID == "" {
		r.Implicit = false
		b.resolveClaims(r.Key)
	}
}

// RecordRunOnceDeletionStart records that the agent is about to delete the object. When it returns true, the
// record must be stored first.
func (b *OwnershipRecords) RecordRunOnceDeletionStart(key atoll.ItemKey) bool {
	r := b.records[key]
	if r == nil || !RunsOnce(key) && r.Ran == "" || r.Going {
		return false
	}
	r.Going = true
	b.markDirty(key)
	return true
}

// RecordGone records that the object with the UID does not exist any more (any UID, when empty).
// The record of a removed object is dropped; an ordered object is made again. It returns the keys
// whose Next may
// have changed.
func (b *OwnershipRecords) RecordGone(key atoll.ItemKey, uid string, last *atoll.ItemStatus) []atoll.ItemKey {
	r := b.records[key]
	if r == nil || uid != "" && r.UID != uid {
		return nil
	}
	r.noteHookGone(last)
	if r.Going {
		r.Ran, r.RanHash, r.Going = "", "", false
	} else if r.Ran != "" && r.Ran == r.Claims[r.Owner].Template {
		r.Last = last
	}
	r.UID, r.Template, r.Applied, r.Label, r.Owned, r.FinishedAt = "", "", "", "", "", 0
	r.Left, r.Adopted = nil, false
	if r.Implicit && !b.NeedsNamespace(key.Name) {
		r.Implicit, r.Doomed, r.Parting = false, false, false
	}
	if key.IsNamespace() {
		r.SetClaims = nil
	}
	return b.endLeavingClaims(r)
}

// RecordReleased records that the object was released.
func (b *OwnershipRecords) RecordReleased(key atoll.ItemKey) []atoll.ItemKey {
	r := b.records[key]
	if r == nil {
		return nil
	}
	r.UID, r.Template, r.Applied, r.Label, r.Owned, r.FinishedAt = "", "", "", "", "", 0
	r.Left, r.Adopted = nil, false
	return b.endLeavingClaims(r)
}

// endLeavingClaims ends leaving claims after the object went.
func (b *OwnershipRecords) endLeavingClaims(r *Record) []atoll.ItemKey {
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		if r.Claims[uid].State == Leaving {
			b.setClaim(r, uid, nil)
		}
	}
	b.markDirty(r.Key)
	b.resolveClaims(r.Key)
	return []atoll.ItemKey{r.Key, atoll.NamespaceKey(r.Key.Namespace)}
}

// CompletedTombstoneIDs lists the tombstones of the Bundle's manifest that are carried out, as
// TombstoneID gives them, in the manifest's order.
func (b *OwnershipRecords) CompletedTombstoneIDs(uid string) []string {
	nb := b.bundles[uid]
	if nb == nil {
		return nil
	}
	var out []string
	for _, t := range nb.holding.Manifest.Tombstones {
		if b.isTombstoneCarriedOut(uid, t) {
			out = append(out, TombstoneID(t))
		}
	}
	return out
}

// isVoid reports whether a tombstone orders nothing: the item came back, or nothing is written of the key. A hook that a removal
// runs goes afterwards.
func (nb *indexedHolding) isVoid(t atoll.Tombstone) bool {
	it := nb.listed[t.Key]
	return it != nil && !nb.holding.Manifest.Remove && (it.UID == t.UID || it.Observe != "")
}

func (b *OwnershipRecords) isTombstoneCarriedOut(uid string, t atoll.Tombstone) bool {
	r := b.records[t.Key]
	if r == nil {
		return true
	}
	if b.bundles[uid].isVoid(t) {
		return true
	}
	if c, ok := r.Claims[uid]; ok && (c.Template == t.UID || c.Template == "") {
		return false
	}
	if r.UID == "" || r.Template != t.UID {
		return true
	}
	for _, c := range r.Claims {
		if c.Template == t.UID {
			return true
		}
	}
	return r.Adopted
}

// IsBundleRemovalDone reports whether the Bundle's row is being removed and nothing of it is left.
func (b *OwnershipRecords) IsBundleRemovalDone(uid string) bool {
	nb := b.bundles[uid]
	return nb != nil && nb.holding.Manifest.Remove && len(b.claimed[uid]) == 0
}

// ForgetBundle drops a Bundle that is Removed, at the given Unix second. It lists the
// keys whose Next may have changed.
func (b *OwnershipRecords) ForgetBundle(uid string, at int64) []atoll.ItemKey {
	b.dropManifestNamespaces(uid)
	b.dropHolding(uid)
	delete(b.stirred, uid)
	b.RememberRemovedBundle(uid, at)
	keys := slices.Collect(maps.Keys(b.parked))
	for _, key := range keys {
		b.resolveClaims(key)
	}
	return keys
}
