package e2e

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestRemovalsThatItemsStateToConfirm checks that an object with removal: Confirm stays in members when it is
// deleted and when its cluster is left, until a person confirms exactly that, and that other objects go on.
func TestRemovalsThatItemsStateToConfirm(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "confirm-each")
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {app: web}}}]
  itemRules: [{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: precious}], removal: Confirm}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: precious, namespace: $NS, labels: {app: web}}
data: {colour: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain, namespace: $NS, labels: {app: web}}
data: {colour: blue}
`)
	has := existsIn
	testwait.UntilNil(t, "delivery", allChecks(has("v1", "ConfigMap", ns, "precious", "member1", "member2"), has("v1", "ConfigMap", ns, "plain", "member1", "member2")))

	// A cluster that is left: one of two is within every default budget.
	placeOn(t, ns, "web", "member1")
	left := heldPlan(t, "Bundle", ns, "web", "")
	if err := has("v1", "ConfigMap", ns, "precious", "member1", "member2")(t.Context()); err != nil {
		t.Fatalf("what is held is gone: %s", err)
	}
	if out := runCLI(t, "confirm", "bundle/web", "-n", ns, "--plan", left); !strings.Contains(out, "is released") {
		t.Fatalf("confirm: %s", out)
	}
	testwait.UntilNil(t, "the cluster is left", allChecks(has("v1", "ConfigMap", ns, "precious", "member1"), has("v1", "ConfigMap", ns, "plain", "member1")))

	kubectlOutput(t, "", "delete", "configmap", "precious", "plain", "-n", ns, "--wait=false")
	testwait.UntilNil(t, "the other object goes", has("v1", "ConfigMap", ns, "plain"))
	deleted := heldPlan(t, "Bundle", ns, "web", left)
	if err := has("v1", "ConfigMap", ns, "precious", "member1")(t.Context()); err != nil {
		t.Fatalf("what is held is gone: %s", err)
	}
	if out := runCLI(t, "confirm", "bundle/web", "-n", ns); !strings.Contains(out, deleted) || !strings.Contains(out, "precious") {
		t.Fatalf("what waits is not shown:\n%s", out)
	}
	if out := runCLI(t, "explain", "cm/precious", "-n", ns); !strings.Contains(out, "atoll confirm") || !strings.Contains(out, deleted) {
		t.Errorf("explain names no confirmation:\n%s", out)
	}
	if out := runCLI(t, "confirm", "bundle/web", "-n", ns, "--plan", deleted); !strings.Contains(out, "is released") {
		t.Fatalf("confirm: %s", out)
	}
	testwait.UntilNil(t, "it goes everywhere", allChecks(has("v1", "ConfigMap", ns, "precious"), inCluster("hub", "v1", "ConfigMap", ns, "precious", false)))
}
