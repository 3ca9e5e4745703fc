package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// chartFiles is a directory of manifests as charts render them: by kind, a definition in
// one file with an object of it, and everything under one label.
var chartFiles = map[string]string{
	"config.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
data: {colour: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
data: {password: b3Blbg==}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
`,
	"crd.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.$NS.example, labels: {instance: $NS}}
spec:
  group: $NS.example
  scope: Namespaced
  names: {plural: carts, singular: cart, kind: Cart, listKind: CartList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}
---
apiVersion: $NS.example/v1
kind: Cart
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
spec: {size: 3}
`,
	"network.yaml": `
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
spec: {rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
spec: {podSelector: {matchLabels: {app: shop}}, policyTypes: [Ingress], ingress: [{ports: [{port: http}]}]}
`,
	"rbac.yaml": `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shop}
subjects: [{kind: ServiceAccount, name: shop, namespace: $NS}]
`,
	"workload.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      serviceAccountName: shop
      containers:
      - name: shop
        image: registry.example/shop:1
        ports: [{name: http, containerPort: 8080}]
        envFrom: [{configMapRef: {name: shop}}, {secretRef: {name: shop}}]
        readinessProbe: {httpGet: {path: /ready, port: http}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store, namespace: $NS, labels: {instance: shop}}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: store, image: "registry.example/store:1"}]}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop, namespace: $NS, labels: {instance: shop}}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: shop}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: $NS, labels: {instance: shop}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: "registry.example/shop:1"}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: $NS, labels: {instance: shop}}
spec: {schedule: "0 4 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: report, image: "registry.example/shop:1"}]}}}}}
`,
}

// chartIn writes the chart's directory, and gives its objects and the policies that
// place them.
func chartIn(t *testing.T, ns string) (dir string, list []*unstructured.Unstructured, policies string) {
	t.Helper()
	dir = t.TempDir()
	kinds := map[schema.GroupVersionKind]bool{}
	for name, text := range chartFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "$NS", ns)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, o := range decodeObjects(t, ns, text) {
			list = append(list, o)
			kinds[o.GroupVersionKind()] = true
		}
	}
	policies = "apiVersion: atoll.dev/v1alpha1\nkind: ClusterPropagationPolicy\nmetadata: {name: $NS}\nspec: {resourceSelectors: [{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, name: carts.$NS.example}]}\n" +
		"---\napiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: shop, namespace: $NS}\nspec:\n  resourceSelectors:\n"
	for gvk := range kinds {
		if gvk.Kind != "CustomResourceDefinition" {
			policies += fmt.Sprintf("  - {apiVersion: %s, kind: %s, labelSelector: {matchLabels: {instance: shop}}}\n", gvk.GroupVersion(), gvk.Kind)
		}
	}
	return dir, list, strings.ReplaceAll(policies, "$NS", ns)
}

func TestAChartConvergesWhateverComesFirst(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"chart", "policy"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			ns := createNamespace(t, first+"-first")
			dir, list, policies := chartIn(t, ns)
			kubectlAtEnd(t, "hub", "delete cppol "+ns)
			if first == "policy" {
				mustKubectl(t, policies, "apply -f -")
			}
			// A definition and an object of it in one go need a second one, as on any
			// cluster.
			install := func() {
				t.Helper()
				testwait.UntilNil(t, "kubectl apply", func(context.Context) error {
					if out := kubectlOutput(t, "", "apply", "-f", dir); strings.Contains(out, "exit status") {
						return errors.New("the output is: " + out)
					}
					return nil
				})
			}
			install()
			if first == "chart" {
				mustKubectl(t, policies, "apply -f -")
			}
			there := func(want bool) {
				t.Helper()
				for _, m := range memberNames {
					testwait.UntilNil(t, "the chart", deliveredAsStated(m, list, want))
				}
			}
			there(true)
			mustKubectl(t, "", "wait -n "+ns+" --for=condition=Ready bundle/shop --timeout=60s")
			mustKubectl(t, "", "rollout status -n "+ns+" deploy/shop --timeout=60s")
			mustKubectl(t, "", "rollout status -n "+ns+" sts/store --timeout=60s")
			mustKubectl(t, "", "wait -n "+ns+" --for=condition=complete job/migrate --timeout=60s")

			mustKubectl(t, "", "delete --timeout=90s -f "+dir)
			there(false)
			if err := deliveredAsStated("hub", list, false)(t.Context()); err != nil {
				t.Errorf("kubectl delete returned early: %s", err)
			}
			install()
			there(true)
			mustKubectl(t, "", "wait -n "+ns+" --for=condition=Ready bundle/shop --timeout=60s")
			mustKubectl(t, "", "delete --timeout=90s -f "+dir)
			there(false)
		})
	}
}

// manyObjects returns a List of ConfigMaps and Deployments.
func manyObjects(ns, value string, configMaps, deployments int) string {
	var b bytes.Buffer
	for i := range configMaps {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: many-%d, namespace: %s}\ndata: {value: %q}\n", i, ns, value)
	}
	for i := range deployments {
		fmt.Fprintf(&b, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many-%d, namespace: %s}\nspec: {replicas: 1, selector: {matchLabels: {app: m%d}}, template: {metadata: {labels: {app: m%d}}, spec: {containers: [{name: m, image: \"registry.example/m:%s\"}]}}}\n", i, ns, i, i, value)
	}
	return b.String()
}

// Many objects under one policy, applied, changed and deleted at once. It has the lab
// for itself, as it looks into logs and at memory.
func TestManyObjectsOfOnePolicy(t *testing.T) {
	const configMaps, deployments = 300, 50
	ns := createNamespace(t, "bulk")
	apply(t, ns, policyForKinds("v1 ConfigMap", "apps/v1 Deployment"))
	begin := time.Now()
	took := func(what string) {
		t.Helper()
		t.Logf("%s: %s", what, time.Since(begin).Round(100*time.Millisecond))
		begin = time.Now()
	}
	for _, value := range []string{"1", "2"} {
		mustKubectl(t, manyObjects(ns, value, configMaps, deployments), "apply --server-side -f -")
		took("kubectl apply")
		for _, m := range memberNames {
			testwait.UntilNilWithin(t, 2*testwait.HangLimit, "all have "+value, func(ctx context.Context) error { return allHave(ctx, m, ns, value, configMaps, deployments) })
		}
		took("in all members")
		testwait.UntilNilWithin(t, 2*testwait.HangLimit, "the Bundle is ready", func(ctx context.Context) error {
			if got := conditionText(ctx, "atoll.dev/v1alpha1", "Bundle", ns, "all", "Ready"); !strings.HasPrefix(got, "True") {
				return fmt.Errorf("its condition Ready is: %s", got)
			}
			return nil
		})
		took("Bundle ready")
	}
	uid := mustKubectl(t, "", "get bundle -n "+ns+" all -o jsonpath={.metadata.uid}")
	status, err := sharedWorld.lab.ReadStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.Components {
		if rss := residentMiB(t, c.PID); strings.HasPrefix(c.Name, "agent/") || c.Name == "hub" {
			t.Logf("%s: %d MiB resident", c.Name, rss)
			if c.Name != "hub" && rss > 100 {
				t.Errorf("%s has %d MiB resident", c.Name, rss)
			}
		}
		if c.Name == "hub" {
			log, err := os.ReadFile(c.Log)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.SplitSeq(string(log), "\n") {
				if strings.Contains(line, "level=ERROR") && strings.Contains(line, ns) || strings.Contains(line, "refused a report") && strings.Contains(line, uid) {
					t.Errorf("the hub logs: %s", line)
				}
			}
		}
	}
	begin = time.Now()
	mustKubectl(t, manyObjects(ns, "2", configMaps, deployments), "delete --wait=false -f -")
	took("kubectl delete")
	for _, c := range append([]string{"hub"}, memberNames...) {
		testwait.UntilNilWithin(t, 2*testwait.HangLimit, "all is gone", func(ctx context.Context) error { return allHave(ctx, c, ns, "", 0, 0) })
	}
	took("gone everywhere")
}

// allHave checks that the cluster has that many objects with the value.
func allHave(ctx context.Context, cluster, ns, value string, configMaps, deployments int) error {
	count := func(apiVersion, kind string, says func(o *unstructured.Unstructured) bool) int {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind+"List"))
		if err := sharedWorld.clients[cluster].List(ctx, &list, client.InNamespace(ns)); err != nil {
			return -1
		}
		n := 0
		for i := range list.Items {
			if o := &list.Items[i]; strings.HasPrefix(o.GetName(), "many-") && (value == "" || says(o)) {
				n++
			}
		}
		return n
	}
	c := count("v1", "ConfigMap", func(o *unstructured.Unstructured) bool {
		v, _, _ := unstructured.NestedString(o.Object, "data", "value")
		return v == value
	})
	d := count("apps/v1", "Deployment", func(o *unstructured.Unstructured) bool {
		cs, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		return len(cs) == 1 && cs[0].(map[string]any)["image"] == "registry.example/m:"+value
	})
	if c != configMaps || d != deployments {
		return fmt.Errorf("%s has %d ConfigMaps and %d Deployments, want %d and %d", cluster, c, d, configMaps, deployments)
	}
	return nil
}

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// residentMiB returns the resident memory of a process in MiB; 0 if the system does not
// report it.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	kb := 0
	if m := residentLine.FindSubmatch(text); m != nil {
		if _, err := fmt.Sscan(string(m[1]), &kb); err != nil {
			t.Fatal(err)
		}
	}
	return kb / 1024
}
