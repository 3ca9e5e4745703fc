package e2e

import (
	"context"
	"strings"
	"testing"
)

// TestClustersAreNodes: kubectl sees a node for each cluster, and what it does to the node is
// done to the cluster. It keeps others' work away from a member, so it runs alone.
func TestClustersAreNodes(t *testing.T) {
	table := sh(t, "", "get nodes -L topology.kubernetes.io/region")
	for _, line := range []string{"member1", "member2", "member3"} {
		if !strings.Contains(table, line+"   Ready    cluster") {
			t.Errorf("kubectl get nodes has no %s that is Ready:\n%s", line, table)
		}
	}
	if cpu := sh(t, "", "get node member1 -o jsonpath={.status.capacity.cpu}"); cpu != "48" { // three made-up nodes of 16
		t.Errorf("member1 has %q CPUs", cpu)
	}
	described := sh(t, "", "describe node member1")
	for _, says := range []string{"Roles:              cluster", "Ready      True", "Non-terminated Pods:"} {
		if !strings.Contains(described, says) {
			t.Errorf("kubectl describe node does not say %q:\n%s", says, described)
		}
	}

	t.Cleanup(func() { kubectlFor(context.WithoutCancel(t.Context()), t, "uncordon", "member2") })
	sh(t, "", "cordon member2")
	if taints := sh(t, "", "get cluster member2 -o jsonpath={.spec.taints}"); !strings.Contains(taints, "node.kubernetes.io/unschedulable") {
		t.Fatalf("the cordoned cluster has the taints %s", taints)
	}
	if out := sh(t, "", "get nodes --field-selector spec.unschedulable=true"); !strings.Contains(out, "member2   Ready,SchedulingDisabled") || strings.Contains(out, "member1") {
		t.Errorf("cordoned are\n%s", out)
	}
	ns := namespace(t, "nodes")
	apply(t, ns, settings+"---"+selecting("web", "", "member1", "member2", "member3"))
	eventually(t, converge, "it is placed where nothing is cordoned", all(data("member1", ns, "web", "blue"), data("member3", ns, "web", "blue")))
	if o, err := get(t.Context(), "member2", "v1", "ConfigMap", ns, "web"); err != nil || o != nil {
		t.Errorf("a cordoned cluster has got it (%v)", err)
	}
	sh(t, "", "uncordon member2")
	eventually(t, converge, "it is placed there too", data("member2", ns, "web", "blue"))

	t.Cleanup(func() { kubectlFor(context.WithoutCancel(t.Context()), t, "taint", "node", "member2", "quiet-") })
	sh(t, "", "taint node member2 quiet=yes:PreferNoSchedule")
	if taints := sh(t, "", "get cluster member2 -o jsonpath={.spec.taints}"); !strings.Contains(taints, `"quiet"`) {
		t.Errorf("the tainted cluster has the taints %s", taints)
	}
	fails(t, "", "delete node member2", "atoll remove member2")
	fails(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"x"}}`, "create -f -", "atoll token create")
}
