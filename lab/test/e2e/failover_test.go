package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestALostClusterIsReplaced checks that a Bundle leaves a lost cluster for another one, that one with a copy in each cluster
// stays, and that the old copy and the taint are gone when the cluster is back.
func TestALostClusterIsReplaced(t *testing.T) {
	ns := createNamespace(t, "lost")
	policy := func(name, placement string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, namespace: $NS}
data: {colour: blue}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %[1]s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: %[1]s}]
  placement: %[2]s
---
`, name, placement)
	}
	apply(t, ns, policy("one", "{clusterAffinity: {clusterNames: [member2, member3]}, maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [member3]}}]}")+
		policy("each", "{clusterAffinity: {clusterNames: [member2, member3]}}"))
	testwait.UntilNil(t, "delivery", allChecks(colourIn("member3", ns, "one", "blue"), colourIn("member3", ns, "each", "blue"), colourIn("member2", ns, "each", "blue")))
	apply(t, ns, "{apiVersion: atoll.dev/v1alpha1, kind: HubSettings, metadata: {name: hub}, spec: {failover: {after: 30s, recoverAfter: 0s}}}")
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "patch", "hubsettings", "hub", "--type=merge", "-p", `{"spec":{"failover":null}}`)
	})
	if err := sharedWorld.lab.CutLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	heal := func(ctx context.Context) {
		if err := sharedWorld.lab.HealLink(ctx, "member3"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { heal(context.WithoutCancel(t.Context())) })
	taints := func(want string) func(context.Context) error {
		return func(context.Context) error {
			if out := kubectlOutput(t, "", "get", "cluster", "member3", "-o", "jsonpath={.spec.taints[*].key}"); out != want {
				return errors.New("member3 has the taints " + out)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "the hub taints member3", taints("atoll.dev/unreachable"))
	testwait.UntilNil(t, "another cluster takes its place", colourIn("member2", ns, "one", "blue"))
	testwait.UntilNil(t, "the other Bundle stays", explanationMatches("cm/each -n "+ns, `^ +member3 +lost, and keeps its copy: no other cluster can take its place`))
	if out := kubectlOutput(t, "", "get", "events", "-A", "--field-selector=reason=ClusterTainted,involvedObject.name=member3"); !strings.Contains(out, "atoll.dev/unreachable") {
		t.Errorf("no Event about the taint:\n%s", out)
	}
	heal(t.Context())
	testwait.UntilNil(t, "the taint is gone", taints(""))
	testwait.UntilNil(t, "the old copy is gone", func(ctx context.Context) error {
		if o, err := get(ctx, "member3", "v1", "ConfigMap", ns, "one"); err != nil || o != nil {
			return fmt.Errorf("member3 has it still (%v)", err)
		}
		return nil
	})
	testwait.UntilNil(t, "the others stay", allChecks(colourIn("member2", ns, "one", "blue"), colourIn("member3", ns, "each", "blue")))
}
