package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// keepOnHub keeps an object on the hub that only the default placement, or a parent without a
// namespace, would send to members, where its writer may not place objects without a namespace. The
// annotation that keeps it there stays until a writer with that right removes it.
func (p *AdmissionPlugin) keepOnHub(ctx context.Context, a admission.Attributes) {
	if p.Own(a.GetUserInfo()) || state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return
	}
	now, before, err := objectMetas(a)
	if err != nil || !mayBePlacedFromOutside(a, now, before) {
		return // not an object that is stored, or no new placement
	}
	hub, ok := p.currentHub()
	if !ok || !hub.Placed.IsPlacedFromOutsideNamespace(subjectOf(a, now)) {
		return
	}
	missing := p.checkMayPlaceClusterScoped(ctx, a.GetUserInfo())
	if missing == nil {
		return
	}
	annotations := map[string]string{atoll.AnnotationClusters: ""}
	for k, v := range now.GetAnnotations() {
		annotations[k] = v
	}
	now.SetAnnotations(annotations)
	warning.AddWarning(ctx, "", "it stays on the hub: "+missing.Error())
}

// mayBePlacedFromOutside reports whether a write can begin to place the object from outside of its
// namespace, and states nothing about that itself.
func mayBePlacedFromOutside(a admission.Attributes, now, before metav1.Object) bool {
	if _, stated := now.GetAnnotations()[atoll.AnnotationClusters]; stated || a.GetNamespace() != "" && parentUID(now) == "" {
		return false
	}
	return before == nil || hasEmptyClustersAnnotation(before) || parentUID(before) != parentUID(now)
}

// parentUID returns the UID in an object's controller reference.
func parentUID(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return ref.UID
	}
	return ""
}

// hasEmptyClustersAnnotation reports whether an annotation keeps the object on the hub.
func hasEmptyClustersAnnotation(o metav1.Object) bool {
	value, stated := policymatch.ClustersAnnotation(o.GetAnnotations())
	return stated && value == ""
}

// warnOfUnplaced warns the writer of a new object that nothing places, with the command that does.
func (p *AdmissionPlugin) warnOfUnplaced(ctx context.Context, a admission.Attributes) {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" || a.GetNamespace() == "" ||
		p.Own(a.GetUserInfo()) || isPlanDryRun(a) || state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil || slices.Contains(obj.GetFinalizers(), atoll.Finalizer) {
		return // not an object that is stored, or one that is placed
	}
	hub, ok := p.currentHub()
	if !ok || !hub.Placed.IsUnexpectedlyUnplaced(subjectOf(a, obj)) {
		return
	}
	warning.AddWarning(ctx, "", "nothing places it, so that it stays on the hub. To place it: "+
		atoll.PlaceEverywhereCommand(a.GetResource().GroupResource().String(), a.GetNamespace(), a.GetName()))
}

// warnOfTwoControllers warns the controller that makes an object of a parent on which a controller in
// members may act, too.
func (p *AdmissionPlugin) warnOfTwoControllers(ctx context.Context, a admission.Attributes) {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" ||
		p.Own(a.GetUserInfo()) || isPlanDryRun(a) || state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil || metav1.GetControllerOfNoCopy(obj) == nil {
		return
	}
	hub, ok := p.currentHub()
	if !ok {
		return
	}
	if text := hub.Placed.TwoControllersWarning(subjectOf(a, obj)); text != "" {
		warning.AddWarning(ctx, "", text)
	}
}

// unreadAnnotations are the checks of what annotations of other systems state and the hub does not read.
var unreadAnnotations = []func(annotations map[string]string) error{policymatch.CheckArgoCDWave, policymatch.CheckArgoCDHook}

// warnOfUnreadAnnotations warns the writer of what the hub does not read of Argo CD's annotations. A former value is no new
// statement.
func (p *AdmissionPlugin) warnOfUnreadAnnotations(ctx context.Context, a admission.Attributes) {
	if a.GetOperation() == admission.Delete || a.GetSubresource() != "" ||
		p.Own(a.GetUserInfo()) || isPlanDryRun(a) || state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return
	}
	now, before, err := objectMetas(a)
	if err != nil {
		return // not an object that is stored
	}
	for _, check := range unreadAnnotations {
		unread := check(now.GetAnnotations())
		if unread == nil {
			continue
		}
		if before != nil {
			if former := check(before.GetAnnotations()); former != nil && former.Error() == unread.Error() {
				continue
			}
		}
		warning.AddWarning(ctx, "", unread.Error())
	}
}

// warnOfSystemNamespace warns that the annotation of a system namespace places nothing in it.
func warnOfSystemNamespace(ctx context.Context, a admission.Attributes, value string) {
	if kind := a.GetKind(); kind.Group == "" && kind.Kind == "Namespace" && value != "" && policymatch.IsSystemNamespace(a.GetName()) {
		warning.AddWarning(ctx, "", fmt.Sprintf("%s places nothing in the system namespace %s: annotate the objects in it that are to be placed", atoll.AnnotationClusters, a.GetName()))
	}
}

// subjectOf returns the object that is written as policies see it.
func subjectOf(a admission.Attributes, obj metav1.Object) policymatch.Subject {
	key := atoll.ItemKey{Group: a.GetKind().Group, Kind: a.GetKind().Kind, Namespace: a.GetNamespace(), Name: a.GetName()}
	if key.IsNamespace() {
		key.Namespace = "" // a request names it twice
	}
	return policymatch.NewSubject(key, obj, secretType(a.GetObject()))
}
