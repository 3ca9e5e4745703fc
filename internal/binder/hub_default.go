package binder

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/policymatch"
)

// defaultPlacement returns where objects go that nothing else places; nil: they stay on the hub.
func (b *Binder) defaultPlacement() *v1alpha1.DefaultPlacement {
	if b.Settings == nil {
		return nil
	}
	return b.Settings.DefaultPlacement()
}

// hubDefaultSpec returns the spec that the default placement stands for; nil where there is none.
func (b *Binder) hubDefaultSpec() *v1alpha1.PropagationSpec {
	return policymatch.HubDefaultSpec(b.defaultPlacement())
}

// IsPlacedFromOutsideNamespace reports whether an object that is being written, and that nothing in its
// namespace places, goes to members: by the hub's default placement when it has no namespace, or by a
// parent without a namespace.
func (b *Binder) IsPlacedFromOutsideNamespace(sub policymatch.Subject) bool {
	d, _ := b.decidePlacingSource(sub)
	switch {
	case d.Winner == nil:
		return false
	case d.Root != nil:
		return d.Root.Key.Namespace == ""
	}
	return sub.Key.Namespace == "" && !sub.Key.IsNamespace() && d.Winner.Source.Kind == v1alpha1.SourceHubSettings
}

func (b *Binder) hubSettingsChanged() {
	b.defaultPlacementChanged()
	b.childPlacementChanged()
	b.emptyNamespaceSettingChanged()
}

// defaultPlacementChanged decides again what places the objects that the default placement had, and
// those that nothing placed. It reads all templates, because only people edit the settings.
func (b *Binder) defaultPlacementChanged() {
	now := b.defaultPlacement()
	if apiequality.Semantic.DeepEqual(now, b.lastDefaultPlacement) {
		return
	}
	b.index.setHubDefault(now)
	for _, ns := range append([]string{""}, b.Namespaces.List()...) {
		for _, t := range b.Templates.InNamespace(ns) {
			key := policymatch.ItemKeyOf(t)
			if _, holder := b.ownership.findHolder(key); holder == nil || holder.Kind == v1alpha1.SourceHubSettings {
				b.events.put(tableEvent{template: key, force: true})
			}
		}
	}
	b.touchBundles(b.ownership.bundlesOfSource(v1alpha1.SourceHubSettings, "", v1alpha1.HubSettingsName)...)
	b.lastDefaultPlacement = now
}
