package binder

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// FirstProtectedOfKind returns a template of the kind that is protected against deletion.
func (b *Binder) FirstProtectedOfKind(kind schema.GroupKind) (atoll.ItemKey, bool) {
	for _, ns := range append([]string{""}, b.Namespaces.List()...) {
		for _, t := range b.Templates.InNamespace(ns) {
			if t.GroupVersionKind().GroupKind() == kind && t.GetLabels()[atoll.LabelProtected] == "true" {
				return policymatch.ItemKeyOf(t), true
			}
		}
	}
	return atoll.ItemKey{}, false
}
