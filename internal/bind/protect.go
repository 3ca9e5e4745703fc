package bind

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
)

// ProtectedKind names a template of the kind that may not be deleted.
func (b *Binder) ProtectedKind(kind schema.GroupKind) (atoll.ItemKey, bool) {
	for _, ns := range append([]string{""}, b.Namespaces.List()...) {
		for _, t := range b.Templates.InNamespace(ns) {
			if t.GroupVersionKind().GroupKind() == kind && t.GetLabels()[atoll.LabelProtected] == "true" {
				return claim.KeyOf(t), true
			}
		}
	}
	return atoll.ItemKey{}, false
}
