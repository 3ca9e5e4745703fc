package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// ensureTemplateFinalizer puts the finalizer on a template that is placed, and keeps it there when a
// user replaces the template without it.
func (p *AdmissionPlugin) ensureTemplateFinalizer(a admission.Attributes) error {
	if state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil // not an object that is stored: a review, an eviction
	}
	if obj.GetDeletionTimestamp() != nil || slices.Contains(obj.GetFinalizers(), atoll.Finalizer) {
		return nil
	}
	if before, err := meta.Accessor(a.GetOldObject()); p.Own(a.GetUserInfo()) && a.GetOperation() == admission.Update &&
		err == nil && slices.Contains(before.GetFinalizers(), atoll.Finalizer) {
		return nil // the hub releases it
	}
	hub, ok := p.currentHub()
	if !ok {
		return nil
	}
	if hub.Placed.IsPlacedOrNeeded(subjectOf(a, obj)) {
		obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), atoll.Finalizer))
	}
	return nil
}

func secretType(obj runtime.Object) string {
	if s, ok := obj.(*core.Secret); ok {
		return string(s.Type)
	}
	return ""
}

// validateDelete refuses to delete what is protected, and what would take something
// along that is.
func (p *AdmissionPlugin) validateDelete(ctx context.Context, a admission.Attributes) error {
	if isHubWrittenKind(a) {
		return p.validateHubWrittenKinds(ctx, a)
	}
	if isLeaderLease(a) {
		return p.refuseEscalationInSystemNamespace(ctx, a)
	}
	if a.GetSubresource() != "" || a.GetOldObject() == nil {
		return nil
	}
	obj, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil
	}
	if obj.GetLabels()[atoll.LabelProtected] == "true" {
		return refuseRequest(a, atoll.ReasonProtected, fmt.Errorf("%s is labelled %s=true: take the label off first if it is to go", obj.GetName(), atoll.LabelProtected))
	}
	if a.GetKind().Group == v1alpha1.GroupVersion.Group && !p.Own(a.GetUserInfo()) {
		return p.validateAtollKindDelete(ctx, a, obj)
	}
	if key, found := p.findProtectedContents(a, obj.GetName()); found {
		return refuseRequest(a, atoll.ReasonProtected, fmt.Errorf("with %s goes %s %s, which is labelled %s=true: take that label off first if it is to go",
			obj.GetName(), key.Kind, key.Name, atoll.LabelProtected))
	}
	return nil
}

// findProtectedContents returns a protected object that goes with the Namespace or the kind that is deleted.
func (p *AdmissionPlugin) findProtectedContents(a admission.Attributes, name string) (key atoll.ItemKey, found bool) {
	hub, ok := p.currentHub()
	if !ok {
		return key, false
	}
	switch a.GetKind().GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		return hub.Templates.FirstProtectedTemplate(name)
	case definitions:
		return hub.Templates.FirstProtectedOfKind(kindDefinedByCRD(a.GetOldObject()))
	}
	return key, false
}

// validateAtollKindDelete is for the kinds whose delete changes what others may do.
func (p *AdmissionPlugin) validateAtollKindDelete(ctx context.Context, a admission.Attributes, obj metav1.Object) error {
	switch a.GetKind().Kind {
	case "Cluster":
		before, err := convertTo[v1alpha1.Cluster](a.GetOldObject())
		if err != nil {
			return refuseRequest(a, atoll.ReasonUnreadable, err)
		}
		return p.validateSetMembership(ctx, a, nil, before)
	case "ClusterSet":
		if obj.GetName() == v1alpha1.DefaultClusterSet {
			return refuseRequest(a, atoll.ReasonProtected, errDefaultSet)
		}
	case "ClusterSetBinding":
		return p.validateRightToUnbindSet(ctx, a)
	case hubSettingsKind:
		return p.validateFreeze(ctx, a)
	}
	return nil
}

var definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// kindDefinedByCRD returns the kind that a CRD defines.
func kindDefinedByCRD(obj runtime.Object) schema.GroupKind {
	if crd, ok := obj.(*apiextensions.CustomResourceDefinition); ok {
		return schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	}
	return schema.GroupKind{}
}

// isGarbageCollection reports whether the garbage collector follows a user's delete: what
// is protected does not go with its owner either.
func isGarbageCollection(a admission.Attributes) bool {
	return a.GetOperation() == admission.Delete && a.GetUserInfo().GetName() == collector
}

const collector = "system:controller:generic-garbage-collector"

// validateClustersAnnotation checks a new value of atoll.dev/clusters, and that its writer
// may read what it places.
func (p *AdmissionPlugin) validateClustersAnnotation(ctx context.Context, a admission.Attributes) error {
	now, before, err := objectMetas(a)
	if err != nil {
		return nil // not an object that is stored
	}
	value, ok := now.GetAnnotations()[atoll.AnnotationClusters]
	if !ok {
		return nil
	}
	if before != nil {
		if old, had := before.GetAnnotations()[atoll.AnnotationClusters]; had && old == value {
			return nil
		}
	}
	path := field.NewPath("metadata", "annotations").Key(atoll.AnnotationClusters)
	invalid := func(why string) error {
		return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(path, value, why))
	}
	if state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return invalid(fmt.Sprintf("a %s cannot be placed", a.GetKind().Kind))
	}
	placement, err := policymatch.ParseClustersAnnotation(value)
	if err != nil {
		return invalid(err.Error())
	}
	if aff := placement.ClusterAffinity; aff != nil {
		for _, e := range policycheck.CheckLabelSelector(aff.LabelSelector, path) {
			return invalid(fmt.Sprintf("%v: %s", e.BadValue, e.Detail))
		}
	}
	warnOfSystemNamespace(ctx, a, value)
	return p.checkClustersAnnotationRights(ctx, a, &placement, before, path)
}

// validateAtollKeys checks new values of labels and annotations that state how Atoll treats an object.
func validateAtollKeys(a admission.Attributes) error {
	now, before, err := objectMetas(a)
	if err != nil {
		return nil // not an object that is stored
	}
	isNamespace := a.GetKind().Group == "" && a.GetKind().Kind == "Namespace"
	if err = checkAtollKeysOf(isNamespace, now); err == nil || before != nil && checkAtollKeysOf(isNamespace, before) != nil {
		return nil // what was stored before is no new statement
	}
	return refuseRequest(a, atoll.ReasonInvalidField, err)
}

func checkAtollKeysOf(isNamespace bool, o metav1.Object) error {
	if err := policymatch.CheckAtollKeys(o.GetLabels(), o.GetAnnotations()); err != nil {
		return err
	}
	return policymatch.CheckServiceAccountAnnotation(isNamespace, o.GetAnnotations())
}

// checkClustersAnnotationRights reports whether the writer may read what the annotation places, and the
// namespace may place on those clusters.
func (p *AdmissionPlugin) checkClustersAnnotationRights(ctx context.Context, a admission.Attributes, placement *v1alpha1.PlacementSpec, before metav1.Object, path *field.Path) error {
	var need []requiredRead
	namespace := a.GetNamespace()
	switch isNamespace := a.GetKind().Group == "" && a.GetKind().Kind == "Namespace"; {
	case isNamespace:
		namespace = a.GetName()
		need = p.requiredNamespaceReads(namespace)
	case atoll.IsNowhere(*placement):
		return nil // it shows the writer nothing
	default:
		gk := a.GetKind().GroupKind()
		need = append(requiredDependencyReads(namespace), requiredRead{kind: gk, resource: a.GetResource().GroupResource(), namespace: namespace, name: a.GetName()})
	}
	refuse := func(reason atoll.Reason, err error) error {
		return refuseRequest(a, reason, fmt.Errorf("annotation %s: %w", atoll.AnnotationClusters, err))
	}
	if err := p.mayRead(ctx, a.GetUserInfo(), need); err != nil {
		return refuse(atoll.ReasonPermissionMissing, err)
	}
	switch {
	case atoll.IsNowhere(*placement):
	case namespace == "":
		if err := p.checkMayPlaceClusterScoped(ctx, a.GetUserInfo()); err != nil {
			return refuse(atoll.ReasonPermissionMissing, err)
		}
	default:
		var had []placementReference
		if before != nil {
			if old, err := policymatch.ParseClustersAnnotation(before.GetAnnotations()[atoll.AnnotationClusters]); err == nil && !atoll.IsNowhere(old) {
				had = placementReferences(&old, path)
			}
		}
		for _, e := range p.checkPlacementReferences(namespace, placementReferences(placement, path), had, path) {
			return refuse(atoll.ReasonOutsideBoundSets, errors.New(e.Detail))
		}
	}
	return nil
}
