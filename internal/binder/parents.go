package binder

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/policymatch"
)

// childPlacement returns where objects go that controllers on the hub make of placed objects.
func (b *Binder) childPlacement() v1alpha1.ChildPlacement {
	if b.Settings == nil {
		return v1alpha1.ChildPlacementNone
	}
	return b.Settings.ChildPlacement()
}

func (b *Binder) childrenFollowParents() bool {
	return b.childPlacement() == v1alpha1.ChildPlacementParent
}

// parentTables answers policymatch.DecideWithParents from the tables.
type parentTables struct{ *Binder }

func (p parentTables) DecideWithoutParent(sub policymatch.Subject) policymatch.Decision {
	return p.decideWithoutParent(sub)
}

func (p parentTables) FindParent(sub policymatch.Subject) (policymatch.Subject, bool) {
	t, ok := p.findParent(sub.Parent)
	if !ok || t.GetDeletionTimestamp() != nil {
		return policymatch.Subject{}, false
	}
	return policymatch.SubjectFromObject(t), true
}

// findParent returns the template that a controller reference names: that of the same UID, in the
// namespace of the child or without one.
func (b *Binder) findParent(ref policymatch.ParentRef) (*unstructured.Unstructured, bool) {
	namespaced, known := b.Kinds.IsNamespaced(ref.Key.Group, ref.Key.Kind)
	if !known || namespaced && ref.Key.Namespace == "" {
		return nil, false
	}
	key := ref.Key
	if !namespaced {
		key.Namespace = ""
	}
	t, ok := b.Templates.Get(key)
	return t, ok && string(t.GetUID()) == ref.UID
}

// findAncestor returns the parent, or a parent of it, that has the UID.
func (b *Binder) findAncestor(key atoll.ItemKey, uid string) (atoll.ItemKey, bool) {
	t, ok := b.Templates.Get(key)
	for range policymatch.MaxAncestors {
		if !ok || uid == "" {
			break
		}
		if t, ok = b.findParent(policymatch.SubjectFromObject(t).Parent); ok && string(t.GetUID()) == uid {
			return policymatch.ItemKeyOf(t), true
		}
	}
	return atoll.ItemKey{}, false
}

// annotatedObject returns the object whose annotation a Bundle comes from. After a start, the content
// of the Bundle does not show it where the object itself stays on the hub.
func (b *Binder) annotatedObject(id policymatch.BundleID, from bundleOrigin) atoll.ItemKey {
	if from.annotatedObject != (atoll.ItemKey{}) {
		return from.annotatedObject
	}
	for _, key := range b.ownership.ownItems(id) {
		if found, ok := b.findAncestor(key, from.source.UID); ok {
			return found
		}
	}
	return atoll.ItemKey{}
}

// unsyncedParentKind returns the kind of a parent that is not read yet; false when there is none. A
// kind that the hub does not serve has no parents.
func (b *Binder) unsyncedParentKind(keys []atoll.ItemKey) (schema.GroupKind, bool) {
	if !b.childrenFollowParents() {
		return schema.GroupKind{}, false
	}
	for _, key := range keys {
		t, ok := b.Templates.Get(key)
		if !ok {
			continue
		}
		parent := policymatch.SubjectFromObject(t).Parent.Key
		gk := policymatch.GroupKindOf(parent)
		if parent.Kind != "" && !b.Kinds.IsSynced(gk.Group, gk.Kind) && b.isServed(gk) {
			return gk, true
		}
	}
	return schema.GroupKind{}, false
}

// isServed reports whether the hub serves the kind, or is about to: a CRD defines it.
func (b *Binder) isServed(gk schema.GroupKind) bool {
	if _, known := b.Kinds.IsNamespaced(gk.Group, gk.Kind); known {
		return !atoll.IsHubOwnedKind(gk)
	}
	return slices.ContainsFunc(b.Templates.ListOfKind(crdKind, ""), func(crd *unstructured.Unstructured) bool { return kinds.DefinedKind(crd) == gk })
}

// parentChanged decides again about the children of an object that is new, or in another Bundle than
// before.
func (b *Binder) parentChanged(t *unstructured.Unstructured, isKnown bool, before policymatch.BundleID) {
	if isKnown && before == b.ownership.placingBundle(policymatch.ItemKeyOf(t)) {
		return
	}
	for _, child := range b.ownership.childrenOf(string(t.GetUID())) {
		b.events.put(tableEvent{template: child, force: true})
	}
}

// childPlacementChanged decides again about all objects of controllers, because only people edit the
// settings.
func (b *Binder) childPlacementChanged() {
	now := b.childPlacement()
	if now == b.lastChildPlacement {
		return
	}
	for _, child := range b.ownership.allChildren() {
		b.events.put(tableEvent{template: child, force: true})
	}
	b.lastChildPlacement = now
}

// isHubOnly reports whether an object, or the CRD of its kind, is stated to stay on the hub.
func (b *Binder) isHubOnly(key atoll.ItemKey, labels, annotations map[string]string) bool {
	return b.hubOnlyReason(key, labels, annotations) != ""
}

// hubOnlyReason returns why an object stays on the hub wherever it is placed; empty when it does not.
func (b *Binder) hubOnlyReason(key atoll.ItemKey, labels, annotations map[string]string) string {
	if policymatch.IsHubOnly(labels, annotations) {
		return "it has " + atoll.KeyHubOnly + `: "true"`
	}
	if !kinds.IsCustomKind(policymatch.GroupKindOf(key)) {
		return ""
	}
	crd, ok := b.definingCRD(key)
	if !ok {
		return ""
	}
	if t, ok := b.Templates.Get(crd); ok && policymatch.IsHubOnly(t.GetLabels(), t.GetAnnotations()) {
		return fmt.Sprintf(`the definition of its kind, %s, has %s: "true"`, crd.Name, atoll.KeyHubOnly)
	}
	return ""
}

// crdHubOnlyChanged handles the objects of a kind whose CRD begins or ceases to keep them on the hub.
// It reads all objects of the kind, because only people edit CRDs.
func (b *Binder) crdHubOnlyChanged(crd *unstructured.Unstructured, before, now templateState) {
	if before.isHubOnly == now.isHubOnly || crd.GroupVersionKind().GroupKind() != crdKind {
		return
	}
	for _, ns := range append([]string{""}, b.Namespaces.List()...) {
		for _, t := range b.Templates.ListOfKind(kinds.DefinedKind(crd), ns) {
			b.events.put(tableEvent{template: policymatch.ItemKeyOf(t), force: true})
		}
	}
}

// TwoControllersWarning warns of an object that is being written by a controller on the hub, while
// members get its parent and the definition of its parent; empty: there is nothing to warn of.
func (b *Binder) TwoControllersWarning(sub policymatch.Subject) string {
	d, _ := b.decidePlacingSource(sub)
	return b.twoControllersWarning(d)
}

func (b *Binder) twoControllersWarning(d policymatch.Decision) string {
	if d.Winner == nil || d.Parent == nil || atoll.IsNowhere(d.Winner.Spec.Placement) {
		return ""
	}
	parent := d.Parent
	crd, ok := b.definingCRD(parent.Key)
	if !ok || b.isHubOnly(parent.Key, parent.Labels, parent.Annotations) || !d.Winner.Spec.PropagateDeps && !b.isUsedByBundle(policymatch.Subject{Key: crd}) {
		return ""
	}
	return fmt.Sprintf("a controller on the hub acts on %s %s, and members get it with its definition, so that a controller there may act on it, too. To keep it on the hub: %s",
		parent.Key.Kind, parent.Key.Name, atoll.HubOnlyCommand(b.kubectlResourceName(parent.Key), parent.Key.Namespace, parent.Key.Name))
}

// recordTwoControllersEvent records the warning as an Event of the parent, once for each parent and only
// about new children.
func (b *Binder) recordTwoControllersEvent(child *unstructured.Unstructured, d policymatch.Decision) {
	if b.ReadOnly || b.Events == nil || d.Parent == nil || time.Since(child.GetCreationTimestamp().Time) > unplacedEventMaxAge || b.warnedParents[d.Parent.Key] == d.Parent.UID {
		return
	}
	if warning := b.twoControllersWarning(d); warning != "" {
		b.warnedParents[d.Parent.Key] = d.Parent.UID
		b.Events.RecordRefusal(d.Parent.Key, atoll.ReasonTwoControllers, warning)
	}
}
