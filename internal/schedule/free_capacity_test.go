package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

func parseRoom(t testing.TB, lines ...string) freecapacity.NodeClasses {
	t.Helper()
	r, err := freecapacity.ParseClasses(lines)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFit(t *testing.T) {
	small := freecapacity.ReplicaRequests{CPU: 500, Memory: 1 << 30}
	gpu := freecapacity.ReplicaRequests{CPU: 1000, Other: map[string]int64{"nvidia.com/gpu": 1}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}
	for _, tc := range []struct {
		name string
		req  freecapacity.ReplicaRequests
		room []string
		want int64
	}{
		{"no nodes", small, nil, 0},
		{"cpu is short", small, []string{"1 cpu=1900m memory=65536Mi pods=100"}, 3},
		{"memory is short", small, []string{"1 cpu=64000m memory=2500Mi pods=100"}, 2},
		{"pods are short", small, []string{"1 cpu=64000m memory=65536Mi pods=4"}, 4},
		{"what is left on several nodes is no room on one", small, []string{"8 cpu=400m memory=65536Mi pods=100"}, 0},
		{"nodes add up", small, []string{"3 cpu=1000m memory=4096Mi pods=100", "2 cpu=600m memory=4096Mi pods=100"}, 8},
		{"requests of nothing", freecapacity.ReplicaRequests{}, []string{"2 pods=7"}, 14},
		{"a resource that no node has", gpu, []string{"2 cpu=9000m pods=7"}, 0},
		{"a resource, behind a taint that is tolerated", gpu, []string{"2 cpu=9000m pods=7 nvidia.com/gpu=4 taints=gpu=yes:NoSchedule"}, 8},
		{"replicas of four pods each", freecapacity.ReplicaRequests{CPU: 500, Pods: 4}, []string{"3 cpu=1500m pods=7"}, 2},
		{"a taint that is not", small, []string{"2 cpu=9000m memory=9000Mi pods=7 taints=gpu=yes:NoSchedule"}, 0},
		{"more than can be counted", freecapacity.ReplicaRequests{}, slices.Repeat([]string{"2000000000 pods=9000000000000000"}, 2), math.MaxInt64},
	} {
		if got := CountFittingReplicas(parseRoom(t, tc.room...), tc.req); got != tc.want {
			t.Errorf("%s: %d fit, want %d", tc.name, got, tc.want)
		}
	}
}

// Taken capacity is gone: fewer of the same fit, none of a larger size, and no node has less than
// nothing.
func TestTake(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	request := func() freecapacity.ReplicaRequests {
		q := freecapacity.ReplicaRequests{CPU: r.Int64N(2000), Memory: r.Int64N(3 << 30)}
		if r.IntN(4) == 0 {
			q.Other = map[string]int64{"x.io/y": 1 + r.Int64N(2)}
		}
		return q
	}
	for range 3000 {
		var before freecapacity.NodeClasses
		for range r.IntN(5) {
			before = append(before, freecapacity.NodeClass{Nodes: 1 + r.Int64N(9), CPU: r.Int64N(9000), Memory: r.Int64N(20 << 30), Pods: r.Int64N(30), Other: map[string]int64{"x.io/y": r.Int64N(5)}})
		}
		copied := fmt.Sprint(before)
		q, other, n := request(), request(), r.Int64N(60)
		after := TakeCapacity(before, q, n)
		if had, has := CountFittingReplicas(before, q), CountFittingReplicas(after, q); has != max(had-n, 0) {
			t.Fatalf("%d of %+v taken from %+v: %d fitted, %d do: %+v", n, q, before, had, has, after)
		}
		if CountFittingReplicas(after, other) > CountFittingReplicas(before, other) {
			t.Fatalf("taking %d of %+v from %+v makes room for %+v: %+v", n, q, before, other, after)
		}
		var nodes int64
		for _, c := range after {
			nodes += c.Nodes
			if c.Nodes <= 0 || c.CPU < 0 || c.Memory < 0 || c.Pods < 0 || c.Other["x.io/y"] < 0 {
				t.Fatalf("taking %d of %+v from %+v leaves %+v", n, q, before, after)
			}
		}
		for _, c := range before {
			nodes -= c.Nodes
		}
		if nodes != 0 || len(after) > len(before)+2 || fmt.Sprint(before) != copied {
			t.Fatalf("nodes are lost, or too many classes made, or an argument changed: %+v, %+v", before, after)
		}
	}
}

// knownRoom room of clusters.
type knownRoom map[string]freecapacity.NodeClasses

func (k knownRoom) lookUp(cluster string) (freecapacity.NodeClasses, bool) {
	room, ok := k[cluster]
	return room, ok
}

// Workloads of one Bundle share a cluster's room: what one is given, the next has not.
func TestRoomIsNotGivenTwice(t *testing.T) {
	api, job := web, web
	api.Key.Name, job.Key.Name = "api", "worker"
	web := web
	web.Requests, api.Requests, job.Requests = freecapacity.ReplicaRequests{CPU: 1000}, freecapacity.ReplicaRequests{CPU: 1000}, freecapacity.ReplicaRequests{CPU: 500}
	web.Replicas, api.Replicas, job.Replicas = 5, 5, 10
	for _, tc := range []struct{ how, want string }{
		{"weightPreference: {dynamicWeight: AvailableReplicas}", "a: api=3 web=3 worker=4; b: api=2 web=2 worker=2; short worker 4"},
		{"replicaDivisionPreference: Aggregated", "a: api=5 web=0 worker=6; b: api=0 web=5 worker=0; short worker 4"},
	} {
		var p v1alpha1.PlacementSpec
		if err := yaml.UnmarshalStrict([]byte("replicaScheduling: {replicaSchedulingType: Divided, "+tc.how+"}"), &p); err != nil {
			t.Fatal(err)
		}
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: []Workload{api, web, job}, Now: now})
		if !d.UsesFreeCapacity() {
			t.Fatal("it says that room makes no difference")
		}
		d = d.WithFreeCapacity(knownRoom{"a": parseRoom(t, "2 cpu=4000m memory=1Mi pods=50"), "b": parseRoom(t, "1 cpu=5000m memory=1Mi pods=50")}.lookUp)
		a := d.AssignReplicas(nil)
		var parts []string
		used := map[string]int64{}
		for share := range a.Shares() {
			c := share.Cluster
			text := c + ":"
			for _, w := range []Workload{api, web, job} {
				n := share.AssignedReplicas()[w.Key.String()]
				used[c] += n * w.Requests.CPU
				text += fmt.Sprintf(" %s=%d", w.Key.Name, n)
			}
			parts = append(parts, text)
		}
		for _, s := range a.Shortages {
			parts = append(parts, fmt.Sprintf("short %s %d", s.Key.Name, s.Unplaced))
		}
		if used["a"] > 8000 || used["b"] > 5000 {
			t.Errorf("%s: more than there is: %v", tc.how, used)
		}
		if got := strings.Join(parts, "; "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.how, got, tc.want)
		}
		if fit, known := d.FreeReplicasOf("b"); !known || !reflect.DeepEqual(fit, map[string]int64{api.Key.String(): 5, web.Key.String(): 5, job.Key.String(): 10}) {
			t.Errorf("room in b: %v, %t", fit, known)
		}
	}
}

// A cluster of unknown capacity degrades alone: it keeps what it has and gets what
// no other has room for.
func TestUnknownRoom(t *testing.T) {
	p := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided,
		WeightPreference: &v1alpha1.ClusterPreferences{DynamicWeight: v1alpha1.WeighAvailableReplicas}}}
	w := web
	w.Requests = freecapacity.ReplicaRequests{CPU: 1000}
	for _, tc := range []struct {
		replicas int64
		room     map[string]freecapacity.NodeClasses
		want     string
	}{
		{6, map[string]freecapacity.NodeClasses{"a": parseRoom(t, "1 cpu=9000m pods=9"), "b": parseRoom(t, "1 cpu=9000m pods=9")}, "a=2 b=2 c=2"},
		{25, map[string]freecapacity.NodeClasses{"a": parseRoom(t, "1 cpu=9000m pods=9"), "b": parseRoom(t, "1 cpu=9000m pods=9")}, "a=9 b=9 c=7"},
		{9, nil, "a=1 b=1 c=7"},
	} {
		rows := map[string]atoll.RowSpec{"c": runningRow(newCluster("c"), web, 2)}
		if tc.room == nil {
			rows["c"] = runningRow(newCluster("c"), web, 5)
		}
		w.Replicas = tc.replicas
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}, Rows: rows, Workloads: []Workload{w}, Now: now})
		if got := formatShares(d.WithFreeCapacity(knownRoom(tc.room).lookUp), w); got != tc.want {
			t.Errorf("%d: %s, want %s", tc.replicas, got, tc.want)
		}
	}
}

// A StatefulSet that stays whole goes where all of it fits.
func TestWholeByRoom(t *testing.T) {
	p := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated}}
	w := db
	w.Requests, w.Replicas = freecapacity.ReplicaRequests{CPU: 1000}, 4
	d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}, Workloads: []Workload{w}, Now: now})
	if got := formatShares(d.WithFreeCapacity(knownRoom{"a": parseRoom(t, "1 cpu=3000m pods=9"), "b": parseRoom(t, "1 cpu=6000m pods=9"), "c": parseRoom(t, "1 cpu=4000m pods=3")}.lookUp), w); got != "a=0 b=4! c=0" {
		t.Error(got)
	}
	if got := d.WithFreeCapacity(knownRoom{"a": parseRoom(t, "1 cpu=3000m pods=9"), "b": {}, "c": {}}.lookUp).AssignReplicas(nil); got.ShareOf("a").Replicas[0] != 3 || got.Shortages[0].Unplaced != 1 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkAssignByRoom(b *testing.B) {
	p := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided,
		WeightPreference: &v1alpha1.ClusterPreferences{DynamicWeight: v1alpha1.WeighAvailableReplicas}}}
	w := web
	w.Requests, w.Replicas = freecapacity.ReplicaRequests{CPU: 250, Memory: 1 << 28}, 5000
	cs, rooms := bigFleet(1000), map[string]freecapacity.NodeClasses{}
	for i, c := range cs {
		rooms[c.Name] = parseRoom(b, fmt.Sprintf("%d cpu=3500m memory=12288Mi pods=90", 1+i%9), "3 cpu=1500m memory=2048Mi pods=60", "1 cpu=250m memory=512Mi pods=9")
	}
	d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: cs, Workloads: []Workload{w}, Now: now}).WithFreeCapacity(knownRoom(rooms).lookUp)
	b.ReportAllocs()
	for b.Loop() {
		d.AssignReplicas(nil)
	}
}
