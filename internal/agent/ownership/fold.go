package ownership

import (
	"cmp"
	"maps"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// FoldHolding takes a Holding into the OwnershipRecords and lists the keys whose Next may have
// changed. One of a lower generation than what is held is ignored.
func (b *OwnershipRecords) FoldHolding(h BundleHolding) []atoll.ItemKey {
	m := &h.Manifest
	if old := b.bundles[m.Bundle]; old != nil && old.holding.Manifest.Generation > m.Generation {
		return nil
	}
	nb := indexHolding(h)
	b.dropManifestNamespaces(m.Bundle)
	b.putHolding(nb)
	delete(b.buried, m.Bundle)
	touched := maps.Clone(b.parked)
	for key := range nb.listed {
		b.addClaim(nb, key, Wanted)
	}
	for key := range nb.content {
		if nb.listed[key] == nil {
			b.addClaim(nb, key, Kept)
		}
	}
	for _, key := range b.KeysClaimedByBundle(m.Bundle) {
		if nb.listed[key] == nil && nb.content[key] == nil {
			b.updateClaimOfDroppedItem(nb, key)
		}
		touched[key] = true
	}
	for _, key := range append(b.recordManifestNamespaces(&nb.holding.Manifest), b.markDeletedNamespaces(m)...) {
		touched[key] = true
	}
	for key := range touched {
		b.resolveClaims(key)
	}
	return slices.SortedFunc(maps.Keys(touched), CompareKeys)
}

// recordManifestNamespaces notes the namespaces of a manifest, and lists those that may have to be made without an item in them.
func (b *OwnershipRecords) recordManifestNamespaces(m *atoll.Manifest) (alone []atoll.ItemKey) {
	for ns := range m.Namespaces {
		add(b.sent, ns, m.Bundle)
		if m.Remove { // its hooks run in the namespace, which is to go afterwards
			continue
		}
		b.CancelNamespaceRemoval(ns)
		if len(b.inside[ns]) == 0 {
			alone = append(alone, atoll.NamespaceKey(ns))
		}
	}
	return alone
}

// markDeletedNamespaces marks the namespaces that a manifest names as deleted on the hub, and lists those that were not marked.
func (b *OwnershipRecords) markDeletedNamespaces(m *atoll.Manifest) (doomed []atoll.ItemKey) {
	for _, ns := range m.DeletedNamespaces {
		if key := atoll.NamespaceKey(ns); b.markNamespaceDeletedOnHub(key) {
			doomed = append(doomed, key)
		}
	}
	return doomed
}

// dropManifestNamespaces drops the namespaces of the manifest that a Bundle had.
func (b *OwnershipRecords) dropManifestNamespaces(uid string) {
	if old := b.bundles[uid]; old != nil {
		for ns := range old.holding.Manifest.Namespaces {
			remove(b.sent, ns, uid)
		}
	}
}

// markNamespaceDeletedOnHub marks a namespace that the agent made as deleted on the hub, and reports whether
// it was not marked before.
func (b *OwnershipRecords) markNamespaceDeletedOnHub(key atoll.ItemKey) bool {
	r := b.records[key]
	if r == nil || !r.Implicit || r.Doomed {
		return false
	}
	r.Doomed = true
	b.markDirty(r.Key)
	return true
}

// CompareKeys orders keys by their string. It makes no string for keys that differ by their name alone.
func CompareKeys(x, y atoll.ItemKey) int {
	if x.Namespace == y.Namespace && x.Kind == y.Kind && x.Group == y.Group {
		return cmp.Compare(x.Name, y.Name)
	}
	return cmp.Compare(x.String(), y.String())
}

// putHolding puts what is held of a Bundle in the place of what was held of it.
func (b *OwnershipRecords) putHolding(nb *indexedHolding) {
	uid := nb.holding.Manifest.Bundle
	b.dropHolding(uid)
	b.bundles[uid] = nb
	for key := range nb.tombstones {
		add(b.tombstoned, key, uid)
	}
}

// dropHolding drops what is held of a Bundle, if anything is.
func (b *OwnershipRecords) dropHolding(uid string) {
	old := b.bundles[uid]
	if old == nil {
		return
	}
	for key := range old.tombstones {
		remove(b.tombstoned, key, uid)
	}
	delete(b.bundles, uid)
}

func indexHolding(h BundleHolding) *indexedHolding {
	nb := &indexedHolding{
		holding:    h,
		content:    map[atoll.ItemKey]*atoll.RenderedItem{},
		listed:     map[atoll.ItemKey]*atoll.RenderedItem{},
		tombstones: map[atoll.ItemKey][]atoll.Tombstone{},
	}
	m := &nb.holding.Manifest
	if m.Remove {
		m.Items = nil
		nb.listRemovalHooks()
	}
	nb.firstWave = firstWaveOf(m.Items)
	for i := range m.Items {
		it := &m.Items[i]
		nb.listed[it.Key] = it
		if it.IsWritten() {
			nb.content[it.Key] = it
		}
	}
	for i := range nb.holding.Kept {
		nb.content[nb.holding.Kept[i].Key] = &nb.holding.Kept[i]
	}
	for _, t := range m.Tombstones {
		nb.tombstones[t.Key] = append(nb.tombstones[t.Key], t)
	}
	return nb
}

// addClaim records the Bundle's claim on an item that it has.
func (b *OwnershipRecords) addClaim(nb *indexedHolding, key atoll.ItemKey, state State) {
	it := nb.listed[key]
	if it == nil {
		it = nb.content[key]
	}
	r, uid := b.ensureRecord(key), nb.holding.Manifest.Bundle
	b.endUnknownOtherTemplateClaims(r, it.UID)
	old, had := r.Claims[uid]
	now := Claim{State: state, Template: it.UID, Dependency: it.Dependency, Account: it.ServiceAccount, Wave: waveOf(it, nb.firstWave), Observed: it.Observe != ""}
	if it.Failed() {
		now.Account, now.Observed = treatmentOfFailedItem(nb.content[key], old)
	}
	b.updateHasDirectClaim(r, uid, !now.Dependency, had && !old.Dependency)
	if !had || !sameClaim(old, now) {
		b.setClaim(r, uid, &now)
	}
	if !nb.holding.Manifest.Remove {
		b.cancelNamespaceRemovalFor(key)
	}
}

// endUnknownOtherTemplateClaims ends the claims of unknown Bundles on objects of another template than the
// requested one. Such Bundles are known only by the objects' labels: they are of another hub, or
// of another time. The adoption is then decided as for any existing object. An unknown Bundle with
// the same template may be one of this hub whose manifest is still to come.
func (b *OwnershipRecords) endUnknownOtherTemplateClaims(r *Record, template string) {
	for _, other := range slices.Sorted(maps.Keys(r.Claims)) {
		if c := r.Claims[other]; b.bundles[other] != nil || c.State != Kept || c.Template == template {
			continue
		}
		b.setClaim(r, other, nil)
		if r.Template != template {
			r.UID, r.Template, r.Applied, r.Label, r.Owned, r.Ran, r.RanHash, r.Hook = "", "", "", "", "", "", "", nil
			r.Left, r.Adopted = nil, false
		}
	}
}

// updateHasDirectClaim keeps Record.Chosen: whether a Bundle claims the object directly, not as a
// dependency. It stays as it was when the last claim goes.
func (b *OwnershipRecords) updateHasDirectClaim(r *Record, uid string, chosen, before bool) {
	switch {
	case chosen && !r.Chosen:
		r.Chosen = true
	case !chosen && before && r.Chosen:
		r.Chosen = false
		for other, c := range r.Claims {
			r.Chosen = r.Chosen || other != uid && !c.Dependency
		}
	default:
		return
	}
	b.markDirty(r.Key)
}

// cancelNamespaceRemovalFor keeps the namespaces of ordered items.
func (b *OwnershipRecords) cancelNamespaceRemovalFor(key atoll.ItemKey) {
	if key.IsNamespace() {
		b.CancelNamespaceRemoval(key.Name)
	} else {
		b.CancelNamespaceRemoval(key.Namespace)
	}
}

// updateClaimOfDroppedItem turns the claim on an item that the Bundle has no longer. Only a
// tombstone of the claim's own template, or of the whole row, takes it out.
func (b *OwnershipRecords) updateClaimOfDroppedItem(nb *indexedHolding, key atoll.ItemKey) {
	r, uid := b.records[key], nb.holding.Manifest.Bundle
	old := r.Claims[uid]
	now := old
	t, dead := nb.tombstoneFor(key, old.Template)
	switch {
	case dead:
		now.State, now.MovedTo, now.Orphan, now.Last, now.Noted = Leaving, nil, t.Orphan, t.Last, false
		if len(t.MovedTo) > 0 {
			now.State, now.MovedTo = Parked, t.MovedTo
			if !t.Orphan && nb.holding.Manifest.ClusterDecommissioned { // an object without a successor stays
				now.Orphan, now.Noted = true, true
			}
		}
	case nb.holding.Manifest.Remove:
		now.State, now.MovedTo = Leaving, nil
		now.Orphan = nb.holding.Manifest.Removal == v1alpha1.RemoveOrphan
		now.Noted = now.Orphan && nb.holding.Manifest.ClusterDecommissioned
	case old.isLive():
		now.State = Kept
	}
	if !sameClaim(old, now) {
		b.setClaim(r, uid, &now)
	}
}

// tombstoneFor returns the tombstone of the template in the Bundle's manifest. A template that is not
// known (its record was lost) is any.
func (nb *indexedHolding) tombstoneFor(key atoll.ItemKey, template string) (atoll.Tombstone, bool) {
	for _, t := range nb.tombstones[key] {
		if t.UID == template || template == "" {
			return t, true
		}
	}
	return atoll.Tombstone{}, false
}

func sameClaim(x, y Claim) bool {
	return x.State == y.State && x.Template == y.Template && x.Dependency == y.Dependency && x.Account == y.Account && x.Observed == y.Observed &&
		x.Orphan == y.Orphan && x.Last == y.Last && x.Wave == y.Wave && x.Noted == y.Noted && slices.Equal(x.MovedTo, y.MovedTo)
}
