package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func placement(t *testing.T, text string) v1alpha1.PlacementSpec {
	t.Helper()
	var p v1alpha1.PlacementSpec
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// world is a fleet and the rows of one Bundle, which follow what is decided.
type world struct {
	clusters map[string]Cluster
	rows     map[string]atoll.RowSpec
	load     map[string]int64
}

func newWorld(cs ...Cluster) *world {
	w := &world{clusters: map[string]Cluster{}, rows: map[string]atoll.RowSpec{}, load: map[string]int64{}}
	for _, c := range cs {
		w.clusters[c.Name] = c
	}
	return w
}

func (w *world) input(p v1alpha1.PlacementSpec) Input {
	return Input{
		Bundle: "b", Placement: p, Clusters: slices.Collect(maps.Values(w.clusters)), Rows: w.rows, Now: now,
		Load: func(c *Cluster) int64 { return w.load[c.Name] },
	}
}

// decide, and do what is decided at once: what leaves is on its way out.
func (w *world) decide(p v1alpha1.PlacementSpec) Decision {
	d := Schedule(w.input(p))
	for _, v := range d.Verdicts {
		row, has := w.rows[v.Cluster]
		switch v.Outcome {
		case Placed, Kept:
			row.UID, row.Phase, row.Placement = v.UID, atoll.RowActive, v.Placement
			w.rows[v.Cluster] = row
		case Leaves:
			if row.Phase = atoll.RowLeaving; has {
				w.rows[v.Cluster] = row
			}
		case Gone:
			delete(w.rows, v.Cluster)
		}
	}
	return d
}

// gone: what was on its way out is gone.
func (w *world) gone() {
	maps.DeleteFunc(w.rows, func(_ string, r atoll.RowSpec) bool { return r.Phase == atoll.RowLeaving })
}

func outcomes(d Decision, which ...Outcome) string {
	var out []string
	for _, v := range d.Verdicts {
		if slices.Contains(which, v.Outcome) {
			out = append(out, v.Cluster)
		}
	}
	return strings.Join(out, " ")
}

func pods(total, free int64) func(*Cluster) {
	return func(c *Cluster) {
		c.Resources = append(c.Resources, Amount{Name: corev1.ResourcePods, Total: total * 1000, Free: free * 1000})
	}
}

func cpus(total, free int64) func(*Cluster) {
	return func(c *Cluster) {
		c.Resources = append(c.Resources, Amount{Name: corev1.ResourceCPU, Total: total * 1000, Free: free * 1000})
	}
}

// sixZones are 2 regions, 3 zones in each; zone eu-a has 3 clusters, the others 2, but
// us-c 1. Scores fall in this order.
func sixZones() *world {
	w := newWorld()
	free := int64(100)
	for _, z := range []string{"eu-a", "eu-b", "eu-c", "us-a", "us-b", "us-c"} {
		n := map[string]int{"eu-a": 3, "us-c": 1}[z]
		for i := range max(n, 2-n) {
			name := fmt.Sprintf("%s%d", z, i+1)
			w.clusters[name] = cluster(name, where(z[:2], z, "p-"+z[3:]), label("rack", z[3:]), cpus(100, free))
			free -= 5
		}
	}
	delete(w.clusters, "us-c2")
	return w
}

const byCPU = ", scores: [{name: ResourceAvailable, resource: cpu}]"

// Every leaf of how clusters are chosen, by its path.
func TestChoiceFields(t *testing.T) {
	for _, tc := range []struct{ field, placement, want string }{
		{"none", "{clusterAffinity: {}}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1"},
		{"maxClusters", "{maxClusters: 2" + byCPU + "}", "eu-a1 eu-a2"},
		{"maxClusters more than there are", "{maxClusters: 100}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1"},
		{"spreadConstraints.spreadByField region", "{maxClusters: 3, spreadConstraints: [{spreadByField: region, minGroups: 2}]" + byCPU + "}", "eu-a1 eu-a2 us-a1"},
		{"spreadConstraints.spreadByField zone", "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3}]" + byCPU + "}", "eu-a1 eu-b1 eu-c1"},
		{"spreadConstraints.spreadByField provider", "{maxClusters: 2, spreadConstraints: [{spreadByField: provider, minGroups: 2}]" + byCPU + "}", "eu-a1 eu-b1"},
		{"spreadConstraints.spreadByField cluster", "{spreadConstraints: [{spreadByField: cluster, minGroups: 2, maxGroups: 4}]" + byCPU + "}", "eu-a1 eu-a2 eu-a3 eu-b1"},
		{"spreadConstraints.spreadByLabel", "{maxClusters: 3, spreadConstraints: [{spreadByLabel: rack, minGroups: 3}]" + byCPU + "}", "eu-a1 eu-b1 eu-c1"},
		{"spreadConstraints.minGroups that cannot be had", "{spreadConstraints: [{spreadByField: region, minGroups: 3}]}", ""},
		{"spreadConstraints.maxGroups", "{spreadConstraints: [{spreadByField: region, maxGroups: 1}]}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2"},
		{"spreadConstraints.maxGroups omitted is no bound", "{spreadConstraints: [{spreadByField: zone, minGroups: 2}]}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1"},
		{"spreadConstraints.maxSkew", "{spreadConstraints: [{spreadByField: zone, maxSkew: 1}]" + byCPU + "}", "eu-a1 eu-a2 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1"},
		{"spreadConstraints.maxSkew and a bound", "{maxClusters: 4, spreadConstraints: [{spreadByField: region, maxSkew: 1}]" + byCPU + "}", "eu-a1 eu-a2 us-a1 us-a2"},
		{"spreadConstraints.maxSkew in one region", "{maxClusters: 4, spreadConstraints: [{spreadByField: region, maxGroups: 1}, {spreadByField: zone, maxSkew: 1}]" + byCPU + "}", "eu-a1 eu-a2 eu-b1 eu-c1"},
		{"spreadConstraints.whenUnsatisfiable ScheduleAnyway", "{spreadConstraints: [{spreadByField: region, minGroups: 3, whenUnsatisfiable: ScheduleAnyway}]}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1"},
		{"spreadConstraints.whenUnsatisfiable ScheduleAnyway and skew", "{maxClusters: 9, spreadConstraints: [{spreadByField: region, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]" + byCPU + "}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 us-a1 us-a2 us-b1 us-b2"},
		{"spreadConstraints several", "{maxClusters: 4, spreadConstraints: [{spreadByField: region, minGroups: 2, maxGroups: 2}, {spreadByField: zone, minGroups: 4}]" + byCPU + "}", "eu-a1 eu-b1 eu-c1 us-a1"},
		{"scores.resource", "{maxClusters: 1, scores: [{name: ResourceAvailable, resource: cpu}]}", "eu-a1"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			if got := outcomes(sixZones().decide(placement(t, tc.placement)), Placed); got != tc.want {
				t.Errorf("chosen: %s, want %s", got, tc.want)
			}
		})
	}
}

// A cluster without the field or label is in no group.
func TestWithoutTheLabel(t *testing.T) {
	w := newWorld(cluster("a", label("rack", "1"), cpus(9, 1)), cluster("b", label("rack", "2"), cpus(9, 2)), cluster("c", cpus(9, 9)))
	d := w.decide(placement(t, "{maxClusters: 3, spreadConstraints: [{spreadByLabel: rack}]"+byCPU+"}"))
	v, _ := d.Verdict("c")
	if v.Outcome != Out || v.Filter != FilterSpread || !strings.Contains(v.Reason, "label rack") || outcomes(d, Placed) != "a b" {
		t.Errorf("c, without a rack: %s; chosen %s", v, outcomes(d, Placed))
	}
	soft := "{maxClusters: 2, spreadConstraints: [{spreadByLabel: rack, minGroups: %d, whenUnsatisfiable: ScheduleAnyway}]" + byCPU + "}"
	for groups, want := range map[int]string{1: "b c", 2: "a b"} {
		w := newWorld(slices.Collect(maps.Values(w.clusters))...)
		if got := outcomes(w.decide(placement(t, fmt.Sprintf(soft, groups))), Placed); got != want {
			t.Errorf("with %d groups wished for: %s, want %s", groups, got, want)
		}
	}
	// One that runs the Bundle and loses the label keeps it.
	w.clusters["a"] = cluster("a")
	if got := outcomes(w.decide(placement(t, "{maxClusters: 3, spreadConstraints: [{spreadByLabel: rack}]"+byCPU+"}")), Placed); got != "a b" {
		t.Errorf("after a lost its rack: %s", got)
	}
}

// A minimum that cannot be had changes nothing: nothing comes, and nothing goes.
func TestUnmetMinimumChangesNothing(t *testing.T) {
	w := sixZones()
	two := placement(t, "{maxClusters: 2"+byCPU+"}")
	w.decide(two)
	for _, text := range []string{
		"{maxClusters: 4, spreadConstraints: [{spreadByField: region, minGroups: 3}]}",
		"{clusterAffinity: {exclude: [eu-a1]}, spreadConstraints: [{spreadByField: provider, minGroups: 4}]}",
		"{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [us]}]}}, spreadConstraints: [{spreadByField: cluster, minGroups: 8}]}",
	} {
		d := Schedule(w.input(placement(t, text)))
		if got := outcomes(d, Kept); got != "eu-a1 eu-a2" || outcomes(d, Placed, Leaves) != "" || !d.NoFit || d.Unmet == "" {
			t.Errorf("under %s %s is kept, and %s", text, got, d.Unmet)
		}
		for _, c := range []string{"eu-a1", "eu-a2"} {
			if v, _ := d.Verdict(c); v.Placement != "/"+Compile(two).choice.print && v.Word != atoll.RowNoClusterFits {
				t.Errorf("the row on %s forgets under what it was chosen: %q", c, v.Placement)
			}
		}
	}
	if d := w.decide(two); outcomes(d, Placed) != "eu-a1 eu-a2" || d.Hungry {
		t.Errorf("back at the start: %s, hungry %t", outcomes(d, Placed), d.Hungry)
	}
}

// Scores never move what runs, and neither does drift.
func TestWhoRunsItKeepsIt(t *testing.T) {
	w := sixZones()
	p := placement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3, maxSkew: 1}]"+byCPU+"}")
	w.decide(p)
	stays := func(when string) {
		t.Helper()
		if got := outcomes(w.decide(p), Placed, Kept); got != "eu-a1 eu-b1 eu-c1" {
			t.Errorf("%s: %s", when, got)
		}
	}
	stays("nothing changed")
	w.clusters["new"] = cluster("new", where("ap", "ap-a", "p"), label("rack", "z"), cpus(100, 100))
	stays("a better cluster came")
	w.clusters["eu-a1"] = cluster("eu-a1", where("eu", "eu-a", "p-a"), cpus(100, 0))
	stays("one is full")
	w.clusters["eu-b1"] = cluster("eu-b1", where("eu", "eu-b", "p-b"), taint("t", "", corev1.TaintEffectNoSchedule, 0))
	stays("one is tainted")
	w.clusters["eu-c1"] = cluster("eu-c1", where("eu", "eu-c", "p-c"), func(c *Cluster) { c.Accepted = false })
	stays("one is not accepted any more")
}

// When one goes for good, one comes, and the others stay.
func TestOneGoesOneComes(t *testing.T) {
	w := sixZones()
	p := placement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3}]"+byCPU+"}")
	w.decide(p)
	delete(w.clusters, "eu-b1")
	if got := outcomes(w.decide(p), Placed); got != "eu-a1 eu-b2 eu-c1" {
		t.Errorf("after eu-b1 was deleted: %s", got)
	}
	w.clusters["eu-c1"] = cluster("eu-c1", where("eu", "eu-c", "p-c"), taint("t", "", corev1.TaintEffectNoExecute, 0))
	d := w.decide(p)
	if got := outcomes(d, Placed); got != "eu-a1 eu-b2 eu-c2" || outcomes(d, Leaves) != "eu-c1" {
		t.Errorf("after eu-c1 was tainted: %s, leaving %s", got, outcomes(d, Leaves))
	}
	// The taint goes before the replacement is healthy: who replaces it stays.
	w.clusters["eu-c1"] = cluster("eu-c1", where("eu", "eu-c", "p-c"), cpus(100, 100))
	if d := w.decide(p); outcomes(d, Placed) != "eu-a1 eu-b2 eu-c2" || outcomes(d, Leaves) != "eu-c1" {
		t.Errorf("after the taint went: %s, leaving %s", outcomes(d, Placed), outcomes(d, Leaves))
	}
}

func TestEditsOfTheChoice(t *testing.T) {
	w := sixZones()
	step := func(text, placed, leaves string) {
		t.Helper()
		p := placement(t, text)
		for range 2 { // the second time nothing more happens
			if d := w.decide(p); outcomes(d, Placed) != placed || outcomes(d, Leaves) != leaves {
				t.Fatalf("under %s placed %s, leaving %s", text, outcomes(d, Placed), outcomes(d, Leaves))
			}
		}
	}
	step("{maxClusters: 5"+byCPU+"}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2", "")
	step("{maxClusters: 3"+byCPU+"}", "eu-a1 eu-a2 eu-a3", "eu-b1 eu-b2")
	step("{maxClusters: 4"+byCPU+"}", "eu-a1 eu-a2 eu-a3 eu-b1", "eu-b2")
	w.gone()
	// Of those that run it as many stay as can.
	step("{maxClusters: 4, spreadConstraints: [{spreadByField: zone, minGroups: 3}]"+byCPU+"}", "eu-a1 eu-a2 eu-b1 eu-c1", "eu-a3")
	w.gone()
	step("{maxClusters: 4, spreadConstraints: [{spreadByField: region, maxGroups: 1}]"+byCPU+"}", "eu-a1 eu-a2 eu-b1 eu-c1", "")
	// Scores may be edited, and nobody moves.
	step("{maxClusters: 4, spreadConstraints: [{spreadByField: region, maxGroups: 1}]}", "eu-a1 eu-a2 eu-b1 eu-c1", "")
	step("{}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1", "")
	// Who does not fit any more goes first.
	w.clusters["eu-a1"] = cluster("eu-a1", where("eu", "eu-a", "p-a"), taint("t", "", corev1.TaintEffectNoSchedule, 0))
	w.clusters["eu-a2"] = cluster("eu-a2", where("eu", "eu-a", "p-a"), func(c *Cluster) { c.Accepted = false })
	step("{maxClusters: 10"+byCPU+"}", "eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1", "eu-a1 eu-a2")
}

// Adding a cluster takes the place of at most one, and that only where nothing runs yet;
// the scores of the others stay what they are.
func TestAddingAClusterMovesNobodyElse(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	p := placement(t, "{maxClusters: 4, scores: [{name: ResourceAvailable, resource: cpu, weight: 2}, {name: Balance}]}")
	for range 300 {
		w := newWorld()
		for i := range 12 {
			name := fmt.Sprint("c", i)
			w.clusters[name], w.load[name] = cluster(name, cpus(100, r.Int64N(100))), r.Int64N(30)
		}
		before := Schedule(w.input(p))
		w.clusters["new"] = cluster("new", cpus(1000, r.Int64N(1000)))
		after := Schedule(w.input(p))
		lost := 0
		for _, v := range before.Verdicts {
			now, _ := after.Verdict(v.Cluster)
			if now.Score != v.Score {
				t.Fatalf("the score of %s goes from %d to %d", v.Cluster, v.Score, now.Score)
			}
			if v.Outcome != now.Outcome {
				lost++
			}
		}
		if lost > 1 {
			t.Fatalf("a newcomer takes the place of %d", lost)
		}
		// Where it runs, it does not even take that.
		delete(w.clusters, "new")
		placed := outcomes(w.decide(p), Placed)
		w.clusters["new"] = cluster("new", cpus(1000, 1000))
		if got := outcomes(w.decide(p), Placed); got != placed {
			t.Fatalf("%s runs it, and then %s", placed, got)
		}
	}
}

func TestScores(t *testing.T) {
	for _, tc := range []struct {
		name, score string
		cluster     Cluster
		load        int64
		want        int64 // of 1000
	}{
		{"an empty cluster balances best", "{name: Balance}", cluster("a", pods(500, 0)), 0, 1000},
		{"as many Bundles as pods: half", "{name: Balance}", cluster("a", pods(500, 500)), 500, 500},
		{"of unknown size", "{name: Balance}", cluster("a"), 110, 500},
		{"three times its pods", "{name: Balance}", cluster("a", pods(10, 10)), 30, 250},
		{"half of it is free", "{name: ResourceAvailable, resource: cpu}", cluster("a", cpus(8, 4)), 9, 500},
		{"overbooked", "{name: ResourceAvailable, resource: cpu}", cluster("a", cpus(8, -4)), 0, 0},
		{"not reported", "{name: ResourceAvailable, resource: nvidia.com/gpu}", cluster("a", cpus(8, 8)), 0, 0},
		{"full: enough", "{name: ResourceAvailable, resource: cpu, full: 4}", cluster("a", cpus(800, 8)), 0, 1000},
		{"full: a quarter of it", "{name: ResourceAvailable, resource: cpu, full: 32}", cluster("a", cpus(8, 8)), 0, 250},
		{"weight", "{name: ResourceAvailable, resource: cpu, weight: 3}, {name: Balance}", cluster("a", cpus(8, 0)), 0, 250},
		{"not steady where it does not run", "{name: Steady}", cluster("a"), 0, 0},
		{"property in between", "{name: Property, property: {name: disk, from: 100, to: 500}}", cluster("a", reports("disk", "200")), 0, 250},
		{"property where less is better", "{name: Property, property: {name: price, from: '10', to: '0'}}", cluster("a", reports("price", "2500m")), 0, 750},
		{"property beyond", "{name: Property, property: {name: disk, from: 0, to: 1}}", cluster("a", reports("disk", "7")), 0, 1000},
		{"property that is no number", "{name: Property, property: {name: disk, from: 0, to: 1}}", cluster("a", reports("disk", "big")), 0, 0},
		{"property that is not reported", "{name: Property, property: {name: disk, from: 1, to: 0}}", cluster("a"), 0, 0},
		{"near: 2 of 3", "{name: Affinity, bundles: {names: [x]}}", cluster("eu-a1"), 0, 667},
		{"near: none", "{name: Affinity, bundles: {names: [x]}}", cluster("z"), 0, 0},
		{"near within a region: 1 of 3, once", "{name: Affinity, bundles: {names: [x], within: region}}", cluster("z", where("eu", "eu-z", "")), 0, 333},
		{"far", "{name: AntiAffinity, bundles: {names: [x]}}", cluster("eu-a1"), 0, 333},
		{"far from none that runs", "{name: AntiAffinity, bundles: {names: [nobody]}}", cluster("eu-a1"), 0, 1000},
		{"measure", "{name: ClusterScore, measure: price}", cluster("a"), 0, 420},
		{"measure that nobody rates by", "{name: ClusterScore, measure: noise}", cluster("a"), 0, 0},
		{"a PreferNoSchedule taint", "{name: Balance}", cluster("a", taint("t", "", corev1.TaintEffectPreferNoSchedule, 0)), 0, 800},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := placement(t, "{maxClusters: 1, scores: ["+tc.score+"]}")
			near := func(n *v1alpha1.NearBundles) [][]atoll.ClusterView {
				if n.Names[0] != "x" {
					return nil
				}
				at := func(name, region string) atoll.ClusterView { return atoll.ClusterView{Name: name, Region: region} }
				return [][]atoll.ClusterView{{at("eu-a1", "eu"), at("eu-a2", "eu")}, {at("us-1", "us"), at("eu-a1", "")}, {at("us-2", "us")}}
			}
			d := Schedule(Input{Placement: p, Clusters: []Cluster{tc.cluster}, Now: now, Load: func(*Cluster) int64 { return tc.load }, Near: near,
				Rated: func(c *Cluster, measure string) int64 { return map[string]int64{"a price": 420}[c.Name+" "+measure] }})
			if got := toThousand(d.Verdicts[0].Score); got != tc.want {
				t.Errorf("score %d, want %d", got, tc.want)
			}
		})
	}
}

func reports(name, value string) func(*Cluster) {
	return func(c *Cluster) { c.Properties = map[string]string{name: value} }
}

// What an agent reports is what is scored.
func TestAmountsOfACluster(t *testing.T) {
	var c v1alpha1.Cluster
	text := "status: {resources: {allocatable: {cpu: '8', memory: 16Gi, nvidia.com/gpu: '2'}, requested: {cpu: 1500m, nvidia.com/gpu: '3'}}}"
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	want := []Amount{{"cpu", 8000, 6500}, {"memory", 16 << 30 * 1000, 16 << 30 * 1000}, {"nvidia.com/gpu", 2000, -1000}}
	if got := ClusterOf(&c).Resources; !slices.Equal(got, want) {
		t.Errorf("resources %v, want %v", got, want)
	}
}

// Without scores the fleet fills evenly: a Bundle goes where fewest are, and equals are
// told apart by the Bundle.
func TestBalanceIsTheDefault(t *testing.T) {
	w := newWorld()
	for i := range 10 {
		w.clusters[fmt.Sprint("c", i)] = cluster(fmt.Sprint("c", i))
	}
	p := placement(t, "{maxClusters: 2}")
	firsts := map[string]bool{}
	for b := range 50 {
		in := w.input(p)
		in.Bundle, in.Rows = fmt.Sprint("bundle-", b), nil
		for _, c := range strings.Fields(outcomes(Schedule(in), Placed)) {
			w.load[c]++
			firsts[fmt.Sprint(b < 5, c)] = true
		}
	}
	for c, n := range w.load {
		if n != 10 {
			t.Errorf("%s has %d of 100 rows", c, n)
		}
	}
	if len(firsts) < 15 {
		t.Errorf("the first Bundles all went to the same clusters: %v", firsts)
	}
}

// spreadFleet is like the fleet of the number: labels, taints, regions, zones.
func spreadFleet(n int) []Cluster {
	cs := bigFleet(n)
	for i := range cs {
		where(fmt.Sprint("region-", i%10), fmt.Sprint("zone-", i%40), "p")(&cs[i])
		cs[i].Resources = []Amount{{"cpu", 64_000, int64(i*7919%64_000) + 1}, {"memory", 1 << 40, int64(i*104729%1000+1) << 30}}
		if i%7 == 0 {
			cs[i].Taints = []v1alpha1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	return cs
}

func spreadOver50(b *testing.B) v1alpha1.PlacementSpec {
	var p v1alpha1.PlacementSpec
	text := `{clusterAffinity: {labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, dev]}]}},
  clusterTolerations: [{key: dedicated, operator: Equal, value: tpu}], maxClusters: 50,
  spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 5}, {spreadByField: zone, maxSkew: 2}],
  scores: [{name: ResourceAvailable, resource: cpu}, {name: ResourceAvailable, resource: memory, full: 256Gi}]}`
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		b.Fatal(err)
	}
	return p
}

func BenchmarkChoose(b *testing.B) {
	p := spreadOver50(b)
	for _, n := range []int{1000, 10_000} {
		in := Input{Bundle: "b", Placement: p, Filter: Compile(p), Clusters: spreadFleet(n), Terse: true, Now: now}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Schedule(in); len(d.Verdicts) != 50 {
					b.Fatalf("%d verdicts: %s", len(d.Verdicts), d.Unmet)
				}
			}
		})
	}
}

// A chosen cluster is in the first group that matches it.
func TestDecisionGroups(t *testing.T) {
	for _, choose := range []string{"", ", maxClusters: 3, scores: [{name: ResourceAvailable, resource: cpu}]"} {
		for rest, others := range map[string]string{"": "", ", {groupName: rest, labelSelector: {}}": "rest"} {
			w := newWorld(cluster("a", label("env", "canary"), cpus(9, 9)), cluster("b", label("env", "prod"), cpus(9, 8)), cluster("c", cpus(9, 7)))
			p := placement(t, "{decisionGroups: [{groupName: first, labelSelector: {matchLabels: {env: canary}}}, {groupName: second, labelSelector: {matchExpressions: [{key: env, operator: Exists}]}}"+rest+"]"+choose+"}")
			for range 2 { // as newcomers, and as those that run it
				d := w.decide(p)
				for c, want := range map[string]string{"a": "first", "b": "second", "c": others} {
					if v, _ := d.Verdict(c); v.Outcome != Placed || v.Group != want {
						t.Errorf("%s is %s in group %q, want %q", c, v, v.Group, want)
					}
				}
			}
		}
	}
}

// The best three by how many Bundles they have, as the default is.
func BenchmarkChooseThree(b *testing.B) {
	p := v1alpha1.PlacementSpec{MaxClusters: 3}
	in := Input{
		Bundle: "b", Placement: p, Filter: Compile(p), Clusters: spreadFleet(1000), Terse: true, Now: now,
		Load: func(c *Cluster) int64 { return int64(len(c.Zone)) },
	}
	b.ReportAllocs()
	for b.Loop() {
		Schedule(in)
	}
}

// With a reserve and one cluster less, what comes is what would come of all.
func TestReserve(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, text := range []string{
		"{maxClusters: 5%s}", "{maxClusters: 6, spreadConstraints: [{spreadByField: region, minGroups: 2, maxGroups: 2}, {spreadByField: zone, maxSkew: 1}]%s}",
		"{maxClusters: 6, spreadConstraints: [{spreadByField: zone, minGroups: 4}]%s}",
	} {
		p := placement(t, fmt.Sprintf(text, byCPU))
		for range 200 {
			w := newWorld()
			for i := range 60 {
				region := r.IntN(3)
				name := fmt.Sprint("c", i)
				w.clusters[name] = cluster(name, where(fmt.Sprint("r", region), fmt.Sprint("z", region, r.IntN(3)), ""), cpus(100, r.Int64N(100)))
			}
			terse := w.input(p)
			terse.Terse = true
			d := Schedule(terse)
			w.decide(p)
			placed := strings.Fields(outcomes(d, Placed))
			for _, gone := range placed[:1+r.IntN(ReserveDepth)] {
				delete(w.clusters, gone)
			}
			all := Schedule(w.input(p))
			few := w.input(p)
			few.Terse = true
			few.Clusters = slices.DeleteFunc(few.Clusters, func(c Cluster) bool {
				_, has := w.rows[c.Name]
				return !has && !slices.Contains(d.Reserve, c.Name)
			})
			if got, want := outcomes(Schedule(few), Placed), outcomes(all, Placed); got != want || len(d.Reserve) == 0 {
				t.Fatalf("%s: of %d in reserve %s, of all %s", text, len(d.Reserve), got, want)
			}
		}
	}
}

// One of 50 chosen clusters goes: what comes in its place is found among the reserve.
func BenchmarkOneClusterGoes(b *testing.B) {
	in := Input{Bundle: "b", Placement: spreadOver50(b), Clusters: spreadFleet(10_000), Terse: true, Now: now}
	in.Filter = Compile(in.Placement)
	d := Schedule(in)
	in.Rows = map[string]atoll.RowSpec{}
	keep := map[string]bool{}
	for i, v := range d.Verdicts {
		if i > 0 {
			in.Rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, Placement: v.Placement}
			keep[v.Cluster] = true
		}
	}
	for _, name := range d.Reserve {
		keep[name] = true
	}
	in.Clusters = slices.DeleteFunc(in.Clusters, func(c Cluster) bool { return !keep[c.Name] })
	b.ReportAllocs()
	for b.Loop() {
		if d := Schedule(in); len(d.Verdicts) != 50 || d.Hungry {
			b.Fatalf("%d verdicts: %s", len(d.Verdicts), d.Unmet)
		}
	}
}

// A cluster changed, and a Bundle that has chosen all it wants is asked whether that is
// anything to it.
func BenchmarkOneClusterChanges(b *testing.B) {
	p := spreadOver50(b)
	f, c := Compile(p), spreadFleet(10)[3]
	row := atoll.RowSpec{UID: c.UID, Phase: atoll.RowActive, Placement: f.print}
	s := &Standing{Worst: 1 << 40}
	b.ReportAllocs()
	for b.Loop() {
		if !f.Admits(&c) || f.Judge(&c, &row, v1alpha1.UnfitKeep, now).Outcome != Placed || f.Moves(&c, &row, &Input{}, s) {
			b.Fatal("the cluster does not fit")
		}
	}
}
