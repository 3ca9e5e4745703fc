package kinds_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/kinds"
)

func TestRequests(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       freecapacity.ReplicaRequests
	}{
		{"nothing stated", "{containers: [{name: a}]}", freecapacity.ReplicaRequests{}},
		{"containers add up", "{containers: [{name: a, resources: {requests: {cpu: 250m, memory: 1Gi}}}, {name: b, resources: {requests: {cpu: 1}}}]}", freecapacity.ReplicaRequests{CPU: 1250, Memory: 1 << 30}},
		{"a limit is a request", "{containers: [{name: a, resources: {limits: {cpu: 2, nvidia.com/gpu: 1}, requests: {cpu: 1}}}]}", freecapacity.ReplicaRequests{CPU: 1000, Other: map[string]int64{"nvidia.com/gpu": 1}}},
		{"the largest step of initialisation", "{containers: [{name: a, resources: {requests: {cpu: 1}}}], initContainers: [{name: i, resources: {requests: {cpu: 3}}}, {name: j, resources: {requests: {cpu: 2}}}]}", freecapacity.ReplicaRequests{CPU: 3000}},
		{"sidecars stay", "{containers: [{name: a, resources: {requests: {cpu: 1}}}], initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 2}}}, {name: i, resources: {requests: {cpu: 500m}}}]}", freecapacity.ReplicaRequests{CPU: 3000}},
		{"the overhead comes on top", "{overhead: {memory: 64Mi}, containers: [{name: a, resources: {requests: {memory: 64Mi}}}]}", freecapacity.ReplicaRequests{Memory: 128 << 20}},
		{"the whole pod's", "{resources: {requests: {cpu: 4}}, containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Mi}}}]}", freecapacity.ReplicaRequests{CPU: 4000, Memory: 1 << 20}},
		{"what pods store is not looked at", "{containers: [{name: a, resources: {requests: {ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi}}}]}", freecapacity.ReplicaRequests{Other: map[string]int64{"hugepages-2Mi": 4 << 20}}},
		{"tolerations", "{tolerations: [{key: gpu, operator: Exists}], containers: [{name: a}]}", freecapacity.ReplicaRequests{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}},
		{"nonsense", "{containers: [{name: a, resources: {requests: {cpu: {}}}}]}", freecapacity.ReplicaRequests{}},
	} {
		var pod map[string]any
		if err := yaml.Unmarshal([]byte(tc.spec), &pod); err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"template": map[string]any{"spec": pod}}}}
		if got := kinds.ReplicaRequests(obj); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if got := kinds.ReplicaRequests(&unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}); !reflect.DeepEqual(got, freecapacity.ReplicaRequests{}) {
		t.Errorf("a ConfigMap requests %+v", got)
	}
}
