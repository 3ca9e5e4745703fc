package binder

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// bundleWorld shows the tables and the ownership index from the side of one Bundle.
type bundleWorld struct {
	*Binder
	id policymatch.BundleID
}

func (w bundleWorld) TemplateOf(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	return w.Templates.Get(key)
}

func (w bundleWorld) PlacedBy(key atoll.ItemKey) (bundlecontent.PlacedBy, bool) {
	c, held, to := w.ownership.placedByOf(w.id, key)
	return c, held && (c != bundlecontent.PlacedByOther || w.canHandOver(w.id, to))
}
func (w bundleWorld) WasDeleted(key atoll.ItemKey, uid string) bool {
	return w.ownership.wasDeleted(key, uid)
}
func (w bundleWorld) OtherHolderUIDs(key atoll.ItemKey) []string {
	return w.ownership.otherHolders(w.id, key)
}
func (w bundleWorld) DefinitionOf(key atoll.ItemKey) (atoll.ItemKey, bool) {
	return w.definingCRD(key)
}

func (w bundleWorld) IsHubOnly(t *unstructured.Unstructured) bool {
	return w.isHubOnly(policymatch.ItemKeyOf(t), t.GetLabels(), t.GetAnnotations())
}

func (w bundleWorld) SelectedKeys(s atoll.Selection) []atoll.ItemKey {
	return w.ownership.selections.findMatching(s, w.id, w.Templates)
}

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// definingCRD returns the key of the CRD of a custom resource; false when the CRD is no
// template.
func (b *Binder) definingCRD(key atoll.ItemKey) (atoll.ItemKey, bool) {
	gvr, ok := b.Kinds.ResourceOfKey(key)
	if !ok || gvr.Group == "" {
		return atoll.ItemKey{}, false
	}
	crd := atoll.ItemKey{Group: crdKind.Group, Kind: crdKind.Kind, Name: gvr.GroupResource().String()}
	_, ok = b.Templates.Get(crd)
	return crd, ok
}

// storeLimits checks the sizes that the store takes.
type storeLimits struct{}

func (storeLimits) CheckItemSize(item *atoll.Item) error { return state.CheckItemSize(item) }
func (storeLimits) CheckSizeWithoutItems(content *atoll.Content) error {
	return state.CheckSizeWithoutItems(content)
}
