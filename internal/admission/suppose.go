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
)

// Supposed write of an object that nobody makes.
type Supposed struct {
	// Object as it would be, or, Deleted, as it is.
	Object  *unstructured.Unstructured
	Deleted bool
	// Before is the object as it is; nil: there is none, or nobody knows. Exists tells
	// that there is one.
	Before *unstructured.Unstructured
	Exists bool
}

// With gives the plugin as it would admit with these sets and listed properties.
func (p *Plugin) With(sets Sets, properties []string) *Plugin {
	out := *p
	out.Sets = func() (Sets, bool) { return sets, true }
	out.Properties = func() []string { return properties }
	out.Foretell = nil
	return &out
}

// Refusal tells why the user may not make the write: neither RBAC nor Atoll's own admission
// may stand against it. What is asked about writes that nobody makes is told to who may
// make them, and to nobody else.
func (p *Plugin) Refusal(ctx context.Context, u user.Info, s Supposed) error {
	gvk := s.Object.GroupVersionKind()
	resource := p.resource(gvk.GroupKind())
	ns, name := s.Object.GetNamespace(), s.Object.GetName()
	op, verbs := admission.Create, []string{"create"}
	switch {
	case s.Deleted:
		op, verbs = admission.Delete, []string{"delete"}
	case s.Exists:
		op, verbs = admission.Update, []string{"update", "patch"}
	}
	at := access{resource: resource, namespace: ns, name: name}
	if !slices.ContainsFunc(verbs, func(verb string) bool { return p.allowed(ctx, u, verb, at) }) {
		where := "at the cluster scope"
		if ns != "" {
			where = fmt.Sprintf("in the namespace %q", ns)
		}
		return apierrors.NewForbidden(resource, name, fmt.Errorf("user %q cannot %s resource %q in API group %q %s", u.GetName(), verbs[0], resource.Resource, resource.Group, where))
	}
	var obj, old runtime.Object = s.Object, nil
	if s.Before != nil {
		old = s.Before
	}
	if s.Deleted {
		obj = nil
		if old == nil {
			old = s.Object
		}
	} else if op == admission.Update && old == nil {
		op = admission.Create // as strict as for who makes it anew
	}
	a := admission.NewAttributesRecord(obj, old, gvk, ns, name, schema.GroupVersionResource{Group: resource.Group, Version: gvk.Version, Resource: resource.Resource}, "", op, &metav1.CreateOptions{FieldManager: atoll.PlanManager}, true, u)
	switch {
	case p.Own(u):
		return nil
	case s.Deleted:
		return p.validateDelete(ctx, a)
	case gvk.Group == engineGroup || isBundle(a) || isDecision(a):
		return admission.NewForbidden(a, errors.New("only the hub writes it"))
	}
	if err := p.validateAnnotation(ctx, a); err != nil || !atoll.OwnKind(gvk.GroupKind()) {
		return err
	}
	return p.validateOurs(ctx, a)
}
