package ownership

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// accountOfStep returns the ServiceAccount that must have the right to the next step: that of the owner's claim, or else of
// the first claim. A namespace without claims has the one of its creation.
func (r *Record) accountOfStep() string {
	if c, claimed := r.Claims[r.Owner]; claimed {
		return c.Account
	}
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		return r.Claims[uid].Account
	}
	return r.Account
}

// NamespaceAccounts returns the ServiceAccounts of which one must have the right to create and label a namespace that
// objects need. Nil: the agent's own rights suffice, because an object in it, or a namespace without objects, names
// none. Observed objects need no namespace. Sorted.
func (b *OwnershipRecords) NamespaceAccounts(namespace string) []string {
	inside := b.KeysInNamespace(namespace)
	inside = slices.DeleteFunc(inside, func(key atoll.ItemKey) bool {
		_, observed := b.ObservedItem(key)
		return observed != nil
	})
	if len(inside) == 0 {
		if account := b.NamespaceMeta(namespace).ServiceAccount; account != "" {
			return []string{account}
		}
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
