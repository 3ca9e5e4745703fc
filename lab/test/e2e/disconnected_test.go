package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestNewWorkAvoidsDisconnectedCluster checks that a new Bundle and new replicas go to connected clusters,
// that explain names the others with the reason, and that these get their part when they connect.
func TestNewWorkAvoidsDisconnectedCluster(t *testing.T) {
	ns := createNamespace(t, "avoided")
	divided := `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement:
    clusterAffinity: {clusterNames: [member1, member2, member3]}
    replicaScheduling: {replicaSchedulingType: Divided}
---
`
	replicas := func(want ...int64) func(context.Context) error {
		var checks []func(context.Context) error
		for i, n := range want {
			checks = append(checks, fieldIs(memberNames[i], ns, "web", "spec.replicas", n))
		}
		return allChecks(checks...)
	}
	apply(t, ns, divided+strings.Replace(webDeployment, "replicas: 2", "replicas: 3", 1))
	testwait.UntilNil(t, "delivery", replicas(1, 1, 1))
	if err := sharedWorld.lab.CutLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member3"); err != nil {
			t.Error(err)
		}
	})
	testwait.UntilNil(t, "the hub lost member3", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "cluster", "member3", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "Unknown" {
			return errors.New("Ready is " + out)
		}
		return nil
	})
	mustKubectl(t, "", "scale -n "+ns+" deploy/web --replicas=9")
	testwait.UntilNil(t, "the other clusters get the new replicas", replicas(4, 4))
	testwait.UntilNil(t, "explain marks the cluster", explanationMatches("deploy/web -n "+ns, `^ +member3 +fits, disconnected \(gets no new replicas\) +Active .*web=1.*away`))
	apply(t, ns, `
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
  placement: {clusterAffinity: {clusterNames: [member2, member3]}, maxClusters: 2}
`)
	testwait.UntilNil(t, "the new Bundle is in the other cluster", explanationMatches("cm/alone -n "+ns,
		`is in 1 cluster and ready there`, `^ +member3: it is disconnected, and gets nothing new \[connection\]$`))
	if err := sharedWorld.lab.HealLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the replicas are divided again", replicas(3, 3, 3))
	testwait.UntilNil(t, "the Bundle comes to the cluster", colourIn("member3", ns, "alone", "blue"))
}
