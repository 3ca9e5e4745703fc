package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// metricsAPI stands in for metrics-server: it serves what is written.
const metricsAPI = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodes.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for tests"}}
spec:
  group: metrics.k8s.io
  scope: Cluster
  names: {plural: nodes, kind: NodeMetrics, listKind: NodeMetricsList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pods.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for tests"}}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {plural: pods, kind: PodMetrics, listKind: PodMetricsList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// inMember runs kubectl against a member; it has to succeed.
func inMember(t *testing.T, cluster, stdin, args string) string {
	t.Helper()
	out := binaryOutput(t, stdin, "atoll-lab", append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath(cluster)}, strings.Fields(args)...)...)
	if strings.Contains(out, "\nexit status ") {
		t.Fatalf("kubectl %s in %s:\n%s", args, cluster, out)
	}
	return out
}

// TestTopIsOfTheFleet: the measurements of a member's metrics-server are seen on the hub,
// by cluster and by pod of placed objects; clusters without metrics are named.
func TestTopIsOfTheFleet(t *testing.T) {
	kubectlAtEnd(t, "member1", "delete crd nodes.metrics.k8s.io pods.metrics.k8s.io --ignore-not-found")
	inMember(t, "member1", metricsAPI, "apply -f -")
	inMember(t, "member1", "", "wait --for=condition=Established crd/nodes.metrics.k8s.io crd/pods.metrics.k8s.io --timeout=30s")
	for _, n := range []string{"node-1", "node-2"} {
		inMember(t, "member1", fmt.Sprintf(`
apiVersion: metrics.k8s.io/v1beta1
kind: NodeMetrics
metadata: {name: %s}
timestamp: "2026-03-01T12:00:00Z"
window: 30s
usage: {cpu: 1200m, memory: 1Gi}`, n), "apply -f -")
	}
	top := mustKubectl(t, "", "top nodes")
	for _, says := range []string{"member1 2400m 5% 2048Mi 1%", "member2 <unknown>", "cluster member2: it serves no metrics.k8s.io/v1beta1: it has no metrics-server"} {
		if !strings.Contains(strings.Join(strings.Fields(top), " "), says) {
			t.Errorf("kubectl top nodes does not contain %q:\n%s", says, top)
		}
	}

	ns := createNamespace(t, "top")
	apply(t, ns, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example/web}]}
`)
	pod := ""
	testwait.UntilNil(t, "a pod runs", func(context.Context) error {
		out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("member1"), "get", "pods", "-n", ns, "-l", "app=web", "-o", "name")
		pod = strings.TrimPrefix(strings.TrimSpace(out), "pod/")
		if !strings.HasPrefix(pod, "web-") {
			return errors.New("there are: " + out)
		}
		return nil
	})
	inMember(t, "member1", "", "run foreign -n "+ns+" --image=registry.example/foreign")
	for _, p := range []string{pod, "foreign"} {
		inMember(t, "member1", fmt.Sprintf(`
apiVersion: metrics.k8s.io/v1beta1
kind: PodMetrics
metadata: {name: %s, namespace: %s, labels: {app: web}}
timestamp: "2026-03-01T12:00:00Z"
window: 30s
containers: [{name: web, usage: {cpu: 250m, memory: 64Mi}}]`, p, ns), "apply -f -")
	}
	testwait.UntilNil(t, "it is measured", func(context.Context) error {
		out := kubectlOutput(t, "", "top", "pods", "-n", ns)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), pod+".member1 250m 64Mi") || !strings.Contains(out, "cluster member2: it serves no") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if out := mustKubectl(t, "", "top pods -A"); !strings.Contains(out, pod+".member1") || strings.Contains(out, "foreign") {
		t.Errorf("kubectl top pods -A says\n%s", out)
	}

	// A metrics-server that is a template is one for members.
	kubectlAtEnd(t, "hub", "delete apiservice v1beta1.metrics.k8s.io --ignore-not-found")
	mustKubectl(t, strings.ReplaceAll(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec: {group: metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: meter, namespace: $NS}}
`, "$NS", ns), "apply -f -")
	if out := mustKubectl(t, "", "top pods -n "+ns); !strings.Contains(out, pod+".member1") {
		t.Errorf("with an APIService of users' on the hub, kubectl top pods says\n%s", out)
	}
	if out := mustKubectl(t, "", "api-resources --api-group=metrics.k8s.io -o name"); !strings.Contains(out, "pods.metrics.k8s.io") {
		t.Errorf("with an APIService of users' on the hub, it serves\n%s", out)
	}
}
