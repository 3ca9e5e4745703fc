package server

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview/explain"
)

// countDroppedChanges counts the kept changes that would be dropped by HubSettings among the written objects.
func (x *userQuery) countDroppedChanges(written []client.Object) int {
	if x.sources.Undo == nil {
		return 0
	}
	for _, o := range written {
		settings, ok := o.(*v1alpha1.HubSettings)
		if !ok || settings.Name != v1alpha1.HubSettingsName {
			continue
		}
		window := v1alpha1.DefaultUndoWindow
		if w := settings.Spec.UndoWindow; w != nil && settings.DeletionTimestamp == nil {
			window = w.Duration
		}
		return x.sources.Undo.CountDropped(window)
	}
	return 0
}

// latestChange returns the latest change of an object that can be taken back; nil: there is none.
func (x *userQuery) latestChange(key atoll.ItemKey) *explain.KeptChange {
	if x.sources.Undo == nil {
		return nil
	}
	c, until, ok := x.sources.Undo.FindLatest(key)
	if !ok {
		return nil
	}
	return &explain.KeptChange{Operation: string(c.Operation), By: c.By, At: c.At, Until: until}
}
