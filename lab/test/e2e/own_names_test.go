package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// namedSets run in one cluster and in two.
const namedSets = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: $NS, annotations: {atoll.dev/clusters: member1}}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: "registry.example/db:1"}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: twin, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec:
  serviceName: twin
  selector: {matchLabels: {app: twin}}
  template:
    metadata: {labels: {app: twin}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: twin, image: "registry.example/twin:1"}]}
`

// TestPodsByTheirOwnNames: kubectl on the hub addresses a pod as in its cluster, while no other
// cluster has a pod of this name.
func TestPodsByTheirOwnNames(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "named")
	apply(t, ns, namedSets)
	grantRole(t, "member1", ns+"-admin", "--clusterrole cluster-admin --user atoll-admin")
	hub, in := sharedWorld.lab.KubeconfigPath("hub"), " -n "+ns
	testwait.UntilNil(t, "the pods run", func(context.Context) error {
		out := mustKubectl(t, "", "get pods --no-headers"+in)
		if strings.Count(out, "Running") != 3 || !strings.Contains(out, "db-0.member1 ") || !strings.Contains(out, "twin-0.member2 ") {
			return fmt.Errorf("the output is: %s", out)
		}
		return nil
	})
	expectOutput(t, "wait", mustKubectl(t, "", "wait --for=condition=Ready pod/db-0 --timeout 60s"+in), "pod/db-0 condition met")
	expectOutput(t, "get", mustKubectl(t, "", "get pod db-0 -o jsonpath={.metadata.name}/{.metadata.labels.atoll\\.dev/cluster}"+in), "db-0/member1")
	testwait.UntilNil(t, "describe", logSays(func() string { return mustKubectl(t, "", "describe pod db-0"+in) }, "StatefulSet/db", "Scheduled"))
	testwait.UntilNil(t, "annotate", logSays(func() string { return kubectlAt(t, hub, "", "annotate pod db-0 touched=yes --overwrite"+in) }, "pod/db-0 annotated"))
	expectOutput(t, "the annotation in the member", kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "get pod db-0 -o jsonpath={.metadata.annotations.touched}"+in), "yes")

	// Members' nodes have no kubelets: how far a request comes is what their API servers say.
	expectOutput(t, "logs", kubectlAt(t, hub, "", "logs db-0"+in), "containerLogs/"+ns+"/db-0")
	expectOutput(t, "exec", kubectlAt(t, hub, "", "exec db-0"+in+" -- ls"), "/exec/"+ns+"/db-0")
	before := mustKubectl(t, "", "get pod db-0 -o jsonpath={.metadata.uid}"+in)
	expectOutput(t, "delete, which waits", mustKubectl(t, "", "delete pod db-0 --timeout 60s"+in), `pod "db-0" deleted`)
	testwait.UntilNil(t, "another pod of the name runs", func(context.Context) error {
		if out := kubectlAt(t, hub, "", "get pod db-0 -o jsonpath={.metadata.uid}:{.status.phase}"+in); strings.HasPrefix(out, before) || !strings.HasSuffix(out, ":Running") {
			return fmt.Errorf("the output is: %s", out)
		}
		return nil
	})

	both := "pod " + ns + "/twin-0 runs in 2 clusters; name one of: twin-0.member1, twin-0.member2"
	for _, command := range []string{"get pod twin-0", "logs twin-0", "exec twin-0", "delete pod twin-0", "describe pod twin-0"} {
		args := command + in
		if strings.HasPrefix(command, "exec") {
			args += " -- ls"
		}
		kubectlFails(t, "", args, both)
	}
	expectOutput(t, "one of two", mustKubectl(t, "", "delete pod twin-0.member1 --timeout 60s"+in), `pod "twin-0.member1" deleted`)
	kubectlFails(t, "", "get pod db-1"+in, `pods "db-1" not found`)
}
