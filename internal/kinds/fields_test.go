package kinds_test

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/kinds"
)

func TestRevise(t *testing.T) {
	for _, c := range []struct{ object, path string }{
		{headYAML("apps/v1", "Deployment"), "replicas"},
		{headYAML("argoproj.io/v1alpha1", "Rollout") + "spec: {replicas: 1}", "replicas"},
		{headYAML("batch/v1", "Job") + "spec: {parallelism: 1}", "parallelism"},
		{headYAML("example.com/v1", "Toy") + "spec: {replicas: 1}", "replicas"},
	} {
		obj := parseObject(t, c.object)
		before := asJSON(obj.Object)
		got, err := kinds.ReviseReplicas(obj, 7)
		if err != nil {
			t.Errorf("%s: %v", obj.GetKind(), err)
			continue
		}
		if n := got.Object["spec"].(map[string]any)[c.path]; n != int64(7) || asJSON(obj.Object) != before {
			t.Errorf("%s: %s is %v; the object itself stays", obj.GetKind(), c.path, n)
		}
	}
	for _, c := range []struct {
		object string
		n      int64
	}{
		{headYAML("apps/v1", "Deployment"), -1},
		{headYAML("apps/v1", "DaemonSet"), 1},
		{headYAML("v1", "ConfigMap"), 1},
		{headYAML("ray.io/v1", "RayCluster"), 1},
		{headYAML("example.com/v1", "Toy"), 1},
		{headYAML("apps/v1", "Deployment") + "spec: 3", 1},
	} {
		if got, err := kinds.ReviseReplicas(parseObject(t, c.object), c.n); err == nil {
			t.Errorf("Revise gives %s of\n%s", asJSON(got.Object), c.object)
		}
	}
}

func TestRetain(t *testing.T) {
	const meta = "metadata: {name: one}\n"
	for _, c := range []struct {
		name, desired, observed, want string
		left                          [][]string
	}{
		{"a service's addresses and ports", "apiVersion: v1\nkind: Service\n" + meta + "spec: {ports: [{name: a, port: 1}, {name: b, port: 2, nodePort: 5}]}",
			"apiVersion: v1\nkind: Service\n" + meta + "spec: {clusterIP: 10.0.0.1, sessionAffinity: None, ports: [{name: b, port: 2, nodePort: 30002}, {name: a, port: 1, nodePort: 30001}]}",
			`{"clusterIP":"10.0.0.1","ports":[{"name":"a","nodePort":30001,"port":1},{"name":"b","nodePort":5,"port":2}]}`, nil},
		{"ports without names", "apiVersion: v1\nkind: Service\n" + meta + "spec: {ports: [{port: 53, protocol: UDP}]}",
			"apiVersion: v1\nkind: Service\n" + meta + "spec: {ports: [{port: 53, protocol: TCP, nodePort: 1}, {port: 53, protocol: UDP, nodePort: 2}]}",
			`{"ports":[{"nodePort":2,"port":53,"protocol":"UDP"}]}`, nil},
		{"a claim's volume", "apiVersion: v1\nkind: PersistentVolumeClaim\n" + meta + "spec: {accessModes: [ReadWriteOnce]}",
			"apiVersion: v1\nkind: PersistentVolumeClaim\n" + meta + "spec: {volumeName: pv-1, storageClassName: fast}",
			`{"accessModes":["ReadWriteOnce"],"storageClassName":"fast","volumeName":"pv-1"}`, nil},
		{"a job's selector and labels", "apiVersion: batch/v1\nkind: Job\n" + meta + "spec: {template: {metadata: {labels: {app: x}}}}",
			"apiVersion: batch/v1\nkind: Job\n" + meta + "spec: {selector: {matchLabels: {uid: u}}, template: {metadata: {labels: {uid: u}}}}",
			`{"selector":{"matchLabels":{"uid":"u"}},"template":{"metadata":{"labels":{"app":"x","uid":"u"}}}}`, nil},
		{"what is stated wins", "apiVersion: v1\nkind: PersistentVolumeClaim\n" + meta + "spec: {volumeName: mine}",
			"apiVersion: v1\nkind: PersistentVolumeClaim\n" + meta + "spec: {volumeName: pv-1}", `{"volumeName":"mine"}`, nil},
		{"replicas are the hub's", "apiVersion: apps/v1\nkind: Deployment\n" + meta + "spec: {replicas: 3}",
			"apiVersion: apps/v1\nkind: Deployment\n" + meta + "spec: {replicas: 8}", `{"replicas":3}`, nil},
		{"replicas are an autoscaler's", "apiVersion: apps/v1\nkind: Deployment\n" + meta + "spec: {replicas: 3}",
			"apiVersion: apps/v1\nkind: Deployment\n" + meta + "spec: {replicas: 8}", `{"replicas":8}`, [][]string{{"spec", "replicas"}}},
		{"an unknown kind", "apiVersion: example.com/v1\nkind: Toy\n" + meta + "spec: {a: 1}",
			"apiVersion: example.com/v1\nkind: Toy\n" + meta + "spec: {a: 2, b: 3}", `{"a":1}`, nil},
	} {
		desired, observed := parseObject(t, c.desired), parseObject(t, c.observed)
		before := asJSON(desired.Object)
		got := kinds.RetainMemberFields(desired, observed, c.left...)
		if asJSON(got.Object["spec"]) != c.want {
			t.Errorf("%s: %s, want %s", c.name, asJSON(got.Object["spec"]), c.want)
		}
		if asJSON(desired.Object) != before {
			t.Errorf("%s: Retain changed what it was given", c.name)
		}
	}
}

func TestRetainKeepsWhatOthersNoted(t *testing.T) {
	desired := parseObject(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: one, labels: {app: web}, finalizers: [ours]}")
	observed := parseObject(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: one, labels: {app: old, mesh: 'on'}, annotations: {a: b}, finalizers: [theirs]}\nsecrets: [{name: t}]")
	const want = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"annotations":{"a":"b"},"finalizers":["ours","theirs"],"labels":{"app":"web","mesh":"on"},"name":"one"},"secrets":[{"name":"t"}]}`
	if got := asJSON(kinds.RetainMemberFields(desired, observed).Object); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		desired, observed string
		want              []string
	}{
		{headYAML("apps/v1", "Deployment") + "spec: {selector: {matchLabels: {a: b}}}", headYAML("apps/v1", "Deployment") + "spec: {selector: {matchLabels: {a: c}}}", []string{"spec.selector"}},
		{headYAML("apps/v1", "Deployment") + "spec: {selector: {matchLabels: {a: b}}}", headYAML("apps/v1", "Deployment") + "spec: {selector: {matchLabels: {a: b}}}", nil},
		// The member's defaults are no change.
		{headYAML("apps/v1", "StatefulSet") + "spec: {volumeClaimTemplates: [{metadata: {name: d}}]}", headYAML("apps/v1", "StatefulSet") + "spec: {podManagementPolicy: OrderedReady, volumeClaimTemplates: [{metadata: {name: d}, status: {phase: Pending}}]}", nil},
		{headYAML("v1", "Secret") + "type: Opaque\ndata: {a: eA==}", headYAML("v1", "Secret") + "type: Opaque\nimmutable: true\ndata: {a: eQ==}", []string{"data"}},
		{headYAML("v1", "Secret") + "data: {a: eA==}", headYAML("v1", "Secret") + "data: {a: eQ==}", nil},
		{headYAML("rbac.authorization.k8s.io/v1", "RoleBinding") + "roleRef: {name: a}", headYAML("rbac.authorization.k8s.io/v1", "RoleBinding") + "roleRef: {name: b}", []string{"roleRef"}},
	} {
		if got := kinds.ChangedImmutableFields(parseObject(t, c.desired), parseObject(t, c.observed)); !slices.Equal(got, c.want) {
			t.Errorf("Changed = %v, want %v, of\n%s", got, c.want, c.desired)
		}
	}
}

func TestCustomStatusIsAggregated(t *testing.T) {
	rollout := headYAML("argoproj.io/v1alpha1", "Rollout")
	member := func(n, ready, phase string) string {
		return rollout + "spec: {replicas: " + n + "}\nstatus: {observedGeneration: '2', phase: " + phase + ", replicas: " + n + ", updatedReplicas: " + n + ", readyReplicas: " + ready + ", availableReplicas: " + ready + "}"
	}
	for _, c := range []aggregateCase{
		{name: "divided", template: rollout + "spec: {replicas: 5}", divided: true, members: []string{member("3", "3", "Healthy"), member("2", "1", "Progressing")}, observed: 2,
			want: "{observedGeneration: '2', phase: Progressing, replicas: 5, updatedReplicas: 5, readyReplicas: 4, availableReplicas: 4}"},
		{name: "duplicated", template: rollout + "spec: {replicas: 3}", members: []string{member("3", "3", "Healthy"), member("3", "2", "Degraded")}, observed: 2,
			want: "{observedGeneration: '2', phase: Degraded, replicas: 3, updatedReplicas: 3, readyReplicas: 2, availableReplicas: 2}"},
		{name: "addresses of all", template: headYAML("gateway.networking.k8s.io/v1", "Gateway"), observed: 2, members: []string{
			headYAML("gateway.networking.k8s.io/v1", "Gateway") + "status: {addresses: [{type: IPAddress, value: 192.0.2.2}]}", headYAML("gateway.networking.k8s.io/v1", "Gateway") + "status: {addresses: [{value: 192.0.2.1}, {type: Hostname, value: a.example.com}]}"},
			change: func(rows []kinds.RowItem) { rows[1].Disconnected = true },
			want:   "{addresses: [{type: Hostname, value: a.example.com}, {type: IPAddress, value: 192.0.2.1}, {type: IPAddress, value: 192.0.2.2}]}"},
		{name: "a phase that stands deeper", template: headYAML("batch.volcano.sh/v1alpha1", "Job"), observed: 2, members: []string{
			headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Completed}}", headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Failed}}"},
			want: "{state: {phase: Failed}}"},
	} {
		got, ok := kinds.AggregateStatus(parseObject(t, c.template), c.divided, c.buildRows(t), c.observed, 0)
		want := parseObject(t, c.template+"\nstatus: "+c.want).Object["status"].(map[string]any)
		if !ok || !kinds.EqualStatusesIgnoringEmpty(withoutTimes(got), want) {
			t.Errorf("%s: Aggregate = %s, want %s", c.name, asJSON(withoutTimes(got)), asJSON(want))
		}
	}
	gk := schema.GroupKind{Group: "argoproj.io", Kind: "Rollout"}
	desired, ready, ok := kinds.ReplicaCounts(gk, json.RawMessage(kinds.ReflectStatus(parseObject(t, member("3", "2", "Healthy")))))
	if desired != 3 || ready != 2 || !ok {
		t.Errorf("ReplicaCounts = %d %d %v", desired, ready, ok)
	}
}
