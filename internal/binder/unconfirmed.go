package binder

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// hasUnconfirmedItems reports whether the removal of an item waits for a confirmation.
func (c *ownershipIndex) hasUnconfirmedItems(id policymatch.BundleID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b := c.bundles[id]
	return b != nil && b.hasUnconfirmed
}

// isInNoCluster reports whether no row has anything of the Bundle: there is none, or each is removed or still
// waits to be sent.
func (b *Binder) isInNoCluster(bundle string) bool {
	return !slices.ContainsFunc(b.Rows.ListOfBundle(bundle), func(r state.Row) bool {
		return r.Spec.Phase != atoll.RowPending && !r.Spec.IsRemovalDone(r.Status)
	})
}
