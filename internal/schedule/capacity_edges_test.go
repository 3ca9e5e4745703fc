package schedule

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

const dividedPlacement = "{replicaScheduling: {replicaSchedulingType: Divided}}"

// A caller can hold rows at their revision. Such a row keeps its share although its cluster has space for more,
// and the other rows go on.
func TestKeepRowsAtRevision(t *testing.T) {
	clusters := []Cluster{newCluster("a", statesCapacity(t, "{replicas: 20}")), newCluster("b", statesCapacity(t, "{replicas: 20}")), newCluster("c")}
	in := inputFor(t, parsePlacement(t, dividedPlacement), contentOf(t, "/"+deploymentJSON(12, "")), nil, clusters...)
	key := in.Workloads[0].Key.String()
	in.Rows = map[string]atoll.RowSpec{}
	for _, c := range clusters {
		row := activeRow(c, in.Placement)
		row.Assigned = map[string]int64{key: 2}
		in.Rows[c.Name] = row
	}
	before := DecidePlacement(in)
	d := before.KeepRowsAtRevision(map[string]string{"a": "it waits for b", "c": "it states no bounds"})
	for cluster, want := range map[string]string{"a": "it waits for b", "b": "", "c": "it states no bounds"} {
		if v, _ := d.FindVerdict(cluster); v.Notes().CapacityReason != want {
			t.Errorf("%s: %q, want %q", cluster, v.Notes().CapacityReason, want)
		}
	}
	if slices.Sort(d.CapacityBlocked); !slices.Equal(d.CapacityBlocked, []string{"a", "c"}) {
		t.Errorf("blocked are %q", d.CapacityBlocked)
	}
	if got := formatShares(d, in.Workloads[0]); got != "a=2 b=5 c=5" {
		t.Errorf("shares %s", got)
	}
	if got := formatShares(before, in.Workloads[0]); got != "a=4 b=4 c=4" || len(before.CapacityBlocked) != 0 {
		t.Errorf("the decision itself is changed: %s, %q", got, before.CapacityBlocked)
	}
}

// A later group that takes overflow does so within the capacity that its clusters state.
func TestOverflowKeepsStatedCapacity(t *testing.T) {
	own, near := newCluster("a", withLabel("at", "own"), statesCapacity(t, "{replicas: 4}")), newCluster("m", withLabel("at", "near"), statesCapacity(t, "{replicas: 3}"))
	far := newCluster("z", withLabel("at", "far"))
	p := overflowGroups(t, aggregated+", overflow: Allow")
	for _, tc := range []struct {
		replicas int64
		want     string
	}{{4, "a=4"}, {6, "a=4 m=2"}, {9, "a=4 m=3 z=2"}} {
		in := inputFor(t, p, contentOf(t, "/"+deploymentJSON(tc.replicas, "")), nil, own, near, far)
		d := DecidePlacement(in)
		if got := formatShares(d, in.Workloads[0]); got != tc.want {
			t.Errorf("%d replicas: %s, want %s", tc.replicas, got, tc.want)
		}
		if bounds, want := d.CapacityBounds("m"), strings.Contains(tc.want, "m="); (len(bounds) == 1) != want || want && bounds[0] != (CapacityBound{Path: "capacity.replicas", Stated: "3", Used: "0"}) {
			t.Errorf("%d replicas: bounds of m are %+v", tc.replicas, bounds)
		}
	}
	only := inputFor(t, p, contentOf(t, "/"+deploymentJSON(9, "")), nil, newCluster("a", withLabel("at", "own")), near)
	only.UseFreeCapacity = true
	only.Facts = fakeFacts{replicas: func(*Cluster) (int64, bool) { return 2, true }}
	if d := DecidePlacement(only); len(d.CapacityBounds("a")) != 0 || len(d.CapacityBounds("m")) != 1 {
		t.Errorf("bounds of a are %+v, of m %+v", d.CapacityBounds("a"), d.CapacityBounds("m"))
	}
}

// Whole workloads need no places for single replicas, so only divided ones count against stated capacity.
func TestReplicasWithinStatedCapacity(t *testing.T) {
	c := newCluster("a", statesCapacity(t, "{replicas: 7}"))
	const set = "/{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 5, template: {spec: {containers: [{name: c}]}}}}"
	in := inputFor(t, parsePlacement(t, dividedPlacement), contentOf(t, "/"+deploymentJSON(4, ""), set, "/"+deploymentJSON(9, "")), nil, c)
	if got := in.countReplicasWithinStatedCapacity(&c); got != 7 {
		t.Errorf("%d replicas, want 4 of the first and 3 of the last", got)
	}
	row := activeRow(c, in.Placement)
	row.Assigned = map[string]int64{in.Workloads[0].Key.String(): 6, in.Workloads[1].Key.String(): 2}
	in.Rows = map[string]atoll.RowSpec{"a": row}
	// It runs 6 of a workload that now has 4, and 2 of the other: one more place is left of 7.
	if got := in.countReplicasWithinStatedCapacity(&c); got != 4+2 {
		t.Errorf("with rows %d replicas, want 6", got)
	}
}

// A cluster that reports no free node has no space, which is known. One that does not report may have some.
func TestNoNodesAreKnownToHaveNoCapacity(t *testing.T) {
	w := web
	w.Replicas = 4
	p := parsePlacement(t, "{replicaScheduling: {"+aggregated+"}}")
	d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: []Workload{w}, Now: now})
	d = d.WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) { return nil, cluster == "a" })
	if fit, known := d.FreeReplicasOf("a"); !known || !reflect.DeepEqual(fit, map[string]int64{w.Key.String(): 0}) {
		t.Errorf("a has space for %v, known %t", fit, known)
	}
	if fit, known := d.FreeReplicasOf("b"); known || fit != nil {
		t.Errorf("b has space for %v, known %t", fit, known)
	}
	if _, known := d.FreeReplicasOf("c"); known {
		t.Error("the space of a cluster without a verdict is known")
	}
	if got := formatShares(d, w); got != "a=0 b=4" {
		t.Errorf("shares %s", got)
	}
	byWeight := DecidePlacement(Input{Placement: parsePlacement(t, dividedPlacement), Clusters: []Cluster{newCluster("a")}, Workloads: []Workload{w}, Now: now})
	byWeight = byWeight.WithFreeCapacity(func(string) (freecapacity.NodeClasses, bool) {
		t.Error("free capacity is asked for, although weights decide")
		return nil, true
	})
	if _, known := byWeight.FreeReplicasOf("a"); known {
		t.Error("free capacity is known, although weights decide")
	}
}

// A cluster may bound up to 64 resources.
func TestCapacityBoundsAreCounted(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want string
	}{{maxCapacityBounds, ""}, {maxCapacityBounds + 1, "spec.capacity.resources: Too many: 65: must have at most 64 items"}} {
		c := v1alpha1.ClusterCapacity{Resources: corev1.ResourceList{}}
		for i := range tc.n {
			c.Resources[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1")
		}
		got := ""
		if err := CheckCapacity(&c, field.NewPath("spec", "capacity")).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%d resources: %q, want %q", tc.n, got, tc.want)
		}
	}
	if errs := CheckCapacity(nil, field.NewPath("spec")); errs != nil {
		t.Errorf("no capacity is refused: %v", errs)
	}
}

// No content has no demand. An item that is no object is refused by its key, except where pods are only counted.
func TestDemandOfWhatIsNoObject(t *testing.T) {
	d, err := DemandOf(nil)
	if err != nil || len(d.UsageFor(nil)) != 0 || len(d.minimumUsages) != 1 || len(d.minimumUsages[0]) != 0 {
		t.Errorf("no content: %+v, %v", d, err)
	}
	if got := (*Demand)(nil).UsageFor(map[string]int64{"x": 1}); got != nil {
		t.Errorf("no demand uses %v", got)
	}
	broken := atoll.Item{Key: web.Key, Object: json.RawMessage(`[]`), Divided: true}
	content := &atoll.Content{Items: []atoll.Item{broken}}
	if got, err := DemandOf(content); got != nil || err == nil || !strings.HasPrefix(err.Error(), web.Key.String()+" is not an object: ") {
		t.Errorf("demand %v, %v", got, err)
	}
	if got, err := WorkloadsOf(content); got != nil || err == nil || !strings.HasPrefix(err.Error(), web.Key.String()+" is not an object: ") {
		t.Errorf("workloads %v, %v", got, err)
	}
	broken.Divided = false
	null := broken
	null.Object = json.RawMessage(`null`)
	pod := atoll.Item{Key: atoll.ItemKey{Kind: "Pod", Name: "p"}, Object: json.RawMessage(`{}`)}
	if n := CountUndividedPods(UndividedPodsOf(&atoll.Content{Items: []atoll.Item{broken, null, pod}})); n != 1 {
		t.Errorf("%d pods, want that of the Pod alone", n)
	}
}

// Usages and bounds are compared measure by measure, and only measures that grow can exceed a bound.
func TestBoundsAreExceededByWhatGrows(t *testing.T) {
	bounds := ResourceUsage{{"cpu", 10}, {"objects", 5}}
	for _, tc := range []struct {
		name                string
		others, ask, before ResourceUsage
		want                string
	}{
		{"up to the bound", ResourceUsage{{"cpu", 4}}, ResourceUsage{{"cpu", 6}}, nil, ""},
		{"one above it", ResourceUsage{{"cpu", 4}}, ResourceUsage{{"cpu", 7}}, nil, "cpu"},
		{"the first of two", nil, ResourceUsage{{"cpu", 11}, {"objects", 6}}, nil, "cpu"},
		{"the one that grows", nil, ResourceUsage{{"cpu", 11}, {"objects", 6}}, ResourceUsage{{"cpu", 11}}, "objects"},
		{"others exceed it", ResourceUsage{{"cpu", 12}}, ResourceUsage{{"cpu", 1}}, nil, "cpu"},
		{"less than before", ResourceUsage{{"cpu", 12}}, ResourceUsage{{"cpu", 1}}, ResourceUsage{{"cpu", 2}}, ""},
		{"what is not bounded", nil, ResourceUsage{{"memory", 100}}, nil, ""},
	} {
		b, over := bounds.firstExceeded(tc.others, tc.ask, tc.before)
		if b.Name != tc.want || over != (tc.want != "") || bounds.IsExceeded(tc.others, tc.ask, tc.before) != over {
			t.Errorf("%s: %q, %t; want %q", tc.name, b.Name, over, tc.want)
		}
	}
	for _, tc := range []struct {
		used, each ResourceUsage
		want       int64
	}{
		{nil, ResourceUsage{{"cpu", 3}}, 3}, {ResourceUsage{{"cpu", 2}}, ResourceUsage{{"cpu", 3}}, 2}, {ResourceUsage{{"cpu", 99}}, ResourceUsage{{"cpu", 3}}, 0},
		{nil, ResourceUsage{{"cpu", 3}, {"objects", 2}}, 2}, {nil, ResourceUsage{{"memory", 1}}, Unbounded}, {nil, ResourceUsage{{"cpu", 0}}, Unbounded},
	} {
		if got := bounds.countFitting(tc.used, tc.each); got != tc.want {
			t.Errorf("%v fits %d times beside %v, want %d", tc.each, got, tc.used, tc.want)
		}
	}
}

// Usages add and subtract by name, in order, and never fall below nothing.
func TestUsagesAddByName(t *testing.T) {
	u, o := ResourceUsage{{"b", 5}, {"d", 1}}, ResourceUsage{{"a", 1}, {"b", 2}, {"c", 3}}
	for _, tc := range []struct {
		name      string
		got, want ResourceUsage
	}{
		{"once", u.AddTimes(o, 1), ResourceUsage{{"a", 1}, {"b", 7}, {"c", 3}, {"d", 1}}},
		{"twice", u.AddTimes(o, 2), ResourceUsage{{"a", 2}, {"b", 9}, {"c", 6}, {"d", 1}}},
		{"never", u.AddTimes(o, 0), u},
		{"nothing", u.AddTimes(nil, 3), u},
		{"to nothing", ResourceUsage(nil).AddTimes(o, 1), o},
		{"less", u.SubtractUsage(o), ResourceUsage{{"b", 3}, {"d", 1}}},
		{"less than there is", u.AddTimes(o, -3), ResourceUsage{{"d", 1}}},
		{"the maximum", u.MaxOf(o), ResourceUsage{{"a", 1}, {"b", 5}, {"c", 3}, {"d", 1}}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, tc.got, tc.want)
		}
	}
	if (ResourceUsage{{"a", Unbounded - 1}}).IsSaturated() || !(ResourceUsage{{"a", 1}, {"b", Unbounded}}).IsSaturated() {
		t.Error("only a measure at the largest number is saturated")
	}
}

// Stated capacity that all replicas just fill keeps the cluster from nothing.
func TestFilledCapacityBlocksNothing(t *testing.T) {
	for replicas, want := range map[int64]string{3: "[]", 4: "[]", 5: "[a]"} {
		in := inputFor(t, parsePlacement(t, dividedPlacement), contentOf(t, "/"+deploymentJSON(replicas, "")), nil, newCluster("a", statesCapacity(t, "{replicas: 4}")))
		if got := DecidePlacement(in).AssignReplicas(nil); fmt.Sprint(got.CapacityBlocked) != want {
			t.Errorf("%d replicas for 4 places: blocked %v, want %s", replicas, got.CapacityBlocked, want)
		}
	}
}

// The groups that take overflow are numbered from 1, in their order.
func TestOverflowStepsAreNumbered(t *testing.T) {
	w := &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow"), places: map[string]int64{"a": 1, "b": 1, "m": 1, "z": 9}, desired: 6}
	d, _ := w.decideOnce()
	for cluster, want := range map[string]int32{"a": 0, "b": 0, "m": 1, "z": 2} {
		if v, _ := d.FindVerdict(cluster); v.OverflowStep != want || v.Outcome != OutcomePlaced {
			t.Errorf("%s: %s at step %d, want %d", cluster, v, v.OverflowStep, want)
		}
	}
}
