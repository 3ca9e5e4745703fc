package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// brokenInOneMember is an application in three members that keeps two copies available. Its copy in member3 is not ready while the override is there.
const brokenInOneMember = slowDeployment + `
---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: broken, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules:
  - targetCluster: {clusterNames: [member3]}
    overriders: {plaintext: [{path: "/spec/template/metadata/annotations/lab.atoll.dev~1ready-after", operator: replace, value: 24h}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}}
  disruptionBudget: {minAvailable: 2}
`

// TestADisruptionBudgetKeepsACopy checks that a drain waits for the budget of an application while its copy in another member is broken, with the reason in
// the plan, the drain and the explanation, and that the drain goes on when that copy is healthy. It takes copies out of a member, so it
// runs alone.
func TestADisruptionBudgetKeepsACopy(t *testing.T) {
	t.Setenv("KUBECONFIG", sharedWorld.lab.KubeconfigPath("hub"))
	ns := createNamespace(t, "budgeted")
	t.Cleanup(func() { kubectlFor(context.WithoutCancel(t.Context()), t, "uncordon", "member2") })
	apply(t, ns, brokenInOneMember)
	isReadyIn := func(want string) func(context.Context) error {
		return func(context.Context) error {
			if got := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.clusters.ready}/{.items[*].status.clusters.desired}"); got != want {
				return fmt.Errorf("%s copies are ready, want %s", got, want)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "two copies are ready", isReadyIn("2/3"))

	drain := []string{"drain", "member2", "--remove-unreplaced"}
	const awaited = "member3 to become available: 2 of 3 copies are, and disruptionBudget states minAvailable 2"
	expectOutput(t, "the plan of the drain", binaryOutput(t, "", "atoll", append(drain, "--dry-run")...), "The copy in member2 cannot leave because of its budget, and would wait for "+awaited, "exit status 2")
	// Work of other tests that is being removed may be there, too: no total is certain.
	expectOutput(t, "the drain", binaryOutput(t, "", "atoll", append(drain, "--timeout", "10s")...), "DisruptionBudget: ", "cannot leave because of a disruption budget until more copies are available, such as "+ns+"/", "exit status 5")
	testwait.UntilNil(t, "explain has the reason", explanationMatches("deployment/web -n "+ns, "waits for "+awaited))
	testwait.UntilNil(t, "the copy stays", existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2", "member3"))
	kubectlFails(t, "", "drain member2 --force --pod-selector app=web --timeout 10s", "DisruptionBudget")

	remove(t, "atoll.dev/v1alpha1", "OverridePolicy", ns, "broken")
	testwait.UntilNil(t, "the drain goes on", existsIn("apps/v1", "Deployment", ns, "web", "member1", "member3"))
	testwait.UntilNil(t, "both others are ready", isReadyIn("2/2"))
	expectOutput(t, "the end of the drain", binaryOutput(t, "", "atoll", append(drain, "--timeout", "5m")...), "Drained: ")
	testwait.UntilNil(t, "nothing waits", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.wait}"); out != "" {
			return errors.New(out)
		}
		return nil
	})
}
