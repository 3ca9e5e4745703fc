package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const databaseSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: registry.example/db:1}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: $NS, resources: {requests: {storage: 1Gi}}}
`

// boundVolume is for the claim of the first pod.
const boundVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: $NS}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 3Gi}
  storageClassName: $NS
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: $NS, name: data-db-0}
  hostPath: {path: /tmp/$NS}
`

// TestClaimsOfAStatefulSetAreSeen: the hub shows the claims that members make for a placed StatefulSet, with their phase and
// capacity, in lists, by name and in a watch, and no other claims of the members. A claim of the hub is shown once.
func TestClaimsOfAStatefulSetAreSeen(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "set-claims")
	direct := sharedWorld.lab.KubeconfigPath("member1")
	kubectlAtEnd(t, "member1", "delete persistentvolume "+ns+" --wait=false")
	expectOutput(t, "the volume", kubectlAt(t, direct, strings.ReplaceAll(boundVolume, "$NS", ns), "apply -f -"), "created")
	apply(t, ns, databaseSet)
	hub := sharedWorld.lab.KubeconfigPath("hub")
	claims := "get pvc -n " + ns + " --no-headers -o custom-columns=N:.metadata.name,P:.status.phase,C:.status.capacity.storage"
	testwait.UntilNil(t, "the hub shows the claims", func(context.Context) error {
		out := mustKubectl(t, "", claims)
		if got := strings.Join(strings.Fields(out), " "); got != "data-db-0.member1 Bound 3Gi data-db-0.member2 Pending <none>" {
			return errors.New(out)
		}
		return nil
	})
	expectOutput(t, "one claim", mustKubectl(t, "", "get pvc data-db-0.member1 -n "+ns), "Bound", "3Gi", "RWO", "CLUSTER", "member1")
	expectOutput(t, "its description", mustKubectl(t, "", "describe pvc data-db-0.member1 -n "+ns), "3Gi", ns)
	if out := mustKubectl(t, "", "get pvc -n "+ns+" -o name -l atoll.dev/cluster=member2"); strings.TrimSpace(out) != "persistentvolumeclaim/data-db-0.member2" {
		t.Errorf("of one cluster: %s", out)
	}

	watch := runKubectl(t, hub, "get pvc -w --output-watch-events -n "+ns)
	watch.waitForOutput(t, "data-db-0.member1")
	stray := strings.ReplaceAll("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: stray, namespace: $NS}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "$NS", ns)
	expectOutput(t, "a claim of the member", kubectlAt(t, direct, stray, "apply -f -"), "created")
	kubectlAtEnd(t, "member1", "delete pvc stray --wait=false -n "+ns)
	apply(t, ns, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: shared, namespace: $NS, annotations: {atoll.dev/clusters: member1}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
	testwait.UntilNil(t, "the member has the claim of the hub", inCluster("member1", "v1", "PersistentVolumeClaim", ns, "shared", true))
	watch.waitForOutput(t, "shared")
	if out := mustKubectl(t, "", "get pvc -o name -n "+ns); strings.Count(out, "shared") != 1 || strings.Contains(out, "stray") {
		t.Errorf("the claims are: %s", out)
	}
}
