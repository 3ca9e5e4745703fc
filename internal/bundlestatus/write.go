package bundlestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// ErrNoStatus means that a kind has no status of its own to be written.
var ErrNoStatus = errors.New("the kind has no status subresource")

// Writer makes the writes. All are fenced by the version of the passed object: a conflict error
// (apierrors.IsConflict) means that it has changed since.
type Writer interface {
	// WriteBundleStatus replaces the status of a Bundle.
	WriteBundleStatus(ctx context.Context, b state.Bundle, status v1alpha1.BundleStatus) error
	// WriteTemplateStatus replaces the status of a template and gives the template as it
	// was stored, or ErrNoStatus.
	WriteTemplateStatus(ctx context.Context, t *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error)
	// RemoveFinalizer takes a finalizer off an object; one that is gone is no error.
	RemoveFinalizer(ctx context.Context, obj client.Object, finalizer string) error
	// DeleteSlice deletes a TargetSlice; one that is gone is no error.
	DeleteSlice(ctx context.Context, s *enginev1.TargetSlice) error
	// NamespaceExists reads from the API server, not from a table.
	NamespaceExists(ctx context.Context, name, uid string) (bool, error)
}

// fieldManager of what this package writes.
const fieldManager = client.FieldOwner(atoll.HubFieldManager)

// APIWriter writes to the hub's API server.
type APIWriter struct {
	Client    client.Client
	Bundles   Bundles
	Templates Templates
}

var _ Writer = (*APIWriter)(nil)

// WriteBundleStatus implements Writer; the table has the Bundle as stored when it
// returns.
func (w *APIWriter) WriteBundleStatus(ctx context.Context, b state.Bundle, status v1alpha1.BundleStatus) error {
	b.Status = status
	obj := b.ToObject()
	if err := w.Client.Status().Update(ctx, obj); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.Bundles.Put(obj)
	return nil
}

// operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// resourceVersionFence makes a patch fail when the object was changed since.
func resourceVersionFence(obj client.Object) operation {
	return operation{Op: "replace", Path: "/metadata/resourceVersion", Value: obj.GetResourceVersion()}
}

func newJSONPatch(ops ...operation) (client.Patch, error) {
	data, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

// objectStub is an object of which only the name counts.
func objectStub(obj client.Object, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	return u
}

// WriteTemplateStatus implements Writer.
func (w *APIWriter) WriteTemplateStatus(ctx context.Context, t *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	if !w.hasStatusSubresource(t) {
		return nil, ErrNoStatus
	}
	p, err := newJSONPatch(resourceVersionFence(t), operation{Op: "add", Path: "/status", Value: status})
	if err != nil {
		return nil, err
	}
	stored := objectStub(t, t.GroupVersionKind())
	if err := w.Client.Status().Patch(ctx, stored, p, fieldManager); err != nil {
		return nil, err
	}
	return stored, nil
}

// hasStatusSubresource reads the CRD of a custom kind; built-in kinds that get a status here
// all have the subresource.
func (w *APIWriter) hasStatusSubresource(t *unstructured.Unstructured) bool {
	gvk := t.GroupVersionKind()
	resource, ok := w.Templates.ResourceOfKey(atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Name: t.GetName()})
	if !ok {
		return false
	}
	crd, ok := w.Templates.Get(atoll.ItemKey{
		Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: resource.Resource + "." + resource.Group,
	})
	if !ok {
		return true
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		vm, _ := v.(map[string]any)
		_, has, _ := unstructured.NestedMap(vm, "subresources", "status")
		return has && vm["name"] == gvk.Version
	})
}

// RemoveFinalizer implements Writer.
func (w *APIWriter) RemoveFinalizer(ctx context.Context, obj client.Object, finalizer string) error {
	rest := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == finalizer })
	gvk, err := w.Client.GroupVersionKindFor(obj)
	if err != nil {
		return fmt.Errorf("kind of what is to be released: %w", err)
	}
	ops := []operation{resourceVersionFence(obj), {Op: "remove", Path: "/metadata/finalizers"}}
	if len(rest) > 0 {
		ops[1] = operation{Op: "replace", Path: "/metadata/finalizers", Value: rest}
	}
	p, err := newJSONPatch(ops...)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(w.Client.Patch(ctx, objectStub(obj, gvk), p, fieldManager))
}

// DeleteSlice implements Writer.
func (w *APIWriter) DeleteSlice(ctx context.Context, s *enginev1.TargetSlice) error {
	uid, version := s.UID, s.ResourceVersion
	err := w.Client.Delete(ctx, s.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// NamespaceExists implements Writer.
func (w *APIWriter) NamespaceExists(ctx context.Context, name, uid string) (bool, error) {
	var ns corev1.Namespace
	if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, &ns); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("look for namespace %s: %w", name, err)
	}
	return string(ns.UID) == uid, nil
}
