package kinds_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// A path leads through keys of maps and indexes of lists, and nowhere else.
func TestLookupPath(t *testing.T) {
	obj := map[string]any{"a": map[string]any{"b": []any{int64(1), map[string]any{"c": "x"}}}, "n": nil}
	for path, want := range map[string]any{
		"a/b/0": int64(1), "a/b/1/c": "x", "n": nil, "a/b/2": false, "a/b/-1": false, "a/b/x": false, "a/z": false, "z": false, "a/b/0/c": false, "n/x": false,
	} {
		v, ok := kinds.LookupPath(obj, strings.Split(path, "/"))
		if missing := want == false; ok == missing || !missing && v != want || missing && v != nil {
			t.Errorf("%s: %v, %t; want %v", path, v, ok, want)
		}
	}
	if v, ok := kinds.LookupPath(obj, nil); !ok || !reflect.DeepEqual(v, obj) {
		t.Errorf("no path: %v, %t", v, ok)
	}
}

// Counts are read in every form in which decoders give integers. Fractions are none.
func TestCountsOfEveryDecoder(t *testing.T) {
	for name, c := range map[string]struct {
		n    any
		want int64
	}{
		"int64": {int64(4), 4}, "int32": {int32(4), 4}, "int": {int(4), 4}, "float64": {float64(4), 4}, "a fraction": {4.5, 1}, "a text": {"4", 1}, "nothing": {nil, 1},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": c.n}}}
		if n, path, ok := kinds.ReplicasOf(obj); n != c.want || !ok || fmt.Sprint(path) != "[spec replicas]" {
			t.Errorf("%s: %d at %v, %t; want %d", name, n, path, ok, c.want)
		}
	}
}

// Statuses are equal where only empty values and forms of integers differ.
func TestEqualStatusesIgnoringEmpty(t *testing.T) {
	m := func(kv ...any) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	for _, c := range []struct {
		name string
		a, b map[string]any
		want bool
	}{
		{"nothing", nil, m(), true}, {"zero", m("a", int64(0)), m(), true}, {"false", m("a", false), nil, true}, {"an empty text", m("a", ""), m("b", nil), true},
		{"empty lists and maps", m("a", []any{}, "b", m("c", m("d", int64(0)))), m(), true}, {"an integer", m("a", int64(3)), m("a", 3.0), true}, {"other integers", m("a", int64(3)), m("a", int64(4)), false},
		{"one is missing", m("a", int64(3)), m(), false}, {"the other is missing", m(), m("a", int64(3)), false}, {"a list of an empty value", m("a", []any{int64(0)}), m(), false},
		{"lists", m("a", []any{int64(1), m("x", "")}), m("a", []any{1.0, m()}), true}, {"longer lists", m("a", []any{int64(1)}), m("a", []any{int64(1), int64(1)}), false},
		{"a map and a list", m("a", m("x", "y")), m("a", []any{"y"}), false}, {"a list and a map", m("a", []any{"y"}), m("a", m("x", "y")), false}, {"a text and a number", m("a", "3"), m("a", int64(3)), false},
		{"nested", m("a", m("b", m("c", "x"))), m("a", m("b", m("c", "y"))), false}, {"true", m("a", true), m("a", true), true},
	} {
		if got := kinds.EqualStatusesIgnoringEmpty(c.a, c.b); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// Some kinds are never placed as dependencies, and some are useful unplaced.
func TestKindsThatTravelAlong(t *testing.T) {
	for gk, want := range map[schema.GroupKind]struct {
		refusal           string
		useful, generated bool
	}{
		{Kind: "ConfigMap"}: {"", true, false}, {Kind: "PersistentVolumeClaim"}: {"", true, false}, {Kind: "Namespace"}: {"is made where something in it is placed", true, false},
		{Group: "rbac.authorization.k8s.io", Kind: "Role"}: {"gives rights", true, false}, {Group: "apiregistration.k8s.io", Kind: "APIService"}: {"steers an API server", true, false},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {"goes with the objects of its kind", false, false}, {Group: "apps", Kind: "ReplicaSet"}: {"is made from a Deployment", false, false},
		{Kind: "Node"}: {"is made by machinery in every cluster", false, true}, {Group: "coordination.k8s.io", Kind: "Lease"}: {"is made by machinery in every cluster", false, true},
		{Group: "atoll.dev", Kind: "Cluster"}: {"is of the hub's own API", false, false}, {Group: "apps", Kind: "Deployment"}: {"", false, false}, {Group: "example.com", Kind: "Toy"}: {"", false, false},
	} {
		if got := kinds.DependencyRefusal(gk); got != want.refusal {
			t.Errorf("%s as a dependency: %q, want %q", gk, got, want.refusal)
		}
		if useful, generated := kinds.IsUsefulUnplaced(gk), kinds.IsClusterGenerated(gk); useful != want.useful || generated != want.generated {
			t.Errorf("%s: useful unplaced %t, made by clusters %t", gk, useful, generated)
		}
	}
}

// Atoll writes statuses of custom kinds, and of those of Kubernetes that have one to write.
func TestKindsWithAggregatedStatus(t *testing.T) {
	for gk, want := range map[schema.GroupKind]bool{
		{Group: "apps", Kind: "Deployment"}: true, {Group: "example.com", Kind: "Toy"}: true, {Group: "argoproj.io", Kind: "Rollout"}: true, {Kind: "ConfigMap"}: false, {Group: "apps", Kind: "FutureSet"}: false, {Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}: true,
	} {
		if got := kinds.HasAggregatedStatus(gk); got != want {
			t.Errorf("%s: %t", gk, got)
		}
	}
}

// A status is outdated where it, or one of its conditions, is of an older generation.
func TestOutdatedStatuses(t *testing.T) {
	for status, want := range map[string]bool{
		"{}": false, "{observedGeneration: 2}": false, "{observedGeneration: 1}": true, "{observedGeneration: '1'}": true, "{observedGeneration: abc}": false,
		"{conditions: [{type: A, status: 'True', observedGeneration: 1}]}": true, "{conditions: [{type: A, status: 'True', observedGeneration: 2}, {type: B, status: 'True'}]}": false,
		"{observedGeneration: 2, conditions: [{type: A, status: 'True', observedGeneration: 1}]}": true,
	} {
		if got := kinds.HasOutdatedStatus(parseObject(t, headYAML("example.com/v1", "Toy")+"status: "+status)); got != want {
			t.Errorf("%s: %t", status, got)
		}
	}
	st := parseObject(t, routeHead+"status: {conditions: [{observedGeneration: 2}, {}], parents: [{conditions: [{observedGeneration: 5}]}], ancestors: [{conditions: [{observedGeneration: 3}]}, 7]}").Object["status"].(map[string]any)
	if got := kinds.LatestConditionGeneration(st); got != 5 || len(kinds.StatusAndParentConditions(st)) != 4 {
		t.Errorf("the latest generation is %d of %d conditions", got, len(kinds.StatusAndParentConditions(st)))
	}
	crd := parseObject(t, headYAML("apiextensions.k8s.io/v1", "CustomResourceDefinition")+"spec: {group: example.com, names: {kind: Toy}}")
	if got := kinds.DefinedKind(crd); got != (schema.GroupKind{Group: "example.com", Kind: "Toy"}) {
		t.Errorf("it defines %s", got)
	}
}

// A replica of several pods tolerates what each of them tolerates, and each requests the most of any.
func TestLargestPodRequests(t *testing.T) {
	tolerations := func(keys ...string) (out []corev1.Toleration) {
		for _, k := range keys {
			out = append(out, corev1.Toleration{Key: k, Operator: corev1.TolerationOpExists})
		}
		return out
	}
	got := kinds.LargestPodRequests([]atoll.PodSet{
		{Count: 1, Requests: map[corev1.ResourceName]int64{"cpu": 100, "memory": 5, "nvidia.com/gpu": 1, "ephemeral-storage": 9}, Tolerations: tolerations("a", "b", "c")},
		{Count: 3, Requests: map[corev1.ResourceName]int64{"cpu": 50, "memory": 7, "hugepages-2Mi": 2}, Tolerations: tolerations("c", "a", "d")},
	})
	if got.CPU != 100 || got.Memory != 7 || got.Pods != 4 || !reflect.DeepEqual(got.Other, map[string]int64{"nvidia.com/gpu": 1, "hugepages-2Mi": 2}) || !reflect.DeepEqual(got.Tolerations, tolerations("a", "c")) {
		t.Errorf("%+v", got)
	}
	one := kinds.LargestPodRequests([]atoll.PodSet{{Count: 1, Tolerations: tolerations("a")}})
	if one.Pods != 0 || one.Other != nil || !reflect.DeepEqual(one.Tolerations, tolerations("a")) {
		t.Errorf("one pod: %+v", one)
	}
	if none := kinds.LargestPodRequests(nil); none.Pods != 0 || none.Tolerations != nil {
		t.Errorf("no pods: %+v", none)
	}
}

// An object states sets of pods, of which those without a pod do not count.
func TestPodSetsOfObjects(t *testing.T) {
	const pod = "{spec: {containers: [{name: a, resources: {requests: {cpu: 100m}}}]}}"
	for name, c := range map[string]struct{ object, want string }{
		"replicas":               {headYAML("apps/v1", "Deployment") + "spec: {replicas: 3, template: " + pod + "}", "3 of :1 cpu=100"},
		"negative replicas":      {headYAML("apps/v1", "Deployment") + "spec: {replicas: -3, template: " + pod + "}", "0 of :1 cpu=100"},
		"a pod":                  {headYAML("v1", "Pod") + "spec: {containers: [{name: a}]}", "1 of :1"},
		"a daemon":               {headYAML("apps/v1", "DaemonSet") + "spec: {template: " + pod + "}", "0 of"},
		"an unknown kind":        {headYAML("example.com/v1", "Toy") + "spec: {replicas: 2, x: " + pod + "}", "2 of :1 cpu=100"},
		"without replicas":       {headYAML("example.com/v1", "Toy") + "spec: {x: " + pod + "}", "0 of"},
		"without pods":           {headYAML("example.com/v1", "Toy") + "spec: {replicas: 2}", "0 of"},
		"executors":              {headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {executor: {instances: 3, cores: 2, memory: 1g}, driver: {memory: 512m}}", "1 of driver:1 cpu=1000 memory=939524096 executor:3 cpu=2000 memory=1476395008"},
		"executors of Python":    {headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {type: Python, executor: {instances: 1, memory: 10g}, driver: {memory: 10g}}", "1 of driver:1 cpu=1000 memory=15032385536 executor:1 cpu=1000 memory=15032385536"},
		"executors of Java":      {headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {type: Java, memoryOverheadFactor: '0.2', executor: {instances: 0, memory: 10g}, driver: {memory: 10g, memoryOverhead: 1g, gpu: {name: nvidia.com/gpu, quantity: 2}}}", "1 of driver:1 cpu=1000 memory=11811160064 nvidia.com/gpu=2"},
		"dynamic executors":      {headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {dynamicAllocation: {enabled: true, initialExecutors: 4, minExecutors: 5}, executor: {instances: 3, coreRequest: 500m, memory: 1g}, driver: {memory: 1g}}", "1 of driver:1 cpu=1000 memory=1476395008 executor:5 cpu=500 memory=1476395008"},
		"task managers":          {headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: '2'}, job: {parallelism: 5}, jobManager: {resource: {cpu: 1}}, taskManager: {resource: {cpu: 0.5}}}", "1 of jobmanager:1 cpu=1000 taskmanager:3 cpu=500"},
		"task managers by count": {headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: 4}, job: {parallelism: 4}, jobManager: {resource: {cpu: 1}}, taskManager: {resource: {cpu: 0.5}}}", "1 of jobmanager:1 cpu=1000 taskmanager:1 cpu=500"},
		"a virtual machine":      {headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always, template: {spec: {domain: {memory: {guest: 1Gi}, cpu: {cores: 2, sockets: 2, threads: 2}}}}}", "1 of :1 cpu=800 memory=1073741824"},
		"dedicated cores":        {headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true, template: {spec: {domain: {resources: {limits: {memory: 2Gi}}, cpu: {dedicatedCpuPlacement: true}}}}}", "1 of :1 cpu=1000 memory=2147483648"},
		"a halted machine":       {headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Halted}", "1 of"},
		"a machine that is off":  {headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {running: false}", "1 of"},
	} {
		n, each := kinds.PodSetsOf(parseObject(t, c.object))
		got := fmt.Sprintf("%d of", n)
		for _, s := range each {
			got += fmt.Sprintf(" %s:%d", s.Name, s.Count)
			for _, r := range []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu"} {
				if s.Requests[r] != 0 {
					got += fmt.Sprintf(" %s=%d", r, s.Requests[r])
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Metadata and fields of a member are retained, and nothing is made up.
func TestRetainedMetadata(t *testing.T) {
	head := headYAML("v1", "ConfigMap")
	if got := kinds.RetainMemberFields(parseObject(t, head), parseObject(t, head)); !reflect.DeepEqual(got.Object, parseObject(t, head).Object) {
		t.Errorf("nothing is to be retained: %s", asJSON(got.Object))
	}
	withBoth := strings.Replace(head, "{name", "{finalizers: [a, b], labels: {l: m}, annotations: {note: o}, name", 1)
	got := kinds.RetainMemberFields(parseObject(t, strings.Replace(head, "{name", "{finalizers: [b], labels: {l: own}, name", 1)), parseObject(t, withBoth))
	if fmt.Sprint(got.GetFinalizers(), got.GetLabels(), got.GetAnnotations()) != "[b a] map[l:own] map[note:o]" {
		t.Errorf("%s", asJSON(got.Object))
	}
	service := headYAML("v1", "Service")
	for name, c := range map[string]struct{ desired, observed, want string }{
		"a port by its number":         {"{ports: [{port: 80}]}", "{ports: [{port: 80, protocol: TCP, nodePort: 30080}]}", "{ports: [{port: 80, nodePort: 30080}]}"},
		"a port of another protocol":   {"{ports: [{port: 80}]}", "{ports: [{port: 80, protocol: UDP, nodePort: 30080}]}", "{ports: [{port: 80}]}"},
		"a port by its name":           {"{ports: [{name: a, port: 80}]}", "{ports: [{name: a, port: 81, nodePort: 30080}]}", "{ports: [{name: a, port: 80, nodePort: 30080}]}"},
		"a port of another name":       {"{ports: [{name: a, port: 80}]}", "{ports: [{name: b, port: 80, nodePort: 30080}]}", "{ports: [{name: a, port: 80}]}"},
		"a stated value":               {"{clusterIP: None}", "{clusterIP: 10.0.0.1}", "{clusterIP: None}"},
		"a value of the member":        {"{}", "{clusterIP: 10.0.0.1, type: ClusterIP}", "{clusterIP: 10.0.0.1}"},
		"no ports, and no number":      {"{ports: [{targetPort: 1}]}", "{ports: [{targetPort: 1, nodePort: 30080}]}", "{ports: [{targetPort: 1}]}"},
		"an element that is no object": {"{ports: [7]}", "{ports: [{port: 80, nodePort: 30080}]}", "{ports: [7]}"},
	} {
		got := kinds.RetainMemberFields(parseObject(t, service+"spec: "+c.desired), parseObject(t, service+"spec: "+c.observed))
		if want := parseObject(t, service+"spec: "+c.want); asJSON(got.Object) != asJSON(want.Object) {
			t.Errorf("%s: %s, want %s", name, asJSON(got.Object), asJSON(want.Object))
		}
	}
	deployment := headYAML("apps/v1", "Deployment")
	for name, c := range map[string]struct{ desired, observed, want string }{
		"left to the member":           {"spec: {replicas: 3}", "spec: {replicas: 5}", "spec: {replicas: 5}"},
		"the member has none":          {"spec: {replicas: 3, paused: true}", "spec: {}", "spec: {paused: true}"},
		"the member has no spec":       {"spec: {replicas: 3}", "", "spec: {replicas: 3}"},
		"the template has no spec":     {"", "spec: {replicas: 5}", "spec: {replicas: 5}"},
		"the template's spec is a map": {"spec: 7", "spec: {replicas: 5}", "spec: 7"},
	} {
		got := kinds.RetainMemberFields(parseObject(t, deployment+c.desired), parseObject(t, deployment+c.observed), []string{"spec", "replicas"})
		if want := parseObject(t, deployment+c.want); asJSON(got.Object) != asJSON(want.Object) {
			t.Errorf("%s: %s, want %s", name, asJSON(got.Object), asJSON(want.Object))
		}
	}
}

// Replicas are set where a kind states them, and where an unknown kind without pods of a known form does.
func TestReviseSaysWhyNot(t *testing.T) {
	for object, want := range map[string]string{
		headYAML("apps/v1", "Deployment"):                                    "-1 replicas cannot be: give 0 or more",
		headYAML("v1", "ConfigMap"):                                          "a ConfigMap has no replicas that can be set",
		headYAML("apps/v1", "FutureSet") + "spec: {replicas: 1}":             "a FutureSet.apps has no replicas that can be set",
		headYAML("example.com/v1", "Toy") + "spec: {size: 1}":                "a Toy.example.com has no replicas that can be set",
		headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {replicas: 1}": "a VirtualMachine.kubevirt.io has no replicas that can be set",
	} {
		n := int64(1)
		if strings.HasPrefix(want, "-1") {
			n = -1
		}
		if got, err := kinds.ReviseReplicas(parseObject(t, object), n); got != nil || err == nil || err.Error() != want {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
	if got, err := kinds.ReviseReplicas(parseObject(t, headYAML("apps/v1", "Deployment")), 0); err != nil || got.Object["spec"].(map[string]any)["replicas"] != int64(0) {
		t.Errorf("no replicas: %v, %v", got, err)
	}
	if _, err := kinds.ReviseReplicas(parseObject(t, headYAML("apps/v1", "Deployment")+"spec: 7"), 1); err == nil || !strings.HasPrefix(err.Error(), "set the replicas of Deployment one: ") {
		t.Errorf("a spec that is no object: %v", err)
	}
}
