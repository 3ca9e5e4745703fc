package offline

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// worldParents answers policymatch.DecideWithParents from files.
type worldParents struct {
	*World
	index *policymatch.PolicyIndex
}

// decidePolicy returns what places a template.
func (p worldParents) decidePolicy(sub policymatch.Subject) policymatch.Decision {
	if p.settings == nil || p.settings.Spec.ChildPlacement != v1alpha1.ChildPlacementParent {
		return p.DecideWithoutParent(sub)
	}
	return policymatch.DecideWithParents(p, sub)
}

func (p worldParents) DecideWithoutParent(sub policymatch.Subject) policymatch.Decision {
	return policymatch.DecidePolicy(p.index, sub, p.namespaceOf(sub.Key.Namespace), nil)
}

// FindParent finds the parent by its name, because objects in files have no UIDs.
func (p worldParents) FindParent(sub policymatch.Subject) (policymatch.Subject, bool) {
	key := sub.Parent.Key
	if !p.isNamespaced(policymatch.GroupKindOf(key)) {
		key.Namespace = ""
	}
	t, ok := p.templates[key]
	if !ok {
		return policymatch.Subject{}, false
	}
	return policymatch.SubjectFromObject(t), true
}

// isHubOnly reports whether a template, or the definition of its kind, is stated to stay on the hub.
func (w *World) isHubOnly(key atoll.ItemKey) bool {
	t, ok := w.templates[key]
	if ok && policymatch.IsHubOnly(t.GetLabels(), t.GetAnnotations()) {
		return true
	}
	crd, ok := w.templates[w.definitions[policymatch.GroupKindOf(key)]]
	return ok && policymatch.IsHubOnly(crd.GetLabels(), crd.GetAnnotations())
}

func (s bundleView) IsHubOnly(t *unstructured.Unstructured) bool {
	return s.isHubOnly(policymatch.ItemKeyOf(t))
}
