package kinds_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/kinds"
)

const podOfEverything = `
serviceAccountName: runner
imagePullSecrets: [{name: pull}]
initContainers:
- {name: i, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: init-env, key: k}}}]}
containers:
- name: c
  image: c
  envFrom: [{configMapRef: {name: from-map}}, {secretRef: {name: from-secret}}]
  env:
  - {name: B, value: plain}
  - {name: C, valueFrom: {configMapKeyRef: {name: key-map, key: k}}}
  - {name: D, valueFrom: {secretKeyRef: {name: pull, key: k}}}
volumes:
- {name: a, configMap: {name: vol-map}}
- {name: b, secret: {secretName: vol-secret}}
- {name: c, persistentVolumeClaim: {claimName: data}}
- {name: d, projected: {sources: [{configMap: {name: pro-map}}, {secret: {name: pro-secret}}, {serviceAccountToken: {path: t}}]}}
- {name: e, csi: {driver: d, nodePublishSecretRef: {name: csi-secret}}}
- {name: f, emptyDir: {}}
- {name: g, rbd: {secretRef: {name: rbd-secret}}}
- {name: h, azureFile: {secretName: azure-secret}}
`

var allDependencies = []string{
	"/ConfigMap/shop/from-map", "/ConfigMap/shop/key-map", "/ConfigMap/shop/pro-map", "/ConfigMap/shop/vol-map",
	"/PersistentVolumeClaim/shop/data",
	"/Secret/shop/azure-secret", "/Secret/shop/csi-secret", "/Secret/shop/from-secret", "/Secret/shop/init-env",
	"/Secret/shop/pro-secret", "/Secret/shop/pull", "/Secret/shop/rbd-secret", "/Secret/shop/vol-secret",
	"/ServiceAccount/shop/runner",
}

func indentText(s string, n int) string {
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n"+strings.Repeat(" ", n))
}

func TestPodTemplatesAndDependencies(t *testing.T) {
	const meta = "metadata: {name: x, namespace: shop}\n"
	for _, c := range []struct {
		name, object string
		paths        []string
		deps         []string
	}{
		{"deployment", "apiVersion: apps/v1\nkind: Deployment\n" + meta + "spec:\n  template:\n    spec:\n      " + indentText(podOfEverything, 6),
			[]string{"spec/template/spec"}, allDependencies},
		{"cronjob", "apiVersion: batch/v1\nkind: CronJob\n" + meta + "spec:\n  jobTemplate:\n    spec:\n      template:\n        spec:\n          " + indentText(podOfEverything, 10),
			[]string{"spec/jobTemplate/spec/template/spec"}, allDependencies},
		{"pod", "apiVersion: v1\nkind: Pod\n" + meta + "spec: {serviceAccount: old, containers: [{name: a}]}",
			[]string{"spec"}, []string{"/ServiceAccount/shop/old"}},
		{"default account", "apiVersion: v1\nkind: Pod\n" + meta + "spec: {serviceAccountName: default, containers: [{name: a}]}",
			[]string{"spec"}, nil},
		{"custom kind with several", "apiVersion: example.com/v1\nkind: Ring\n" + meta + `
spec:
  head: {template: {spec: {containers: [{name: a, envFrom: [{secretRef: {name: s1}}]}]}}}
  workers:
  - {template: {spec: {containers: [{name: b, envFrom: [{secretRef: {name: s2}}]}]}}}
  - {template: {spec: {containers: [{name: c, envFrom: [{secretRef: {name: s1}}]}]}}}
status: {template: {spec: {containers: [{name: d, envFrom: [{secretRef: {name: no}}]}]}}}
`, []string{"spec/head/template/spec", "spec/workers/0/template/spec", "spec/workers/1/template/spec"},
			[]string{"/Secret/shop/s1", "/Secret/shop/s2"}},
		{"containers that are no containers", "apiVersion: example.com/v1\nkind: Ship\n" + meta + "spec: {containers: [1, 2], other: {containers: [{size: 3}]}}", nil, nil},
		{"ingress", "apiVersion: networking.k8s.io/v1\nkind: Ingress\n" + meta + "spec: {tls: [{secretName: cert}, {hosts: [a]}]}",
			nil, []string{"/Secret/shop/cert"}},
		{"gateway", "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n" + meta + "spec: {listeners: [{tls: {certificateRefs: [{name: cert}, {name: far, namespace: other}, {name: odd, kind: Vault, group: x.io}]}}]}",
			nil, []string{"/Secret/shop/cert"}},
		{"service account", "apiVersion: v1\nkind: ServiceAccount\n" + meta + "imagePullSecrets: [{name: pull}]",
			nil, []string{"/Secret/shop/pull"}},
		{"configmap", "apiVersion: v1\nkind: ConfigMap\n" + meta + "data: {containers: 'x'}", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := parseObject(t, c.object)
			var paths, deps []string
			for _, p := range kinds.PodSpecPaths(obj) {
				paths = append(paths, strings.Join(p, "/"))
				if _, ok := kinds.LookupPath(obj.Object, p); !ok {
					t.Errorf("Lookup does not find %q", p)
				}
			}
			for _, k := range kinds.DependenciesOf(obj) {
				deps = append(deps, k.String())
			}
			if !slices.Equal(paths, c.paths) {
				t.Errorf("PodTemplates = %q, want %q", paths, c.paths)
			}
			if !slices.Equal(deps, c.deps) {
				t.Errorf("Dependencies = %q\nwant %q", deps, c.deps)
			}
		})
	}
}

func TestLookupMisses(t *testing.T) {
	obj := map[string]any{"a": []any{map[string]any{"b": "c"}}}
	for _, p := range []string{"x", "a/1", "a/-1", "a/b", "a/0/x", "a/0/b/c"} {
		if v, ok := kinds.LookupPath(obj, strings.Split(p, "/")); ok {
			t.Errorf("Lookup(%s) = %v", p, v)
		}
	}
	if v, _ := kinds.LookupPath(obj, []string{"a", "0", "b"}); v != "c" {
		t.Errorf("Lookup(a/0/b) = %v", v)
	}
}

func TestReplicas(t *testing.T) {
	for _, c := range []struct {
		object string
		n      int64
		ok     bool
	}{
		{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 4}", 4, true},
		{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 0}", 0, true},
		{"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x}", 1, true},
		{"apiVersion: v1\nkind: ReplicationController\nmetadata: {name: x}\nspec: {replicas: 2}", 2, true},
		{"apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {parallelism: 4}", 0, false},
		{"apiVersion: example.com/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 4}", 0, false},
	} {
		n, path, ok := kinds.ReplicasOf(parseObject(t, c.object))
		if n != c.n || ok != c.ok || ok && strings.Join(path, "/") != "spec/replicas" {
			t.Errorf("Replicas = %d %q %v, want %d %v of\n%s", n, path, ok, c.n, c.ok, c.object)
		}
	}
}

func TestReplicaCounts(t *testing.T) {
	deployment := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	desired, ready, ok := kinds.ReplicaCounts(deployment, kinds.ReflectStatus(parseObject(t, web2Half)))
	if desired != 2 || ready != 1 || !ok {
		t.Errorf("ReplicaCounts = %d, %d, %v", desired, ready, ok)
	}
	if _, _, ok := kinds.ReplicaCounts(deployment, nil); ok {
		t.Errorf("ReplicaCounts of nothing is ok")
	}
	if _, _, ok := kinds.ReplicaCounts(schema.GroupKind{Group: "batch", Kind: "Job"}, kinds.ReflectStatus(parseObject(t, jobHead+"status: {active: 1}"))); ok {
		t.Errorf("ReplicaCounts of a Job is ok")
	}
}
