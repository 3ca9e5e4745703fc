package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestADrainedClusterIsEvacuated checks that a drain moves what can be replaced, replacements first, and reports the rest,
// that kubectl drain follows it, that two drained clusters are reported as each other's obstacle, and that uncordon gives the
// cluster back. It keeps others' work away from members, so it runs alone.
func TestADrainedClusterIsEvacuated(t *testing.T) {
	t.Setenv("KUBECONFIG", sharedWorld.lab.KubeconfigPath("hub"))
	ns := createNamespace(t, "drained")
	policy := func(name, placement string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: $NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "registry.example/web:1"}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %[1]s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: %[1]s}]
  placement: %[2]s
---
`, name, placement)
	}
	in := func(cluster, name string, want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if o, err := get(ctx, cluster, "apps/v1", "Deployment", ns, name); err != nil || (o != nil) != want {
				return fmt.Errorf("%s has Deployment %s: %t (%w)", cluster, name, o != nil, err)
			}
			return nil
		}
	}
	says := func(what, text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not contain %q:\n%s", what, w, text)
			}
		}
	}
	t.Cleanup(func() {
		for _, member := range []string{"member2", "member3"} {
			kubectlFor(context.WithoutCancel(t.Context()), t, "uncordon", member)
		}
	})
	const one = "{clusterAffinity: {clusterNames: [member2, member3]}, maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [member3]}}]}"
	apply(t, ns, policy("one", one)+policy("each", "{clusterAffinity: {clusterNames: [member2, member3]}}"))
	testwait.UntilNil(t, "delivery", allChecks(in("member3", "one", true), in("member3", "each", true), in("member2", "each", true)))

	mustKubectl(t, "", "cordon member3")
	kubectlFails(t, "", "drain member3 --force --disable-eviction=false --timeout 20s", "atoll drain member3")
	says("the plan", binaryOutput(t, "", "atoll", "drain", "member3", "--dry-run"), "moves from member3 to member2", "member3 would keep it: each cluster that fits has a copy of its own (CopyInEachCluster)", "exit status 2")
	testwait.UntilNil(t, "nothing has moved", in("member3", "one", true))
	// Work of other tests that is being removed may be there, too: no total is certain, and no exit code.
	says("the drain", binaryOutput(t, "", "atoll", "drain", "member3"), "REMAINS", ns+"/each", "CopyInEachCluster")
	testwait.UntilNil(t, "it has moved", allChecks(in("member3", "one", false), in("member2", "one", true), in("member3", "each", true)))
	says("the list of clusters", atollOn(t, "get", "clusters"), "is drained (")
	testwait.UntilNil(t, "explain names the drain", explanationMatches("deployment/each -n "+ns, `^ +member3 +drained, and keeps its copy: each cluster that fits has a copy of its own`))

	apply(t, ns, policy("pinned", "{clusterAffinity: {clusterNames: [member2]}}"))
	testwait.UntilNil(t, "delivery", in("member2", "pinned", true))
	says("a drain of both", binaryOutput(t, "", "atoll", "drain", "member2"), "CannotLeave: ", ns+"/one", ns+"/each", "no other cluster can take its place; drained or cordoned: member3", ns+"/pinned", "exit status 3")
	testwait.UntilNil(t, "both stay", allChecks(in("member2", "one", true), in("member2", "pinned", true)))
	kubectlFails(t, "", "drain member2 --force --pod-selector app=pinned --timeout 20s", "nothing replaces this pod elsewhere")

	mustKubectl(t, "", "uncordon member3")
	testwait.UntilNil(t, "the obstacle is gone, and it moves", allChecks(in("member2", "one", false), in("member3", "one", true), in("member2", "pinned", true)))
	says("kubectl drain", mustKubectl(t, "", "drain member2 --force --pod-selector app=one --timeout 60s"), "member2 drained")
	atollOn(t, "uncordon", "member2")
	testwait.UntilNil(t, "nothing is reported any more", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "clusters", "-o", "jsonpath={.items[*].spec.taints}{.items[*].status.drain}"); out != "" {
			return errors.New(out)
		}
		return nil
	})
	move := []string{"migrate", "deployment/one", "-n", ns, "--from", "member3", "--to", "member2"}
	says("the plan of a move", binaryOutput(t, "", "atoll", move...), "Edit of PropagationPolicy "+ns+"/one:", "moves from member3 to member2", "exit status 2")
	says("a move to where nothing fits", binaryOutput(t, "", "atoll", "migrate", "deployment/pinned", "-n", ns, "--from", "member3", "--to", "member1"), "does not move pinned from member3", "exit status 1")
	says("the move", atollOn(t, append(move, "--yes")...), "The edit is written")
	testwait.UntilNil(t, "it has moved", allChecks(in("member3", "one", false), in("member2", "one", true)))
	says("the move back", atollOn(t, "migrate", "deployment/one", "-n", ns, "--from", "member2", "--to", "member3", "--yes"), "The edit is written")
	testwait.UntilNil(t, "what left stays away", allChecks(in("member2", "one", false), in("member3", "one", true), in("member2", "each", true), in("member3", "each", true)))
}
