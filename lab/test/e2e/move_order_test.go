package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestOldCopiesEndFirst checks that a move with moveOrder: Recreate waits for a disconnected cluster,
// which may still run its copy, says so, and goes on when the cluster has confirmed the removal.
func TestOldCopiesEndFirst(t *testing.T) {
	ns := createNamespace(t, "moved-in-order")
	text := `
apiVersion: v1
kind: ConfigMap
metadata: {name: alone, namespace: $NS}
data: {colour: blue}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: settings, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: alone}]
  moveOrder: Recreate
  placement: {clusterAffinity: {clusterNames: [member1]}}
`
	apply(t, ns, text)
	testwait.UntilNil(t, "delivery", colourIn("member1", ns, "alone", "blue"))
	if err := sharedWorld.lab.CutLink(t.Context(), "member1"); err != nil {
		t.Fatal(err)
	}
	heal := func() {
		if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member1"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(heal)
	apply(t, ns, strings.Replace(text, "[member1]", "[member2]", 1))
	testwait.UntilNil(t, "explain says what the replacement waits for", explanationMatches("cm/alone -n "+ns,
		`^ +- waits for the old copy in member1 to end, which is disconnected: it may still run; for .*; to act: the hub's administrator$`))
	testwait.UntilNil(t, "the Bundle says so", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.wait.reason}"); out != "WaitsForDisconnectedCopy" {
			return fmt.Errorf("the Bundle waits for %q", out)
		}
		return nil
	})
	if err := colourIn("member2", ns, "alone", "blue")(t.Context()); err == nil {
		t.Error("two copies may run")
	}
	heal()
	testwait.UntilNil(t, "the replacement comes", colourIn("member2", ns, "alone", "blue"))
	if err := colourIn("member1", ns, "alone", "blue")(t.Context()); err == nil {
		t.Error("the old copy is still there")
	}
}
