package objectdiff

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestManagersOf(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "scaler", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)},
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a/b":{}}},"f:spec":{"f:replicas":{},"f:ports":{"k:{\"port\":1}":{"f:name":{}}}}}`)},
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`), Subresource: "scale"},
		{Manager: "broken", FieldsV1: metav1.NewFieldsV1(`[]`)},
		{Manager: "none"},
	})
	for path, want := range map[string][]string{
		"/spec/replicas": {"kubectl", "scaler"}, "/spec": {"kubectl", "scaler"}, "/metadata/labels/a~1b": {"kubectl"},
		"/spec/ports/0/name": {"kubectl"}, "/spec/ports/name=a": {"kubectl"}, "/spec/paused": nil, "/data/a": nil, "spec": nil,
	} {
		if got := ManagersOf(obj).OfField(path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
