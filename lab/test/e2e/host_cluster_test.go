package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// hostObjects are what a hub has in the cluster that runs it, by the names of its chart.
const hostObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: atoll}
---
apiVersion: v1
kind: Secret
metadata: {name: hub-keys, namespace: atoll}
stringData: {key: own}
---
apiVersion: v1
kind: Service
metadata: {name: atoll-hub-gateway, namespace: atoll}
spec: {selector: {app.kubernetes.io/name: atoll-hub}, ports: [{port: 6444}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: atoll-hub, namespace: atoll}
spec:
  replicas: 0
  serviceName: atoll-hub-pods
  selector: {matchLabels: {app.kubernetes.io/name: atoll-hub}}
  template:
    metadata: {labels: {app.kubernetes.io/name: atoll-hub}}
    spec: {containers: [{name: hub, image: "registry.example/atoll-hub:own"}]}
`

// The cluster that runs the hub is a member as any other. An object of a user with the name of one of the hub's own is not
// applied there, and a deletion on the hub takes nothing of the hub along. In the agent's namespace nothing is applied.
func TestTheClusterOfTheHubIsAMember(t *testing.T) {
	t.Parallel()
	host := sharedWorld.lab.KubeconfigPath("member1")
	if out := kubectlAt(t, host, hostObjects, "apply -f -"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	kubectlAtEnd(t, "member1", "delete namespace atoll --wait=false")
	all := map[string]string{}
	own := func() string {
		for kind, apiVersion := range map[string]string{"Secret/hub-keys": "v1", "Service/atoll-hub-gateway": "v1", "StatefulSet/atoll-hub": "apps/v1"} {
			kind, name, _ := strings.Cut(kind, "/")
			o, err := get(t.Context(), "member1", apiVersion, kind, "atoll", name)
			if err != nil || o == nil {
				t.Fatalf("%s %s is not there: %v", kind, name, err)
			}
			all[kind] = fmt.Sprintf("%s of generation %d, labels %v, data %v", o.GetUID(), o.GetGeneration(), o.GetLabels(), o.Object["data"])
		}
		return fmt.Sprint(all)
	}
	before := own()

	createNamespace(t, "atoll")
	const placed = `annotations: {atoll.dev/clusters: member1}`
	apply(t, "atoll", `
apiVersion: v1
kind: Secret
metadata: {name: hub-keys, namespace: $NS, `+placed+`}
stringData: {key: other}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: atoll-hub, namespace: $NS, `+placed+`}
spec:
  replicas: 0
  serviceName: atoll-hub-pods
  selector: {matchLabels: {app.kubernetes.io/name: atoll-hub}}
  template:
    metadata: {labels: {app.kubernetes.io/name: atoll-hub}}
    spec: {containers: [{name: hub, image: "registry.example/other:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: $NS, `+placed+`}
data: {a: b}
`)
	testwait.UntilNil(t, "objects of the hub's names are refused, and others are applied", allChecks(
		eventOf("atoll", "StatefulSet", "atoll-hub", "Conflict"), inCluster("member1", "v1", "ConfigMap", "atoll", "other", true)))
	if after := own(); after != before {
		t.Errorf("the hub's objects are\n%s\nand were\n%s", after, before)
	}
	mustKubectl(t, "", "delete namespace atoll --wait=false")
	testwait.UntilNil(t, "the namespace of the hub's API is gone", func(ctx context.Context) error {
		if o, err := get(ctx, "hub", "v1", "Namespace", "", "atoll"); err != nil || o != nil {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
	testwait.UntilNil(t, "what was placed is gone", inCluster("member1", "v1", "ConfigMap", "atoll", "other", false))
	if after := own(); after != before {
		t.Errorf("after the deletion the hub's objects are\n%s\nand were\n%s", after, before)
	}
}
