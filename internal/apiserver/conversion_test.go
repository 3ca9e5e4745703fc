package apiserver_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/testwait"
)

func testRowResource(group string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "testrows"}
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {name: widgets, namespace: widgets, path: /convert}}
  versions:
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              port: {type: string}
              old: {type: string}
              tuned: {type: boolean, default: false}
              list: {type: array, items: {type: object, properties: {a: {type: string}, gone: {type: string}}}}
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              port: {type: integer}
              fresh: {type: string}
              list: {type: array, items: {type: object, properties: {a: {type: string}}}}
          status: {type: object, properties: {seen: {type: integer}}}
`

func TestConversionWebhooksAreSetAside(t *testing.T) {
	u := newAdmin(t, hub)
	const group = "aside.example.com"
	manifest := fmt.Sprintf(widgets, group)
	u.createDefinition(manifest, "widgets."+group)
	crds := u.resourceClient("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	get := func() *unstructured.Unstructured {
		t.Helper()
		crd, err := crds.Get(t.Context(), "widgets."+group, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return crd
	}
	expect := func(strategy string, kept bool) {
		t.Helper()
		crd := get()
		got, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
		annotation := crd.GetAnnotations()["atoll.dev/conversion"]
		if got != strategy || (annotation != "") != kept {
			t.Errorf("strategy %q, kept %q", got, annotation)
		}
		if kept && !strings.Contains(annotation, `"path":"/convert"`) {
			t.Errorf("kept %q", annotation)
		}
	}
	expect("None", true)
	before := userPart(get())
	u.mustApply(manifest)
	if after := userPart(get()); !reflect.DeepEqual(after, before) {
		t.Errorf("applying the same again wrote: %v, then %v", before, after)
	}
	expect("None", true)
	if _, err := crds.Update(t.Context(), get(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("None", true)

	label := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":{"atoll.dev/hub":%q}}}`, value)
		if _, err := crds.Patch(t.Context(), "widgets."+group, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label("true")
	expect("Webhook", false)
	label("false")
	expect("None", true)

	start := strings.Index(manifest, "  conversion:")
	end := strings.Index(manifest, "  versions:")
	u.mustApply(manifest[:start] + manifest[end:])
	expect("None", false)
}

// userPart of a definition is all but its status, which the hub goes on to write for a
// while after it is established.
func userPart(crd *unstructured.Unstructured) *unstructured.Unstructured {
	unstructured.RemoveNestedField(crd.Object, "status")
	crd.SetResourceVersion("")
	crd.SetManagedFields(slices.DeleteFunc(crd.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "status" }))
	return crd
}

func TestLossyVersionsAreRefused(t *testing.T) {
	u := newAdmin(t, hub)
	const group = "lossy.example.com"
	u.createDefinition(fmt.Sprintf(widgets, group), "widgets."+group)
	ns := u.createNamespace("lossy")
	beta, stable := u.resourceClient(group, "v1beta1", "widgets").Namespace(ns), u.resourceClient(group, "v1", "widgets").Namespace(ns)
	widget := func(version, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/" + version, "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	for path, spec := range map[string]map[string]any{
		"spec.old":          {"old": "x"},
		"spec.tuned":        {"tuned": true},
		"spec.list[0].gone": {"list": []any{map[string]any{"a": "1", "gone": "2"}}},
		"spec.port":         {"port": "http"},
	} {
		_, err := beta.Create(t.Context(), widget("v1beta1", "bad", spec), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), group+"/v1") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := beta.Create(t.Context(), widget("v1beta1", "fine", map[string]any{"size": int64(1), "list": []any{map[string]any{"a": "1"}}}), metav1.CreateOptions{}); err != nil {
		t.Fatalf("what both versions hold is refused: %v", err)
	}
	seen, err := stable.Get(t.Context(), "fine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unstructured.SetNestedField(seen.Object, "x", "spec", "fresh")
	if _, err := stable.Update(t.Context(), seen, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("the stored version is refused: %v", err)
	}
	testwait.Until(t, "an edit in the old version is refused", func(ctx context.Context) (bool, string) {
		old, err := beta.Get(ctx, "fine", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		unstructured.SetNestedField(old.Object, int64(2), "spec", "size")
		_, err = beta.Update(ctx, old, metav1.UpdateOptions{})
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.fresh"), fmt.Sprint(err)
	})
	if err := beta.Delete(t.Context(), "fine", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting in the old version: %v", err)
	}
}
