package binder

import "atoll.dev/atoll/internal/atoll"

// createsEmptyNamespaces reports whether placed namespaces without objects appear in their clusters. An
// upgraded hub does not create them before its administrator sets it.
func (b *Binder) createsEmptyNamespaces() bool {
	return b.Settings != nil && b.Settings.CreatesEmptyNamespaces()
}

// emptyNamespaceSettingChanged touches the Bundles that carry their namespace, because only people edit the
// settings.
func (b *Binder) emptyNamespaceSettingChanged() {
	now := b.createsEmptyNamespaces()
	if now == b.lastEmptyNamespaces {
		return
	}
	for _, ns := range b.Namespaces.List() {
		if id := b.ownership.placingBundle(atoll.NamespaceKey(ns)); id.Name != "" {
			b.touchBundles(id)
		}
	}
	b.lastEmptyNamespaces = now
}
