package observe

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// managedDeployment has the managedFields of a Deployment that a member runs.
const managedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: u1
  resourceVersion: "7"
  generation: 1
  labels: {atoll.dev/bundle-uid: b1, atoll.dev/template-uid: t1, app: web}
  annotations: {deployment.kubernetes.io/revision: "1"}
  managedFields:
  - manager: atoll
    operation: Apply
    apiVersion: apps/v1
    time: "2026-01-01T00:00:00Z"
    fieldsType: FieldsV1
    fieldsV1:
      f:metadata: {f:labels: {f:atoll.dev/bundle-uid: {}, f:atoll.dev/template-uid: {}, f:app: {}}}
      f:spec:
        f:replicas: {}
        f:selector: {}
        f:template:
          f:metadata: {f:labels: {f:app: {}}}
          f:spec:
            f:containers: {'k:{"name":"<app> & more"}': {.: {}, f:image: {}, f:name: {}, f:ports: {'k:{"containerPort":80,"protocol":"TCP"}': {.: {}, f:containerPort: {}}}}}
            f:finalizers: {'v:"a\u2028b"': {}}
  - manager: kube-controller-manager
    operation: Update
    apiVersion: apps/v1
    time: "2026-01-01T00:00:00Z"
    subresource: status
    fieldsType: FieldsV1
    fieldsV1:
      f:status: {f:availableReplicas: {}, f:conditions: {.: {}, 'k:{"type":"Available"}': {.: {}, f:status: {}, f:type: {}}}, f:observedGeneration: {}, f:readyReplicas: {}, f:replicas: {}, f:updatedReplicas: {}}
  - {manager: kubectl, operation: Update, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {f:metadata: {f:annotations: {f:note: {}}}}}
spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: "web:1"}]}}}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, conditions: [{type: Available, status: "True"}]}
`

// The fields and managers of an object that is decoded already are those that its typed metadata have, byte by byte:
// records of earlier agents have their hash.
func TestFieldsOfADecodedObject(t *testing.T) {
	for name, change := range map[string]func(meta map[string]any){
		"as it is":          func(map[string]any) {},
		"no fields":         func(m map[string]any) { delete(m["managedFields"].([]any)[0].(map[string]any), "fieldsV1") },
		"empty fields":      func(m map[string]any) { m["managedFields"].([]any)[0].(map[string]any)["fieldsV1"] = map[string]any{} },
		"no managed fields": func(m map[string]any) { delete(m, "managedFields") },
	} {
		o := parse(t, managedDeployment)
		change(o.Object["metadata"].(map[string]any))
		var typed metav1.PartialObjectMetadata
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err != nil {
			t.Fatal(err)
		}
		is, want := viewFromMetadata(o, "apps", "Deployment"), viewFromMetadata(&typed, "apps", "Deployment")
		if string(is.Fields) != string(want.Fields) || is.Owned != want.Owned || !slices.Equal(is.Others, want.Others) || is.Label != "b1" || is.Template != "t1" {
			t.Errorf("%s: %s %s %v, want %s %s %v", name, is.Fields, is.Owned, is.Others, want.Fields, want.Owned, want.Others)
		}
	}
}

// Entries of a hostile or broken member that are malformed leave no fields and no managers, whatever precedes them.
func TestMalformedManagedFieldsAreNone(t *testing.T) {
	for _, list := range []any{
		"text", []any{"text"}, []any{nil}, []any{map[string]any{"manager": 7, "operation": []any{}}}, []any{map[string]any{"subresource": true}},
	} {
		o := parse(t, managedDeployment)
		meta := o.Object["metadata"].(map[string]any)
		if entries, ok := list.([]any); ok {
			list = append(meta["managedFields"].([]any), entries...)
		}
		meta["managedFields"] = list
		if v := ViewOf(o, Judges{}); v.Fields != nil || v.Owned != "" || v.Others != nil {
			t.Errorf("%v: %s %q %q", list, v.Fields, v.Owned, v.Others)
		}
	}
}

// maxViewAllocations is the budget of the allocations of one view. An agent makes about four of each Deployment that it
// brings up.
const maxViewAllocations = 120

// The view of a Deployment stays within its budget of allocations.
func TestAViewIsCheap(t *testing.T) {
	o := parse(t, managedDeployment)
	if n := testing.AllocsPerRun(100, func() { ViewOf(o, Judges{}) }); n > maxViewAllocations {
		t.Errorf("a view makes %.0f allocations, of which there may be %d", n, maxViewAllocations)
	}
}

// BenchmarkView is one event of a watch, after it was decoded.
func BenchmarkView(b *testing.B) {
	o := parse(b, managedDeployment)
	b.ReportAllocs()
	for b.Loop() {
		ViewOf(o, Judges{})
	}
}
