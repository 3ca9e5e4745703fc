package ownership

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// treatmentOfFailedItem returns the ServiceAccount of an item that could not be rendered, and whether the object is only
// observed. The item itself states neither: the content that is kept does, or else the Bundle's earlier claim.
func treatmentOfFailedItem(kept *atoll.RenderedItem, earlier Claim) (account string, observed bool) {
	if kept != nil {
		return kept.ServiceAccount, false
	}
	return earlier.Account, earlier.Observed
}

// accountOfStep returns the ServiceAccount that must have the right to the next step: that of the owner's claim, or else of
// the first claim that names one. A namespace without claims has the one of its creation.
func (r *Record) accountOfStep() string {
	if c, claimed := r.Claims[r.Owner]; claimed {
		return c.Account
	}
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		if account := r.Claims[uid].Account; account != "" {
			return account
		}
	}
	return r.Account
}

// DropsServiceAccount reports whether an item of the holding names a ServiceAccount, and the manifest has no account for
// the item: the item left, or could not be rendered. Only the record of the object keeps the account then.
func (h *BundleHolding) DropsServiceAccount(m *atoll.Manifest) bool {
	named := map[atoll.ItemKey]bool{}
	for i := range m.Items {
		named[m.Items[i].Key] = m.Items[i].ServiceAccount != ""
	}
	drops := func(it atoll.RenderedItem) bool { return it.ServiceAccount != "" && !named[it.Key] }
	return slices.ContainsFunc(h.Manifest.Items, drops) || slices.ContainsFunc(h.Kept, drops)
}

// NamespaceAccounts returns the ServiceAccounts of which one must have the right to create and label a namespace that
// objects need. Nil: the agent's own rights suffice, because an object in it, or a namespace without objects, names
// none. Observed objects count where nothing else is in the namespace. Without objects, the account of the namespace's
// creation stays. Sorted.
func (b *OwnershipRecords) NamespaceAccounts(namespace string) []string {
	inside := b.writtenKeysIn(namespace)
	if len(inside) == 0 {
		r := b.records[atoll.NamespaceKey(namespace)]
		if account := b.NamespaceMeta(namespace).ServiceAccount; account != "" {
			return []string{account}
		} else if r != nil && r.Implicit && r.Account != "" {
			return []string{r.Account}
		}
		inside = b.KeysInNamespace(namespace)
	}
	if len(inside) == 0 {
		return nil
	}
	named := map[string]bool{}
	for _, key := range inside {
		account := b.records[key].accountOfStep()
		if account == "" {
			return nil
		}
		named[account] = true
	}
	return slices.Sorted(maps.Keys(named))
}

// writtenKeysIn lists the keys of the namespace's records of objects that are not only observed, in no order.
func (b *OwnershipRecords) writtenKeysIn(namespace string) []atoll.ItemKey {
	return slices.DeleteFunc(b.KeysInNamespace(namespace), b.isOnlyObserved)
}

// isOnlyObserved reports whether the owner of the key's object observes it, also while its item fails.
func (b *OwnershipRecords) isOnlyObserved(key atoll.ItemKey) bool {
	r := b.records[key]
	if r == nil {
		return false
	}
	c := r.Claims[r.Owner]
	return c.isLive() && c.Observed
}

// CancelNamespaceIntent drops the intent to make a namespace for an observed object, unless the namespace exists,
// or other objects need it.
func (b *OwnershipRecords) CancelNamespaceIntent(namespace string) {
	r := b.records[atoll.NamespaceKey(namespace)]
	if r != nil && r.Implicit && r.UID == "" && len(b.writtenKeysIn(namespace)) == 0 {
		b.ForgetNamespace(namespace)
	}
}
