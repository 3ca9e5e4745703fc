package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// metricsServerPolicies place upstream's manifests in two clusters. The kubelets of a lab have
// certificates that they signed themselves, which one argument more accepts.
const metricsServerPolicies = `
apiVersion: atoll.dev/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: metrics-server}
spec:
  resourceSelectors:
  - {apiVersion: v1, kind: ServiceAccount, namespace: kube-system, name: metrics-server}
  - {apiVersion: v1, kind: Service, namespace: kube-system, name: metrics-server}
  - {apiVersion: apps/v1, kind: Deployment, namespace: kube-system, name: metrics-server}
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, namespace: kube-system, name: metrics-server-auth-reader}
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, labelSelector: {matchLabels: {k8s-app: metrics-server}}}
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, labelSelector: {matchLabels: {k8s-app: metrics-server}}}
  - {apiVersion: apiregistration.k8s.io/v1, kind: APIService, name: v1beta1.metrics.k8s.io}
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
---
apiVersion: atoll.dev/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: metrics-server}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, namespace: kube-system, name: metrics-server}]
  overrideRules:
  - overriders: {argsOverrider: [{containerName: metrics-server, operator: add, value: [--kubelet-insecure-tls]}]}
`

// upstreamsManifests are those of the release that the lab's nodes have as an image.
func upstreamsManifests(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/metrics-server")
	list.Dir = "../../realnode/metrics"
	dir, err := list.Output()
	if err != nil {
		t.Fatalf("find metrics-server's module: %v", err)
	}
	return mustKubectl(t, "", "kustomize "+strings.TrimSpace(string(dir))+"/manifests/overlays/release")
}

// metricsUsage is the usage of a node or pod in metrics.k8s.io.
type metricsUsage struct {
	Timestamp, Window string
	Usage             map[string]string
	Containers        []struct {
		Name  string
		Usage map[string]string
	}
}

// readUsage returns an API's usage of one object, or of the only one in a list.
func readUsage(t *testing.T, kubeconfig, path string) (metricsUsage, error) {
	t.Helper()
	out := kubectlAt(t, kubeconfig, "", "get --raw /apis/metrics.k8s.io/v1beta1/"+path)
	var got struct {
		metricsUsage
		Items []metricsUsage
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return metricsUsage{}, fmt.Errorf("%s: %s", path, out)
	}
	if len(got.Items) == 1 {
		return got.Items[0], nil
	}
	return got.metricsUsage, nil
}

// saysTheSame waits until hub and member say the same of what was measured at the same time.
func saysTheSame(t *testing.T, via, here, there string) {
	t.Helper()
	testwait.UntilNil(t, "the hub says of "+here+" what the member says", func(context.Context) error {
		is, err := readUsage(t, via, there)
		if err != nil {
			return err
		}
		shown, err := readUsage(t, sharedWorld.lab.KubeconfigPath("hub"), here)
		if err != nil || is.Timestamp == "" || !reflect.DeepEqual(shown, is) {
			return fmt.Errorf("it says %+v (%v), and the member %+v", shown, err, is)
		}
		return nil
	})
}

// TestUpstreamsMetricsServer: placed by its own manifests, it measures what kubelets run, and the
// hub shows that under the names that it has there.
func TestUpstreamsMetricsServer(t *testing.T) {
	ns, via := aShell(t)
	kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "run foreign -n "+ns+" --image lab.atoll.dev/busybox:1")
	manifests := writeManifest(t, "metrics-server.yaml", ns, upstreamsManifests(t))
	kubectlAtEnd(t, "hub", "delete clusteroverridepolicy,clusterpropagationpolicy metrics-server --ignore-not-found")
	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll-lab", "kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "delete", "--ignore-not-found", "-f", manifests)
	})
	mustKubectl(t, metricsServerPolicies, "apply -f -")
	mustKubectl(t, "", "apply -f "+manifests)
	mustKubectl(t, "", "rollout status deploy/metrics-server -n kube-system --timeout 3m")

	pod := kubectlAt(t, via, "", "get pods -l app=shell -o jsonpath={.items[0].metadata.name} -n "+ns)
	saysTheSame(t, via, "namespaces/"+ns+"/pods/"+pod+".member1", "namespaces/"+ns+"/pods/"+pod)
	saysTheSame(t, via, "nodes/member1", "nodes")
	testwait.UntilNil(t, "both are measured", func(context.Context) error {
		out := kubectlOutput(t, "", "top", "nodes")
		if strings.Count(out, "<unknown>") != 4 || !strings.Contains(out, "cluster member3: it serves no metrics.k8s.io/v1beta1: it has no metrics-server") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	topOfTheFleet(t, ns, pod+".member1")

	// To none, although the manifests leave open how many there are.
	mustKubectl(t, "", "scale deploy/metrics-server -n kube-system --replicas 0")
	testwait.UntilNil(t, "the answer names the silent ones", func(context.Context) error {
		out := kubectlOutput(t, "", "top", "pods", "-A")
		for _, m := range []string{"member1", "member2"} {
			if !strings.Contains(out, "cluster "+m+": its metrics-server does not answer") {
				return errors.New("the output is: " + out)
			}
		}
		return nil
	})
	mustKubectl(t, "", "delete -f "+manifests)
	for _, m := range []string{"member1", "member2"} {
		testwait.UntilNil(t, "it is gone", allChecks(
			inCluster(m, "apiregistration.k8s.io/v1", "APIService", "", "v1beta1.metrics.k8s.io", false),
			inCluster(m, "apps/v1", "Deployment", "kube-system", "metrics-server", false),
			inCluster(m, "rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:metrics-server", false),
		))
	}
}

// topOfTheFleet is what people ask for, of a pod and all others.
func topOfTheFleet(t *testing.T, ns, pod string) {
	t.Helper()
	all := mustKubectl(t, "", "top pods -A --sort-by=cpu --no-headers")
	expectOutput(t, "top pods -A", all, pod, ".member2 ", "metrics-server-")
	if strings.Contains(all, "foreign") {
		t.Errorf("an unplaced pod is shown:\n%s", all)
	}
	var cpu []int
	for line := range strings.Lines(all) {
		if f := strings.Fields(line); len(f) == 4 && strings.HasSuffix(f[2], "m") {
			n, err := strconv.Atoi(strings.TrimSuffix(f[2], "m"))
			if err != nil {
				t.Fatal(err)
			}
			cpu = append(cpu, -n)
		}
	}
	if len(cpu) < 3 || !slices.IsSorted(cpu) {
		t.Errorf("sorted by CPU, it is\n%s", all)
	}
	expectOutput(t, "top pod", strings.Join(strings.Fields(mustKubectl(t, "", "top pod "+pod+" --containers -n "+ns)), " "), pod+" shell ")
	if out := mustKubectl(t, "", "top pods -l app=shell -A"); !strings.Contains(out, pod) || strings.Contains(out, "metrics-server-") {
		t.Errorf("by a selector, top pods says\n%s", out)
	}
	kubectlFails(t, "", "top pod foreign.member1 -n "+ns, "not found")
	hub := sharedWorld.lab.KubeconfigPath("hub")
	expectOutput(t, "atoll top pods", binaryOutput(t, "", "atoll", "top", "pods", "-A", "--kubeconfig", hub), pod, "TOTAL")
	expectOutput(t, "atoll top clusters", binaryOutput(t, "", "atoll", "top", "clusters", "--kubeconfig", hub),
		"clusters without metrics, of which what they use is in no sum: 1 of 3")
}
