package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// SupposedWrite is a write of an object that is not carried out.
type SupposedWrite struct {
	// Object as it would be, or, Deleted, as it is.
	Object  *unstructured.Unstructured
	Deleted bool
	// Before is the object as it is; nil: there is none, or it is unknown. Exists reports that
	// there is one.
	Before *unstructured.Unstructured
	Exists bool
}

// WithSets returns the plugin as it would admit with these sets and listed properties.
func (p *AdmissionPlugin) WithSets(sets Sets, properties []string) *AdmissionPlugin {
	out := *p
	out.Hub = func() (Hub, bool) {
		hub, ok := p.currentHub()
		hub.Sets, hub.Properties = sets, supposedProperties(properties)
		return hub, ok
	}
	out.Foretell = nil
	return &out
}

// supposedProperties are Properties that are listed.
type supposedProperties []string

func (l supposedProperties) PlacementPropertyNames() []string { return l }

// RefusalFor returns why the user may not make the write: by RBAC or by Atoll's own admission. The
// answer about a supposed write goes only to users that may make it.
func (p *AdmissionPlugin) RefusalFor(ctx context.Context, u user.Info, s SupposedWrite) error {
	gvk := s.Object.GroupVersionKind()
	resource := p.resourceOf(gvk.GroupKind())
	if err := p.mayWrite(ctx, u, s, resource); err != nil {
		return err
	}
	a := s.buildAttributes(u, resource)
	switch {
	case p.Own(u):
		return nil
	case s.Deleted:
		return p.validateDelete(ctx, a)
	case isHubWrittenKind(a):
		return refuseRequest(a, atoll.ReasonWrittenByHub, errors.New("only the hub writes it"))
	}
	if err := p.validateAnnotations(ctx, a); err != nil || !atoll.IsHubOwnedKind(gvk.GroupKind()) {
		return err
	}
	return p.validateAtollKinds(ctx, a)
}

// mayWrite refuses a write for which the user has none of the verbs.
func (p *AdmissionPlugin) mayWrite(ctx context.Context, u user.Info, s SupposedWrite, resource schema.GroupResource) error {
	verbs := []string{"create"}
	switch {
	case s.Deleted:
		verbs = []string{"delete"}
	case s.Exists:
		verbs = []string{"update", "patch"}
	}
	at := requiredRead{resource: resource, namespace: s.Object.GetNamespace(), name: s.Object.GetName()}
	if slices.ContainsFunc(verbs, func(verb string) bool { return p.isAllowed(ctx, u, verb, at) }) {
		return nil
	}
	where := "at the cluster scope"
	if at.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", at.namespace)
	}
	err := fmt.Errorf("user %q cannot %s resource %q in API group %q %s", u.GetName(), verbs[0], resource.Resource, resource.Group, where)
	return refusal.WithReason(atoll.ReasonPermissionMissing, apierrors.NewForbidden(resource, at.name, err))
}

// buildAttributes returns the write as a request. An update whose object before it is not known counts as a creation,
// for which admission is as strict as for the creator.
func (s SupposedWrite) buildAttributes(u user.Info, resource schema.GroupResource) admission.Attributes {
	gvk := s.Object.GroupVersionKind()
	var obj, old runtime.Object = s.Object, nil
	op := admission.Create
	if s.Before != nil {
		old = s.Before
	}
	switch {
	case s.Deleted:
		op, obj = admission.Delete, nil
		if old == nil {
			old = s.Object
		}
	case s.Exists && old != nil:
		op = admission.Update
	}
	return admission.NewAttributesRecord(obj, old, gvk, s.Object.GetNamespace(), s.Object.GetName(), schema.GroupVersionResource{Group: resource.Group, Version: gvk.Version, Resource: resource.Resource},
		"", op, &metav1.CreateOptions{FieldManager: atoll.PlanManager}, true, u)
}
