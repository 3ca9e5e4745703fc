package schedule

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

const podSpec = "{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}"

// A Rollout is divided as a Deployment is; a StatefulSet of OpenKruise stays whole, also
// where ordinals are ranged, which it does not know.
func TestCustomKindsAreDivided(t *testing.T) {
	for _, tc := range []struct{ object, want string }{
		{"/{apiVersion: argoproj.io/v1alpha1, kind: Rollout, spec: {replicas: 5, template: " + podSpec + "}}", "map[a:3 b:2]"},
		{"/{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, spec: {replicas: 4, template: " + podSpec + "}}", "map[a:2 b:2]"},
		{"/{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: 4, leaderWorkerTemplate: {size: 2, workerTemplate: " + podSpec + "}}}", "map[a:2 b:2]"},
		{"/{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, spec: {replicas: 4, template: " + podSpec + "}}", "map[a:4 b:0]"},
		// Replicas with volumes of their own are not taken apart either.
		{"/{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, spec: {replicas: 4, volumeClaimTemplates: [{metadata: {name: data}}], template: " + podSpec + "}}", "map[a:4 b:0]"},
		{"/{apiVersion: pool.kubevirt.io/v1alpha1, kind: VirtualMachinePool, spec: {replicas: 4, virtualMachineTemplate: {spec: {dataVolumeTemplates: [{metadata: {name: disk}}], template: {spec: {domain: {resources: {requests: {cpu: 1}}}}}}}}}", "map[a:4 b:0]"},
		{"/{apiVersion: pool.kubevirt.io/v1alpha1, kind: VirtualMachinePool, spec: {replicas: 4, virtualMachineTemplate: {spec: {template: {spec: {domain: {resources: {requests: {cpu: 1}}}}}}}}}", "map[a:2 b:2]"},
	} {
		content := contentOf(t, tc.object)
		workloads, err := WorkloadsOf(content)
		if err != nil || len(workloads) != 1 || workloads[0].Requests.CPU != 1000 {
			t.Fatalf("WorkloadsOf = %+v, %v, of %s", workloads, err, tc.object)
		}
		p := v1alpha1.PlacementSpec{}
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
		p.ReplicaScheduling.Ordinals = &v1alpha1.OrdinalRanges{Size: 10}
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: workloads, Now: now})
		got := map[string]int64{}
		for s := range d.AssignReplicas(nil).Shares() {
			got[s.Cluster] = s.Replicas[0]
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%v of %s, want %s", got, tc.object, tc.want)
		}
	}
	for _, whole := range []string{
		"/{apiVersion: ray.io/v1, kind: RayCluster, spec: {workerGroupSpecs: [{replicas: 3}]}}",
		"/{apiVersion: postgresql.cnpg.io/v1, kind: Cluster, spec: {instances: 3}}",
	} {
		if w, err := WorkloadsOf(contentOf(t, whole)); err != nil || len(w) != 0 {
			t.Errorf("WorkloadsOf = %+v, %v, of %s", w, err, whole)
		}
	}
}

// A workload that was divided before it was known to be a whole stays in the clusters of its
// volumes, and comes to one cluster only if no cluster has it yet.
func TestPartsWithVolumesStay(t *testing.T) {
	workloads, err := WorkloadsOf(contentOf(t, "/{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, spec: {replicas: 4, volumeClaimTemplates: [{metadata: {name: data}}], template: "+podSpec+"}}"))
	if err != nil {
		t.Fatal(err)
	}
	key := workloads[0].Key.String()
	held := func(name string, n int64, home ...string) atoll.RowSpec {
		return atoll.RowSpec{UID: newCluster(name).UID, Phase: atoll.RowActive, Assigned: map[string]int64{key: n}, HomeItems: home}
	}
	for _, tc := range []struct {
		rows map[string]atoll.RowSpec
		want string
	}{
		{nil, "map[a:4 b:0]"},
		{map[string]atoll.RowSpec{"a": held("a", 2), "b": held("b", 2)}, "map[a:2 b:2]"},
		{map[string]atoll.RowSpec{"a": held("a", 0), "b": held("b", 4, key)}, "map[a:0 b:4]"},
	} {
		p := v1alpha1.PlacementSpec{}
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: workloads, Rows: tc.rows, Now: now})
		got := map[string]int64{}
		for s := range d.AssignReplicas(nil).Shares() {
			got[s.Cluster] = s.Replicas[0]
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%v, want %s, of %v", got, tc.want, tc.rows)
		}
	}
}

// A group takes the room of all its pods.
func TestGroupsTakeRoom(t *testing.T) {
	r := freecapacity.ReplicaRequests{CPU: 1000, Pods: 3}
	left := TakeCapacity(parseRoom(t, "4 cpu=2000m pods=10"), r, 1)
	if n := CountFittingReplicas(left, r); n != 1 {
		t.Errorf("8 pods fit, a group has 3, one is taken: %d more fit, want 1", n)
	}
}
