package schedule

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// decisionKinds are the kinds of placements, each with the replicas that it divides, and with the budget of
// what a decision over 10,000 clusters from nothing allocates, in KB.
var decisionKinds = []struct {
	name, placement string
	replicas        int64
	budget          uint64
}{
	{"all", "{}", 0, 1_900},
	{"labels", "{clusterAffinity: {labelSelector: {matchLabels: {env: prod, country: '6'}}}}", 0, 80},
	{"fields", "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [region-1, region-2]}]}}}", 0, 420},
	{"max", "{maxClusters: 50}", 0, 560},
	{"spread", "{maxClusters: 50, spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 5}]}", 0, 700},
	{"zones", "{maxClusters: 50, spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 5}, {spreadByField: zone, maxSkew: 2}], scores: [{name: ResourceAvailable, resource: cpu}, {name: ResourceAvailable, resource: memory, full: 256Gi}]}", 0, 780},
	{"wide-spread", "{spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 5}]}", 0, 1_700},
	{"weights", "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {labelSelector: {matchLabels: {env: prod}}}, weight: 3}, {targetCluster: {labelSelector: {matchLabels: {env: dev}}}, weight: 1}]}}}", 50_000, 3_400},
	{"bounds", "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {labelSelector: {matchLabels: {env: prod}}}, weight: 3, minReplicas: 2, maxReplicas: 6}, {targetCluster: {labelSelector: {matchLabels: {env: dev}}}, weight: 1}]}}}", 50_000, 3_400},
	{"available", "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}", 50_000, 3_600},
	{"aggregated", "{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}", 50_000, 3_600},
	{"chosen-available", "{maxClusters: 50, scores: [{name: ResourceAvailable, resource: cpu}], replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}", 1000, 720},
	{"groups", "{clusterAffinities: [{affinityName: a, labelSelector: {matchLabels: {country: '99'}}}, {affinityName: b, labelSelector: {matchLabels: {env: prod}}}]}", 0, 1_200},
}

// decisionInput is the input of a decision over n clusters of which each reports its capacity.
func decisionInput(tb testing.TB, placement string, n int, replicas int64) (Input, knownRoom) {
	p := parsePlacement(tb, placement)
	in := Input{BundleUID: "b", Placement: p, Filter: CompilePlacement(p), Clusters: spreadFleet(n), Now: now, SkipExplanations: true, UseFreeCapacity: true}
	rooms := knownRoom{}
	if replicas == 0 {
		return in, rooms
	}
	w := Workload{Key: web.Key, Replicas: replicas, Requests: freecapacity.ReplicaRequests{CPU: 250, Memory: 1 << 28}}
	in.Workloads = []Workload{w}
	for i := range in.Clusters {
		rooms[in.Clusters[i].Name] = freecapacity.NodeClasses{
			{Nodes: int64(1 + i%9), CPU: 3500, Memory: 12 << 30, Pods: 90}, {Nodes: 3, CPU: 1500, Memory: 2 << 30, Pods: 60}, {Nodes: 1, CPU: 250, Memory: 1 << 29, Pods: 9},
		}
	}
	in.Facts = fakeFacts{replicas: func(c *Cluster) (int64, bool) {
		return CountFittingWorkloads(rooms[c.Name], in.Workloads, in.Rows[c.Name].Assigned), true
	}}
	return in, rooms
}

// decideWhole makes the whole decision, with the division.
func decideWhole(in Input, rooms knownRoom) (Decision, ReplicaAssignment) {
	d := DecidePlacement(in)
	if len(rooms) > 0 {
		d = d.WithFreeCapacity(rooms.lookUp)
	}
	return d, d.AssignReplicas(nil)
}

// applyDecision returns the input after the decision is carried out.
func applyDecision(in Input, d Decision, a ReplicaAssignment) Input {
	in.Rows = make(map[string]atoll.RowSpec, len(d.Verdicts))
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.IsHolder() {
			in.Rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint, Assigned: a.ShareOf(v.Cluster).AssignedReplicas()}
		}
	}
	return in
}

// processTime returns the CPU time that this process has used. On a machine that others use too, only this
// compares.
func processTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The decision over 10,000 clusters, from nothing and again once it is carried out.
func BenchmarkDecision10000(b *testing.B) {
	for _, kind := range decisionKinds {
		in, rooms := decisionInput(b, kind.placement, 10_000, kind.replicas)
		d, a := decideWhole(in, rooms)
		for name, in := range map[string]Input{"new": in, "again": applyDecision(in, d, a)} {
			b.Run(fmt.Sprintf("%s/%s", kind.name, name), func(b *testing.B) {
				b.ReportAllocs()
				before := processTime(b)
				for b.Loop() {
					decideWhole(in, rooms)
				}
				b.ReportMetric(float64((processTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// A decision allocates a few lists, and no more than its budget. Bytes are counted and not times: half of the time of a
// decision was spent on memory.
func TestDecisionsKeepTheirBudgetOfMemory(t *testing.T) {
	for _, kind := range decisionKinds {
		in, rooms := decisionInput(t, kind.placement, 10_000, kind.replicas)
		decideWhole(in, rooms)
		least := uint64(math.MaxUint64)
		for range 3 { // others of this process may allocate, too
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			decideWhole(in, rooms)
			runtime.ReadMemStats(&after)
			least = min(least, (after.TotalAlloc-before.TotalAlloc)/1000)
		}
		if least > kind.budget {
			t.Errorf("%s allocates %d KB, of which there may be %d", kind.name, least, kind.budget)
		}
		t.Logf("%s: %d of %d KB", kind.name, least, kind.budget)
	}
}
