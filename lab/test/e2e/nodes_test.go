package e2e

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestClustersAreNodes: kubectl sees a node for each cluster, and what it does to the node is
// done to the cluster. It keeps others' work away from a member, so it runs alone.
func TestClustersAreNodes(t *testing.T) {
	table := mustKubectl(t, "", "get nodes -L topology.kubernetes.io/region")
	for _, line := range []string{"member1", "member2", "member3"} {
		if !strings.Contains(table, line+"   Ready    cluster") {
			t.Errorf("kubectl get nodes has no %s that is Ready:\n%s", line, table)
		}
	}
	if cpu := mustKubectl(t, "", "get node member1 -o jsonpath={.status.capacity.cpu}"); cpu != "48" { // three made-up nodes of 16
		t.Errorf("member1 has %q CPUs", cpu)
	}
	described := mustKubectl(t, "", "describe node member1")
	for _, says := range []string{`Roles: +cluster`, `\n +Ready +True`, `Non-terminated Pods:`} {
		if !regexp.MustCompile(says).MatchString(described) {
			t.Errorf("kubectl describe node does not match %q:\n%s", says, described)
		}
	}

	t.Cleanup(func() { kubectlFor(context.WithoutCancel(t.Context()), t, "uncordon", "member2") })
	mustKubectl(t, "", "cordon member2")
	if taints := mustKubectl(t, "", "get cluster member2 -o jsonpath={.spec.taints}"); !strings.Contains(taints, "node.kubernetes.io/unschedulable") {
		t.Fatalf("the cordoned cluster has the taints %s", taints)
	}
	if out := mustKubectl(t, "", "get nodes --field-selector spec.unschedulable=true"); !strings.Contains(out, "member2   Ready,SchedulingDisabled") || strings.Contains(out, "member1") {
		t.Errorf("cordoned are\n%s", out)
	}
	ns := createNamespace(t, "nodes")
	apply(t, ns, settingsObject+"---"+selectingPolicy("web", "", "member1", "member2", "member3"))
	testwait.UntilNil(t, "it is placed where nothing is cordoned", allChecks(colourIn("member1", ns, "web", "blue"), colourIn("member3", ns, "web", "blue")))
	if o, err := get(t.Context(), "member2", "v1", "ConfigMap", ns, "web"); err != nil || o != nil {
		t.Errorf("a cordoned cluster has got it (%v)", err)
	}
	mustKubectl(t, "", "uncordon member2")
	testwait.UntilNil(t, "it is placed there too", colourIn("member2", ns, "web", "blue"))

	t.Cleanup(func() { kubectlFor(context.WithoutCancel(t.Context()), t, "taint", "node", "member2", "quiet-") })
	mustKubectl(t, "", "taint node member2 quiet=yes:PreferNoSchedule")
	if taints := mustKubectl(t, "", "get cluster member2 -o jsonpath={.spec.taints}"); !strings.Contains(taints, `"quiet"`) {
		t.Errorf("the tainted cluster has the taints %s", taints)
	}
	kubectlFails(t, "", "delete node member2", "atoll remove member2")
	taintByExample(t)
	kubectlFails(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"x"}}`, "create -f -", "atoll token create")
}

// taintByExample taints a node with the rights that docs/extend.md gives to its program.
func taintByExample(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/extend.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "**1. Rights on the hub.**")
	_, rest, opened := strings.Cut(rest, "```yaml\n")
	rights, _, closed := strings.Cut(rest, "```\n")
	if !found || !opened || !closed {
		t.Fatal("docs/extend.md has no rights for its program")
	}
	mustKubectl(t, rights, "apply -f -")
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "clusterrole/alert-taints", "clusterrolebinding/alert-taints")
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "-n", "atoll-system", "serviceaccount/alert-taints")
	})
	const asProgram = " --as system:serviceaccount:atoll-system:alert-taints"
	mustKubectl(t, "", "get nodes -o name"+asProgram)
	mustKubectl(t, "", "taint node member2 example.com/NodeDiskFull=firing:PreferNoSchedule"+asProgram)
	mustKubectl(t, "", "taint node member2 example.com/NodeDiskFull:PreferNoSchedule-"+asProgram)
}
