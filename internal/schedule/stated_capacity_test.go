package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// statesCapacity capacity, in YAML as people write it.
func statesCapacity(t testing.TB, text string) func(*Cluster) {
	t.Helper()
	var c v1alpha1.ClusterCapacity
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return func(to *Cluster) { to.Capacity = CapacityOf(&c) }
}

// contentOf objects in YAML, one a line; those after a "/" are divided.
func contentOf(t testing.TB, objects ...string) *atoll.Content {
	t.Helper()
	c := &atoll.Content{}
	for i, text := range objects {
		text, divided := strings.CutPrefix(text, "/")
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: obj}
		raw, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		gvk := u.GroupVersionKind()
		c.Items = append(c.Items, atoll.Item{
			Key:        atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: "shop", Name: fmt.Sprint("o", i)},
			APIVersion: u.GetAPIVersion(), Object: raw, Divided: divided,
		})
	}
	return c
}

// deploymentJSON so many pods that request so much.
func deploymentJSON(replicas int64, requests string) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, spec: {replicas: %d, template: {spec: {containers: [{name: c, resources: {requests: {%s}}}]}}}}", replicas, requests)
}

const configMap = "{apiVersion: v1, kind: ConfigMap}"

// inputFor is an Input of a content over clusters, of which others use so much.
func inputFor(t testing.TB, p v1alpha1.PlacementSpec, content *atoll.Content, others map[string]ResourceUsage, clusters ...Cluster) Input {
	t.Helper()
	d, err := DemandOf(content)
	if err != nil {
		t.Fatal(err)
	}
	workloads, err := WorkloadsOf(content)
	if err != nil {
		t.Fatal(err)
	}
	return Input{
		BundleUID: "b", Placement: p, Clusters: clusters, Workloads: workloads, Demand: d, Now: now,
		Facts: fakeFacts{usage: func(c *Cluster) (ResourceUsage, ResourceUsage) { return others[c.Name], nil }},
	}
}

func TestDemandOfContent(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []string
		want    string
	}{
		{"objects", []string{configMap, configMap}, "[{objects 2}]"},
		{"replicas and their requests", []string{deploymentJSON(3, "cpu: 250m, memory: 1Gi, nvidia.com/gpu: 2, ephemeral-storage: 1Ki"), configMap},
			"[{cpu 750} {ephemeral-storage 3072} {memory 3221225472} {nvidia.com/gpu 6} {objects 2} {replicas 3}]"},
		{"none at all", []string{deploymentJSON(0, "cpu: 1")}, "[{objects 1}]"},
		{"replicas that are not stated", []string{"{apiVersion: apps/v1, kind: StatefulSet, spec: {template: {spec: {containers: [{name: c}]}}}}"}, "[{objects 1} {replicas 1}]"},
		{"a Pod", []string{"{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, resources: {limits: {cpu: 2}}}]}}"}, "[{cpu 2000} {objects 1} {replicas 1}]"},
		{"a Job's parallelism", []string{"{apiVersion: batch/v1, kind: Job, spec: {parallelism: 4, completions: 9, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}"}, "[{cpu 4000} {objects 1} {replicas 4}]"},
		{"a Job that is done before that", []string{"{apiVersion: batch/v1, kind: Job, spec: {parallelism: 4, completions: 2, template: {spec: {containers: [{name: c}]}}}}"}, "[{objects 1} {replicas 2}]"},
		{"pods that the member counts", []string{"{apiVersion: apps/v1, kind: DaemonSet, spec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}"}, "[{objects 1}]"},
		{"pods of later", []string{"{apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}}}"}, "[{objects 1}]"},
		{"another kind of workload", []string{"{apiVersion: x.io/v1, kind: Rollout, spec: {replicas: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}"}, "[{cpu 2000} {objects 1} {replicas 2}]"},
		{"all pods of a cluster within the cluster", []string{"{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}}, workerGroupSpecs: [{groupName: w, replicas: 3, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]}}"}, "[{cpu 5000} {objects 1} {replicas 4}]"},
		{"a replica of several pods", []string{"{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: 2, leaderWorkerTemplate: {size: 3, workerTemplate: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}}"}, "[{cpu 6000} {objects 1} {replicas 6}]"},
		{"replicas of something else", []string{"{apiVersion: x.io/v1, kind: Database, spec: {replicas: 2}}"}, "[{objects 1}]"},
		{"what is divided is the row's to say", []string{"/" + deploymentJSON(9, "cpu: 1")}, "[{cpu 2000} {objects 1} {replicas 2}]"},
		{"more than can be counted", []string{deploymentJSON(1<<40, "memory: 4Ei"), deploymentJSON(1<<40, "memory: 4Ei")}, "[{memory 9223372036854775807} {objects 2} {replicas 2199023255552}]"},
	} {
		d, err := DemandOf(contentOf(t, tc.objects...))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(d.UsageFor(map[string]int64{"apps/Deployment/shop/o0": 2, "other": 7})); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// A cluster that states its capacity takes what fits in addition to others, and says
// what does not. The names of the cases begin with the path of the bound.
func TestStatedCapacity(t *testing.T) {
	web := []string{deploymentJSON(3, "cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1"), configMap}
	for _, tc := range []struct {
		name, states string
		others       ResourceUsage
		objects      []string
		want         string
	}{
		{"nothing is stated", "{}", ResourceUsage{{"objects", 1000}, {"replicas", 1000}}, web, ""},
		{"replicas: the last places", "{replicas: 10}", ResourceUsage{{"replicas", 7}}, web, ""},
		{"replicas: one too many", "{replicas: 10}", ResourceUsage{{"replicas", 8}}, web, "capacity.replicas is 10, of which 8 are used, and the bundle requests 3"},
		{"replicas: pods are the same", "{replicas: 100, resources: {pods: 10}}", ResourceUsage{{"replicas", 8}}, web, "capacity.replicas is 10, of which 8 are used, and the bundle requests 3"},
		{"replicas: over already", "{replicas: 10}", ResourceUsage{{"replicas", 80}}, web, "capacity.replicas is 10, of which 80 are used, and the bundle requests 3"},
		{"replicas: of what has none", "{replicas: 0}", nil, []string{configMap}, ""},
		{"objects: as many as there may be", "{objects: 2}", nil, web, ""},
		{"objects: one too many", "{objects: 5}", ResourceUsage{{"objects", 4}}, web, "capacity.objects is 5, of which 4 are used, and the bundle requests 2"},
		{"objects: none", "{objects: 0}", nil, []string{configMap}, "capacity.objects is 0, of which 0 are used, and the bundle requests 1"},
		{"resources: enough", "{resources: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 8}}", ResourceUsage{{"cpu", 2500}, {"memory", 5 << 30}, {"nvidia.com/gpu", 5}}, web, ""},
		{"resources: cpu", "{resources: {cpu: 4}}", ResourceUsage{{"cpu", 2501}}, web, "capacity.resources[cpu] is 4, of which 2501m are used, and the bundle requests 1500m"},
		{"resources: memory", "{resources: {memory: 8Gi}}", ResourceUsage{{"memory", 6 << 30}}, web, "capacity.resources[memory] is 8Gi, of which 6Gi are used, and the bundle requests 3Gi"},
		{"resources: GPUs", "{resources: {nvidia.com/gpu: 2}}", nil, web, "capacity.resources[nvidia.com/gpu] is 2, of which 0 are used, and the bundle requests 3"},
		{"resources: others are not asked for", "{resources: {example.com/fpga: 0}}", nil, web, ""},
		{"divided: room for one", "{replicas: 10}", ResourceUsage{{"replicas", 9}}, []string{"/" + deploymentJSON(5, "")}, ""},
		{"divided: room for none", "{replicas: 10}", ResourceUsage{{"replicas", 10}}, []string{"/" + deploymentJSON(5, "")}, "capacity.replicas is 10, of which 10 are used, and the bundle requests 1"},
		{"divided: nothing to run", "{replicas: 0}", nil, []string{"/" + deploymentJSON(0, "")}, ""},
		{"divided: room for one of two", "{resources: {cpu: 1}}", nil, []string{"/" + deploymentJSON(5, "cpu: 2"), "/" + deploymentJSON(5, "cpu: 1")}, ""},
		{"divided: beside what is not", "{replicas: 3}", nil, []string{"/" + deploymentJSON(5, ""), deploymentJSON(3, "")}, "capacity.replicas is 3, of which 0 are used, and the bundle requests 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster("a", statesCapacity(t, tc.states))
			in := inputFor(t, v1alpha1.PlacementSpec{}, contentOf(t, tc.objects...), map[string]ResourceUsage{"a": tc.others}, c)
			d := DecidePlacement(in)
			v, _ := d.FindVerdict("a")
			want := Verdict{Cluster: "a", UID: c.UID, Outcome: OutcomePlaced, Weight: 1}
			if tc.want != "" {
				want = Verdict{Cluster: "a", UID: c.UID, Outcome: OutcomeOut, Filter: FilterCapacity, Reason: tc.want}
			}
			if v != want || slices.Contains(d.CapacityBlocked, "a") != (tc.want != "") || d.NoFit != (tc.want != "") {
				t.Errorf("%+v\n%s, crowded %v, want %s", v, v, d.CapacityBlocked, want)
			}
			in.SkipExplanations = true
			if got := formatOutcomes(DecidePlacement(in), OutcomePlaced); (got == "a") != (tc.want == "") {
				t.Errorf("without reasons: placed on %q", got)
			}
		})
	}
}

// Shares stay within what is left, by whichever way they are divided; what has no place
// is listed, and what runs stays.
func TestStatedCapacityBoundsShares(t *testing.T) {
	const room, dynamic = "replicaDivisionPreference: Aggregated", "weightPreference: {dynamicWeight: AvailableReplicas}"
	for _, tc := range []struct {
		name, scheduling string
		replicas         int64
		a, b             string
		has              map[string]int64
		want             string
		left             int64
		crowded          string
	}{
		{"by weight", "", 10, "{replicas: 3}", "{}", nil, "a=3 b=7", 0, "[a]"},
		{"by weight, and short", "", 10, "{replicas: 3}", "{resources: {cpu: 2}}", nil, "a=3 b=2", 5, "[a b]"},
		{"by weight, nothing is in the way", "", 4, "{replicas: 3}", "{}", nil, "a=2 b=2", 0, "[]"},
		{"by room", dynamic, 10, "{replicas: 3}", "{replicas: 5}", nil, "a=3 b=5", 2, "[a b]"},
		{"aggregated", room, 10, "{replicas: 8}", "{replicas: 5}", map[string]int64{"a": 1}, "a=8 b=2", 0, "[a]"},
		{"lowered below what runs", "", 10, "{replicas: 2}", "{}", map[string]int64{"a": 5, "b": 5}, "a=5 b=5", 0, "[a]"},
		{"lowered, and more is wanted", "", 20, "{replicas: 2}", "{}", map[string]int64{"a": 5, "b": 5}, "a=5 b=15", 0, "[a]"},
		{"lowered, by room", room, 20, "{replicas: 2}", "{replicas: 9}", map[string]int64{"a": 5, "b": 5}, "a=5 b=9", 6, "[a b]"},
		{"fewer are wanted", "", 4, "{replicas: 2}", "{}", map[string]int64{"a": 5, "b": 5}, "a=2 b=2", 0, "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := parsePlacement(t, "{replicaScheduling: {replicaSchedulingType: Divided, "+tc.scheduling+"}}")
			content := contentOf(t, "/"+deploymentJSON(tc.replicas, "cpu: 1"))
			in := inputFor(t, p, content, nil, newCluster("a", statesCapacity(t, tc.a)), newCluster("b", statesCapacity(t, tc.b)))
			w := in.Workloads[0]
			in.Rows = map[string]atoll.RowSpec{}
			for name, n := range tc.has {
				r := activeRow(newCluster(name), p)
				r.Assigned = map[string]int64{w.Key.String(): n}
				in.Rows[name] = r
			}
			in.Facts = fakeFacts{usage: func(c *Cluster) (others, own ResourceUsage) {
				return nil, in.Demand.UsageFor(in.Rows[c.Name].Assigned)
			}}
			d := DecidePlacement(in).WithFreeCapacity(knownRoom{"a": newCapacityClasses(t), "b": newCapacityClasses(t)}.lookUp)
			got := d.AssignReplicas(nil)
			var left int64
			for _, s := range got.Shortages {
				left += s.Unplaced
			}
			if text := formatShares(d, w); text != tc.want || left != tc.left || fmt.Sprint(got.CapacityBlocked) != tc.crowded {
				t.Errorf("%s, %d left, crowded %v; want %s, %d, %s", text, left, got.CapacityBlocked, tc.want, tc.left, tc.crowded)
			}
		})
	}
}

func newCapacityClasses(t testing.TB) freecapacity.NodeClasses {
	return parseRoom(t, "1 cpu=64000m memory=65536Mi pods=64")
}

// Several workloads share what is left; a StatefulSet goes where all of it may be; what
// overrides set is kept within the bound too.
func TestStatedCapacityOfSeveralWorkloads(t *testing.T) {
	p := parsePlacement(t, "{replicaScheduling: {replicaSchedulingType: Divided}}")
	in := inputFor(t, p, contentOf(t, "/"+deploymentJSON(4, "cpu: 1"), "/"+deploymentJSON(4, "cpu: 2"), "/"+deploymentJSON(4, "cpu: 1")), nil, newCluster("a", statesCapacity(t, "{resources: {cpu: 7}}")))
	d := DecidePlacement(in)
	for i, want := range []string{"a=4", "a=1", "a=1"} {
		if got := formatShares(d, in.Workloads[i]); got != want {
			t.Errorf("workload %d: %s, want %s", i, got, want)
		}
	}
	const set = "/{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 5, template: {spec: {containers: [{name: c}]}}}}"
	in = inputFor(t, p, contentOf(t, set), nil, newCluster("a", statesCapacity(t, "{replicas: 4}")), newCluster("b", statesCapacity(t, "{replicas: 5}")))
	if got := formatShares(DecidePlacement(in), in.Workloads[0]); got != "a=0 b=5!" {
		t.Errorf("a StatefulSet: %s", got)
	}
	in = inputFor(t, p, contentOf(t, "/"+deploymentJSON(9, "")), nil, newCluster("a", statesCapacity(t, "{replicas: 4}")), newCluster("b"))
	in.OverriddenShares = map[string]map[string]int64{"a": {in.Workloads[0].Key.String(): 6}}
	if got := formatShares(DecidePlacement(in), in.Workloads[0]); got != "a=4 b=5" {
		t.Errorf("handed: %s", got)
	}
}

// A row whose newer revision asks for more than is left stays as it is; one that asks for
// less, or for more of what is not bounded, does not.
func TestNewerRevisionOutgrowsCapacity(t *testing.T) {
	for _, tc := range []struct {
		name, states string
		others       ResourceUsage
		before, now  string
		want         string
	}{
		{"fits", "{replicas: 10}", ResourceUsage{{"replicas", 5}}, deploymentJSON(3, ""), deploymentJSON(5, ""), ""},
		{"too many", "{replicas: 10}", ResourceUsage{{"replicas", 5}}, deploymentJSON(3, ""), deploymentJSON(6, ""), "capacity.replicas is 10, others use 5, and the newest revision requests 6 instead of 3"},
		{"lowered below what runs", "{replicas: 1}", ResourceUsage{{"replicas", 5}}, deploymentJSON(3, ""), deploymentJSON(3, "cpu: 1"), ""},
		{"lowered, and fewer are asked for", "{replicas: 1}", ResourceUsage{{"replicas", 5}}, deploymentJSON(3, ""), deploymentJSON(2, ""), ""},
		{"each asks for more", "{resources: {cpu: 4}}", nil, deploymentJSON(3, "cpu: 1"), deploymentJSON(3, "cpu: 2"), "capacity.resources[cpu] is 4, others use 0, and the newest revision requests 6 instead of 3"},
	} {
		c := newCluster("a", statesCapacity(t, tc.states))
		in := inputFor(t, v1alpha1.PlacementSpec{}, contentOf(t, tc.now), nil, c)
		before, err := DemandOf(contentOf(t, tc.before))
		if err != nil {
			t.Fatal(err)
		}
		in.Rows = map[string]atoll.RowSpec{"a": activeRow(c, in.Placement)}
		in.Facts = fakeFacts{usage: func(*Cluster) (others, own ResourceUsage) { return tc.others, before.UsageFor(nil) }}
		d := DecidePlacement(in)
		if v, _ := d.FindVerdict("a"); v.Outcome != OutcomePlaced || v.Notes().CapacityReason != tc.want || (len(d.CapacityBlocked) > 0) != (tc.want != "") {
			t.Errorf("%s: %+v, crowded %v; want %q", tc.name, v, d.CapacityBlocked, tc.want)
		}
	}
}

// A row that stays at its revision keeps all of its shares, also those that would fit.
func TestSharesOfARowThatStays(t *testing.T) {
	p := parsePlacement(t, "{replicaScheduling: {replicaSchedulingType: Divided}}")
	c := newCluster("a", statesCapacity(t, "{replicas: 20, resources: {cpu: 4}}"))
	before, err := DemandOf(contentOf(t, "/"+deploymentJSON(3, "cpu: 1"), "/"+deploymentJSON(2, "")))
	if err != nil {
		t.Fatal(err)
	}
	in := inputFor(t, p, contentOf(t, "/"+deploymentJSON(3, "cpu: 2"), "/"+deploymentJSON(5, "")), nil, c)
	r := activeRow(c, p)
	r.Assigned = map[string]int64{in.Workloads[0].Key.String(): 3, in.Workloads[1].Key.String(): 2}
	in.Rows = map[string]atoll.RowSpec{"a": r}
	in.Facts = fakeFacts{usage: func(*Cluster) (others, own ResourceUsage) { return nil, before.UsageFor(r.Assigned) }}
	d := DecidePlacement(in)
	if first, second := formatShares(d, in.Workloads[0]), formatShares(d, in.Workloads[1]); first != "a=3" || second != "a=2" {
		t.Errorf("%s and %s", first, second)
	}
}

// Groups, spread and the number of clusters go by what is left.
func TestChoiceGoesByStatedCapacity(t *testing.T) {
	fleet := []Cluster{
		newCluster("a1", locatedIn("eu", "a", ""), statesCapacity(t, "{replicas: 2}")), newCluster("a2", locatedIn("eu", "a", ""), statesCapacity(t, "{replicas: 6}")),
		newCluster("b1", locatedIn("us", "b", ""), statesCapacity(t, "{replicas: 4}")), newCluster("b2", locatedIn("us", "b", ""), statesCapacity(t, "{replicas: 5}")),
	}
	const divided = ", replicaScheduling: {replicaSchedulingType: Divided}"
	for _, tc := range []struct {
		name, placement, object string
		others                  map[string]ResourceUsage
		want                    string
	}{
		{"what fits whole", "{maxClusters: 1}", deploymentJSON(6, ""), nil, "a2"},
		{"a group that is full", "{clusterAffinities: [{affinityName: eu, clusterNames: [a1, a2]}, {affinityName: us, clusterNames: [b1, b2]}]}", deploymentJSON(4, ""), map[string]ResourceUsage{"a2": {{"replicas", 3}}}, "b1 b2"},
		{"a group with one left", "{clusterAffinities: [{affinityName: eu, clusterNames: [a1, a2]}, {affinityName: us, clusterNames: [b1, b2]}]}", deploymentJSON(4, ""), nil, "a2"},
		{"a spread", "{spreadConstraints: [{spreadByField: zone, minGroups: 2}]}", deploymentJSON(5, ""), nil, "a2 b2"},
		{"a spread that cannot be had", "{spreadConstraints: [{spreadByField: zone, minGroups: 2}]}", deploymentJSON(6, ""), nil, ""},
		{"divided among those with room", "{maxClusters: 2" + divided + "}", "/" + deploymentJSON(11, ""), nil, "a2 b2"},
		{"divided in one zone", "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]" + divided + "}", "/" + deploymentJSON(9, ""), nil, "b1 b2"},
	} {
		in := inputFor(t, parsePlacement(t, tc.placement), contentOf(t, tc.object), tc.others, fleet...)
		if got := formatOutcomes(DecidePlacement(in), OutcomePlaced); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	in := inputFor(t, parsePlacement(t, "{clusterAffinities: [{affinityName: eu, clusterNames: [a1]}, {affinityName: us, clusterNames: [b1]}]}"), contentOf(t, deploymentJSON(4, "")), nil, fleet...)
	d := DecidePlacement(in)
	if v, _ := d.FindVerdict("a1"); d.Group != "us" || v.Filter != FilterCapacity || !slices.Contains(d.CapacityBlocked, "a1") {
		t.Errorf("group %s; %s; crowded %v", d.Group, v, d.CapacityBlocked)
	}
}

// bundleFleet is Bundles on clusters that state their capacity, which do at once what is decided.
type bundleFleet struct {
	t       *testing.T
	fleet   map[string]*Cluster
	bundles map[string]*fleetBundle
}

type fleetBundle struct {
	placement v1alpha1.PlacementSpec
	divided   string
	rows      map[string]atoll.RowSpec
	uses      map[string]ResourceUsage
}

// totalUsage use of a cluster, but for one Bundle.
func (w *bundleFleet) totalUsage(cluster, except string) (sum ResourceUsage) {
	for id, b := range w.bundles {
		if id != except {
			sum = sum.AddTimes(b.uses[cluster], 1)
		}
	}
	return sum
}

// placeBundle a content into the Bundle, and hold what comes of it to the bounds.
func (w *bundleFleet) placeBundle(id string, content *atoll.Content) {
	b := w.bundles[id]
	in := inputFor(w.t, b.placement, content, nil)
	for _, c := range w.fleet {
		in.Clusters = append(in.Clusters, *c)
	}
	in.Rows = b.rows
	in.Facts = fakeFacts{usage: func(c *Cluster) (others, own ResourceUsage) { return w.totalUsage(c.Name, id), b.uses[c.Name] }}
	d := DecidePlacement(in)
	assignment := d.AssignReplicas(nil)
	for _, v := range d.Verdicts {
		if _, runs := b.rows[v.Cluster]; runs && !v.IsHolder() {
			w.t.Fatalf("%s takes %s away", v, id)
		}
		if !v.IsHolder() || v.Notes().CapacityReason != "" {
			continue
		}
		share := assignment.ShareOf(v.Cluster).AssignedReplicas()
		was, is := b.uses[v.Cluster], in.Demand.UsageFor(share)
		b.rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint, Assigned: share}
		b.uses[v.Cluster] = is
		for _, m := range w.fleet[v.Cluster].Capacity {
			if sum := w.totalUsage(v.Cluster, ""); sum.QuantityOf(m.Name) > m.Quantity && is.QuantityOf(m.Name) > was.QuantityOf(m.Name) {
				w.t.Fatalf("%s uses %d instead of %d %s of cluster %s, where all use %d of %d", id, is.QuantityOf(m.Name), was.QuantityOf(m.Name), m.Name, v.Cluster, sum.QuantityOf(m.Name), m.Quantity)
			}
		}
	}
}

// After any changes in any order, no bound is exceeded by anything but its being lowered, and
// running workloads are never taken for it.
func TestCapacityIsNeverExceeded(t *testing.T) {
	kinds := []struct{ placement, divided string }{
		{"{maxClusters: 2}", ""}, {"{}", ""}, {"{replicaScheduling: {replicaSchedulingType: Divided}}", "/"},
		{"{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}", "/"},
	}
	limited := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 71))
		w := bundleFleet{t, map[string]*Cluster{}, map[string]*fleetBundle{}}
		bound := func() func(*Cluster) {
			return statesCapacity(t, fmt.Sprintf("{replicas: %d, objects: %d, resources: {cpu: %d}}", r.IntN(20), r.IntN(8), r.IntN(20)))
		}
		for i := range 4 {
			c := newCluster(fmt.Sprint("c", i), bound())
			w.fleet[c.Name] = &c
		}
		for range 60 {
			id := fmt.Sprint("app", r.IntN(6))
			switch r.IntN(8) {
			case 0:
				delete(w.bundles, id)
				continue
			case 1:
				bound()(w.fleet[fmt.Sprint("c", r.IntN(4))])
				continue
			}
			if w.bundles[id] == nil {
				k := kinds[r.IntN(len(kinds))]
				w.bundles[id] = &fleetBundle{parsePlacement(t, k.placement), k.divided, map[string]atoll.RowSpec{}, map[string]ResourceUsage{}}
			}
			var objects []string
			for range 1 + r.IntN(3) {
				objects = append(objects, w.bundles[id].divided+deploymentJSON(r.Int64N(12), fmt.Sprintf("cpu: %d", r.IntN(4))))
			}
			w.placeBundle(id, contentOf(t, objects...))
			if len(w.bundles[id].rows) < len(w.fleet) {
				limited++
			}
		}
	}
	if limited < 500 {
		t.Errorf("capacity kept Bundles out %d times only", limited)
	}
}

// Asking clusters for capacity allocates nothing for each of them.
func TestAskingForCapacityAllocatesLittle(t *testing.T) {
	allocs := func(n int) float64 {
		in := statedFleet(t, n, "{replicas: 2, resources: {cpu: 64}}")
		return testing.AllocsPerRun(5, func() {
			if d := DecidePlacement(in); len(d.CapacityBlocked) != n {
				t.Fatalf("%d of %d are full", len(d.CapacityBlocked), n)
			}
		})
	}
	if few, many := allocs(10), allocs(10_000); many > few+40 {
		t.Errorf("%v allocations for 10,000 clusters, %v for 10", many, few)
	}
}

// statedFleet is a decision over so many clusters that state the same, where others use
// some of it.
func statedFleet(t testing.TB, n int, capacity string) Input {
	state, used := statesCapacity(t, capacity), ResourceUsage{{"cpu", 1000}, {"objects", 40}, {"replicas", 1}}
	clusters := make([]Cluster, n)
	for i := range clusters {
		clusters[i] = newCluster(fmt.Sprintf("cluster-%05d", i), state)
	}
	in := inputFor(t, v1alpha1.PlacementSpec{}, contentOf(t, deploymentJSON(3, "cpu: 1"), configMap), nil, clusters...)
	in.SkipExplanations, in.Filter = true, CompilePlacement(in.Placement)
	in.Facts = fakeFacts{usage: func(*Cluster) (others, own ResourceUsage) { return used, nil }}
	return in
}

func BenchmarkStatedCapacity10000(b *testing.B) {
	for name, capacity := range map[string]string{"full": "{replicas: 2, resources: {cpu: 64}}", "left": "{replicas: 200, resources: {cpu: 64}}"} {
		b.Run(name, func(b *testing.B) {
			in := statedFleet(b, 10_000, capacity)
			b.ReportAllocs()
			for b.Loop() {
				DecidePlacement(in)
			}
		})
	}
}

func TestCapacityIsChecked(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"{}", ""},
		{"{replicas: 0, objects: 0, resources: {cpu: 0, memory: 1Gi, ephemeral-storage: 1Gi, pods: 3, hugepages-2Mi: 4Mi, nvidia.com/gpu: 1}}", ""},
		{"{replicas: -1}", `spec.capacity.replicas: Invalid value: -1: must not be negative`},
		{"{objects: -1}", `spec.capacity.objects: Invalid value: -1: must not be negative`},
		{"{resources: {memory: -1Gi}}", `spec.capacity.resources[memory]: Invalid value: "-1Gi": must not be negative`},
		{"{resources: {gpu: 1}}", `spec.capacity.resources[gpu]: Invalid value: "gpu": is no resource that pods request`},
		{"{resources: {requests.cpu: 1}}", `is the name of a quota: use cpu`},
		{"{resources: {nvidia.com/: 1}}", `is no resource that pods request`},
		{"{resources: {hugepages-: 1}}", `is no resource that pods request`},
	} {
		var c v1alpha1.ClusterCapacity
		if err := yaml.UnmarshalStrict([]byte(tc.text), &c); err != nil {
			t.Fatal(err)
		}
		err := CheckCapacity(&c, field.NewPath("spec", "capacity")).ToAggregate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.text, err, tc.want)
		}
	}
}

// Bounds of more than can be counted bound nothing that can be.
func TestCapacityDoesNotRunOver(t *testing.T) {
	var c Cluster
	statesCapacity(t, "{resources: {cpu: 9223372036854775807, memory: 100E, pods: 20E}}")(&c)
	for _, name := range []string{"cpu", "memory", MeasureReplicas} {
		if n := c.Capacity.QuantityOf(name); n != Unbounded {
			t.Errorf("%s is bounded by %d", name, n)
		}
	}
}
