package bind

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// world is what the tables and claims say, seen from one Bundle.
type world struct {
	*Binder
	id claim.BundleID
}

func (w world) Template(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	return w.Templates.Get(key)
}

func (w world) Claim(key atoll.ItemKey) (claim.Claim, bool) {
	c, held, to := w.claims.claim(w.id, key)
	return c, held && (c != claim.Others || w.handsOver(w.id, to))
}
func (w world) Deleted(key atoll.ItemKey, uid string) bool         { return w.claims.wasDeleted(key, uid) }
func (w world) Holders(key atoll.ItemKey) []string                 { return w.claims.holders(w.id, key) }
func (w world) Definition(key atoll.ItemKey) (atoll.ItemKey, bool) { return w.definition(key) }

func (w world) Selected(s atoll.Selection) []atoll.ItemKey {
	return w.claims.selections.find(s, w.id, w.Templates)
}

var definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// definition names the CRD of a custom resource.
func (b *Binder) definition(key atoll.ItemKey) (atoll.ItemKey, bool) {
	gvr, ok := b.Templates.Resource(key)
	if !ok || gvr.Group == "" {
		return atoll.ItemKey{}, false
	}
	crd := atoll.ItemKey{Group: definitions.Group, Kind: definitions.Kind, Name: gvr.GroupResource().String()}
	_, ok = b.Templates.Get(crd)
	return crd, ok
}

// limits of what the store takes.
type limits struct{}

func (limits) Storable(item *atoll.Item) error            { return state.Storable(item) }
func (limits) StorableRules(content *atoll.Content) error { return state.StorableRules(content) }
