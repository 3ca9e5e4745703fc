package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/state"
)

// hold puts the finalizer on a template that is placed, and keeps it there when a
// user replaces the template without it.
func (p *Plugin) hold(a admission.Attributes) error {
	if state.NeverTemplate(a.GetKind().GroupKind()) {
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
	hub, ok := p.Hub()
	if !ok {
		return nil
	}
	sub := bind.SubjectOf(atoll.ItemKey{
		Group: a.GetKind().Group, Kind: a.GetKind().Kind, Namespace: a.GetNamespace(), Name: a.GetName(),
	}, obj, secretType(a.GetObject()))
	if hub.Holds(sub) {
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

// validateDelete refuses to delete what is protected.
func (p *Plugin) validateDelete(a admission.Attributes) error {
	if a.GetKind().Group == engineGroup || isBundle(a) {
		return validateEngine(a)
	}
	if a.GetSubresource() != "" || a.GetOldObject() == nil {
		return nil
	}
	obj, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil
	}
	if obj.GetLabels()[atoll.LabelProtected] == "true" {
		return admission.NewForbidden(a, fmt.Errorf("it is labelled %s=true: take the label off first if it is to go", atoll.LabelProtected))
	}
	if a.GetKind().Group != "" || a.GetKind().Kind != "Namespace" {
		return nil
	}
	if hub, ok := p.Hub(); ok {
		if key, found := hub.Protected(a.GetName()); found {
			return admission.NewForbidden(a, fmt.Errorf("it holds %s %s, which is labelled %s=true", key.Kind, key.Name, atoll.LabelProtected))
		}
	}
	return nil
}

// validateAnnotation checks a new value of atoll.dev/clusters, and that its writer
// may read what it places.
func (p *Plugin) validateAnnotation(ctx context.Context, a admission.Attributes) error {
	if a.GetObject() == nil {
		return nil
	}
	now, before, err := metas(a)
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
	invalid := func(reason string) error {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{field.Invalid(path, value, reason)})
	}
	if state.NeverTemplate(a.GetKind().GroupKind()) {
		return invalid(fmt.Sprintf("a %s cannot be placed", a.GetKind().Kind))
	}
	if _, err := bind.ParseClusters(value); err != nil {
		return invalid(err.Error())
	}
	var need []access
	if a.GetKind().Group == "" && a.GetKind().Kind == "Namespace" {
		need = p.everything(a.GetName())
	} else {
		gk := a.GetKind().GroupKind()
		need = append(dependencies(a.GetNamespace()), access{kind: gk, resource: a.GetResource().GroupResource(), namespace: a.GetNamespace(), name: a.GetName()})
	}
	if err := p.mayRead(ctx, a.GetUserInfo(), need); err != nil {
		return admission.NewForbidden(a, errors.Join(fmt.Errorf("annotation %s", atoll.AnnotationClusters), err))
	}
	return nil
}
