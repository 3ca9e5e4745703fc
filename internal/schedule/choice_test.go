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

func parsePlacement(t testing.TB, text string) v1alpha1.PlacementSpec {
	t.Helper()
	var p v1alpha1.PlacementSpec
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// simulatedFleet is a fleet and the rows of one Bundle, which follow what is decided.
type simulatedFleet struct {
	clusters map[string]Cluster
	rows     map[string]atoll.RowSpec
	load     map[string]int64
}

func newWorld(cs ...Cluster) *simulatedFleet {
	w := &simulatedFleet{clusters: map[string]Cluster{}, rows: map[string]atoll.RowSpec{}, load: map[string]int64{}}
	for _, c := range cs {
		w.clusters[c.Name] = c
	}
	return w
}

func (w *simulatedFleet) buildInput(p v1alpha1.PlacementSpec) Input {
	return Input{
		BundleUID: "b", Placement: p, Clusters: slices.Collect(maps.Values(w.clusters)), Rows: w.rows, Now: now,
		Facts: fakeFacts{pods: func(c *Cluster) int64 { return w.load[c.Name] }},
	}
}

// decideAndApply, and do what is decided at once: what leaves is on its way out.
func (w *simulatedFleet) decideAndApply(p v1alpha1.PlacementSpec) Decision {
	d := DecidePlacement(w.buildInput(p))
	for _, v := range d.Verdicts {
		row, has := w.rows[v.Cluster]
		switch v.Outcome {
		case OutcomePlaced, OutcomeKept:
			row.UID, row.Phase, row.PlacementFingerprint = v.UID, atoll.RowActive, v.PlacementFingerprint
			w.rows[v.Cluster] = row
		case OutcomeLeaves:
			if row.Phase = atoll.RowLeaving; has {
				w.rows[v.Cluster] = row
			}
		case OutcomeGone:
			delete(w.rows, v.Cluster)
		}
	}
	return d
}

// removeLeavingRows: what was on its way out is gone.
func (w *simulatedFleet) removeLeavingRows() {
	maps.DeleteFunc(w.rows, func(_ string, r atoll.RowSpec) bool { return r.Phase == atoll.RowLeaving })
}

func formatOutcomes(d Decision, which ...Outcome) string {
	var out []string
	for _, v := range d.Verdicts {
		if slices.Contains(which, v.Outcome) {
			out = append(out, v.Cluster)
		}
	}
	return strings.Join(out, " ")
}

func withPods(total, free int64) func(*Cluster) {
	return func(c *Cluster) {
		c.Resources = append(c.Resources, ResourceAmount{Name: corev1.ResourcePods, Total: total * 1000, Free: free * 1000})
	}
}

func withCPUs(total, free int64) func(*Cluster) {
	return func(c *Cluster) {
		c.Resources = append(c.Resources, ResourceAmount{Name: corev1.ResourceCPU, Total: total * 1000, Free: free * 1000})
	}
}

// sixZones are 2 regions, 3 zones in each; zone eu-a has 3 clusters, the others 2, but
// us-c 1. Scores fall in this order. Zones c report another power than the others.
func sixZones() *simulatedFleet {
	w := newWorld()
	free := int64(100)
	for _, z := range []string{"eu-a", "eu-b", "eu-c", "us-a", "us-b", "us-c"} {
		n := map[string]int{"eu-a": 3, "us-c": 1}[z]
		for i := range max(n, 2-n) {
			name := fmt.Sprintf("%s%d", z, i+1)
			w.clusters[name] = newCluster(name, locatedIn(z[:2], z, "p-"+z[3:]), withLabel("rack", z[3:]), withReport("power", map[string]string{"c": "wind"}[z[3:]]+"power"), withCPUs(100, free))
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
		{"spreadConstraints.spreadByProperty", "{maxClusters: 2, spreadConstraints: [{spreadByProperty: power, minGroups: 2}]" + byCPU + "}", "eu-a1 eu-c1"},
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
			if got := formatOutcomes(sixZones().decideAndApply(parsePlacement(t, tc.placement)), OutcomePlaced); got != tc.want {
				t.Errorf("chosen: %s, want %s", got, tc.want)
			}
		})
	}
}

// A cluster without the field or label is in no group.
func TestWithoutTheLabel(t *testing.T) {
	w := newWorld(newCluster("a", withLabel("rack", "1"), withCPUs(9, 1)), newCluster("b", withLabel("rack", "2"), withCPUs(9, 2)), newCluster("c", withCPUs(9, 9)))
	d := w.decideAndApply(parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByLabel: rack}]"+byCPU+"}"))
	v, _ := d.FindVerdict("c")
	if v.Outcome != OutcomeOut || v.Filter != FilterSpread || !strings.Contains(v.Reason, "label rack") || formatOutcomes(d, OutcomePlaced) != "a b" {
		t.Errorf("c, without a rack: %s; chosen %s", v, formatOutcomes(d, OutcomePlaced))
	}
	soft := "{maxClusters: 2, spreadConstraints: [{spreadByLabel: rack, minGroups: %d, whenUnsatisfiable: ScheduleAnyway}]" + byCPU + "}"
	for groups, want := range map[int]string{1: "b c", 2: "a b"} {
		w := newWorld(slices.Collect(maps.Values(w.clusters))...)
		if got := formatOutcomes(w.decideAndApply(parsePlacement(t, fmt.Sprintf(soft, groups))), OutcomePlaced); got != want {
			t.Errorf("with %d groups wished for: %s, want %s", groups, got, want)
		}
	}
	// One that runs the Bundle and loses the label keeps it.
	w.clusters["a"] = newCluster("a")
	if got := formatOutcomes(w.decideAndApply(parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByLabel: rack}]"+byCPU+"}")), OutcomePlaced); got != "a b" {
		t.Errorf("after a lost its rack: %s", got)
	}
}

// A cluster without the property is in no group, and one that runs the Bundle and stops to report it keeps it.
func TestWithoutTheProperty(t *testing.T) {
	w := newWorld(newCluster("a", withReport("power", "wind"), withCPUs(9, 1)), newCluster("b", withReport("power", "sun"), withCPUs(9, 2)), newCluster("c", withCPUs(9, 9)))
	p := parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByProperty: power}]"+byCPU+"}")
	d := w.decideAndApply(p)
	v, _ := d.FindVerdict("c")
	if v.Outcome != OutcomeOut || v.Filter != FilterSpread || !strings.Contains(v.Reason, "property power") || formatOutcomes(d, OutcomePlaced) != "a b" {
		t.Errorf("c, without the property: %s; chosen %s", v, formatOutcomes(d, OutcomePlaced))
	}
	w.clusters["a"] = newCluster("a")
	if got := formatOutcomes(w.decideAndApply(p), OutcomePlaced); got != "a b" {
		t.Errorf("after a reports no property: %s", got)
	}
}

// A minimum that cannot be had changes nothing: nothing comes, and nothing goes.
func TestUnmetMinimumChangesNothing(t *testing.T) {
	w := sixZones()
	two := parsePlacement(t, "{maxClusters: 2"+byCPU+"}")
	w.decideAndApply(two)
	for _, text := range []string{
		"{maxClusters: 4, spreadConstraints: [{spreadByField: region, minGroups: 3}]}",
		"{clusterAffinity: {exclude: [eu-a1]}, spreadConstraints: [{spreadByField: provider, minGroups: 4}]}",
		"{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [us]}]}}, spreadConstraints: [{spreadByField: cluster, minGroups: 8}]}",
	} {
		d := DecidePlacement(w.buildInput(parsePlacement(t, text)))
		if got := formatOutcomes(d, OutcomeKept); got != "eu-a1 eu-a2" || formatOutcomes(d, OutcomePlaced, OutcomeLeaves) != "" || !d.NoFit || d.UnmetSpread == "" {
			t.Errorf("under %s %s is kept, and %s", text, got, d.UnmetSpread)
		}
		for _, c := range []string{"eu-a1", "eu-a2"} {
			if v, _ := d.FindVerdict(c); v.PlacementFingerprint != "/"+CompilePlacement(two).choice.fingerprint && v.RowReason != atoll.ReasonNoClusterFits {
				t.Errorf("the row on %s forgets under what it was chosen: %q", c, v.PlacementFingerprint)
			}
		}
	}
	if d := w.decideAndApply(two); formatOutcomes(d, OutcomePlaced) != "eu-a1 eu-a2" || d.WantsMore {
		t.Errorf("back at the start: %s, hungry %t", formatOutcomes(d, OutcomePlaced), d.WantsMore)
	}
}

// Scores never move what runs, and neither does drift.
func TestARunningClusterKeepsTheBundle(t *testing.T) {
	w := sixZones()
	p := parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3, maxSkew: 1}]"+byCPU+"}")
	w.decideAndApply(p)
	stays := func(when string) {
		t.Helper()
		if got := formatOutcomes(w.decideAndApply(p), OutcomePlaced, OutcomeKept); got != "eu-a1 eu-b1 eu-c1" {
			t.Errorf("%s: %s", when, got)
		}
	}
	stays("nothing changed")
	w.clusters["new"] = newCluster("new", locatedIn("ap", "ap-a", "p"), withLabel("rack", "z"), withCPUs(100, 100))
	stays("a better cluster came")
	w.clusters["eu-a1"] = newCluster("eu-a1", locatedIn("eu", "eu-a", "p-a"), withCPUs(100, 0))
	stays("one is full")
	w.clusters["eu-b1"] = newCluster("eu-b1", locatedIn("eu", "eu-b", "p-b"), withTaint("t", "", corev1.TaintEffectNoSchedule, 0))
	stays("one is tainted")
	w.clusters["eu-c1"] = newCluster("eu-c1", locatedIn("eu", "eu-c", "p-c"), func(c *Cluster) { c.Accepted = false })
	stays("one is not accepted any more")
}

// When one goes for good, one comes, and the others stay.
func TestOneGoesOneComes(t *testing.T) {
	w := sixZones()
	p := parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3}]"+byCPU+"}")
	w.decideAndApply(p)
	delete(w.clusters, "eu-b1")
	if got := formatOutcomes(w.decideAndApply(p), OutcomePlaced); got != "eu-a1 eu-b2 eu-c1" {
		t.Errorf("after eu-b1 was deleted: %s", got)
	}
	w.clusters["eu-c1"] = newCluster("eu-c1", locatedIn("eu", "eu-c", "p-c"), withTaint("t", "", corev1.TaintEffectNoExecute, 0))
	d := w.decideAndApply(p)
	if got := formatOutcomes(d, OutcomePlaced); got != "eu-a1 eu-b2 eu-c2" || formatOutcomes(d, OutcomeLeaves) != "eu-c1" {
		t.Errorf("after eu-c1 was tainted: %s, leaving %s", got, formatOutcomes(d, OutcomeLeaves))
	}
	// The taint goes before the replacement is healthy: the replacement stays.
	w.clusters["eu-c1"] = newCluster("eu-c1", locatedIn("eu", "eu-c", "p-c"), withCPUs(100, 100))
	if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != "eu-a1 eu-b2 eu-c2" || formatOutcomes(d, OutcomeLeaves) != "eu-c1" {
		t.Errorf("after the taint went: %s, leaving %s", formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves))
	}
}

func TestEditsOfTheChoice(t *testing.T) {
	w := sixZones()
	step := func(text, placed, leaves string) {
		t.Helper()
		p := parsePlacement(t, text)
		for range 2 { // the second time nothing more happens
			if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != placed || formatOutcomes(d, OutcomeLeaves) != leaves {
				t.Fatalf("under %s placed %s, leaving %s", text, formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves))
			}
		}
	}
	step("{maxClusters: 5"+byCPU+"}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2", "")
	step("{maxClusters: 3"+byCPU+"}", "eu-a1 eu-a2 eu-a3", "eu-b1 eu-b2")
	step("{maxClusters: 4"+byCPU+"}", "eu-a1 eu-a2 eu-a3 eu-b1", "eu-b2")
	w.removeLeavingRows()
	// As many of the running ones stay as can.
	step("{maxClusters: 4, spreadConstraints: [{spreadByField: zone, minGroups: 3}]"+byCPU+"}", "eu-a1 eu-a2 eu-b1 eu-c1", "eu-a3")
	w.removeLeavingRows()
	step("{maxClusters: 4, spreadConstraints: [{spreadByField: region, maxGroups: 1}]"+byCPU+"}", "eu-a1 eu-a2 eu-b1 eu-c1", "")
	// An edit of the scores moves nothing.
	step("{maxClusters: 4, spreadConstraints: [{spreadByField: region, maxGroups: 1}]}", "eu-a1 eu-a2 eu-b1 eu-c1", "")
	step("{}", "eu-a1 eu-a2 eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1", "")
	// The cluster that does not fit any more leaves first.
	w.clusters["eu-a1"] = newCluster("eu-a1", locatedIn("eu", "eu-a", "p-a"), withTaint("t", "", corev1.TaintEffectNoSchedule, 0))
	w.clusters["eu-a2"] = newCluster("eu-a2", locatedIn("eu", "eu-a", "p-a"), func(c *Cluster) { c.Accepted = false })
	step("{maxClusters: 10"+byCPU+"}", "eu-a3 eu-b1 eu-b2 eu-c1 eu-c2 us-a1 us-a2 us-b1 us-b2 us-c1", "eu-a1 eu-a2")
}

// Adding a cluster takes the place of at most one, and that only where nothing runs yet;
// the scores of the others stay what they are.
func TestAddingAClusterMovesNoOtherRow(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 20))
	p := parsePlacement(t, "{maxClusters: 4, scores: [{name: ResourceAvailable, resource: cpu, weight: 2}, {name: Balance}]}")
	for range 300 {
		w := newWorld()
		for i := range 12 {
			name := fmt.Sprint("c", i)
			w.clusters[name], w.load[name] = newCluster(name, withCPUs(100, r.Int64N(100))), r.Int64N(30)
		}
		before := DecidePlacement(w.buildInput(p))
		w.clusters["new"] = newCluster("new", withCPUs(1000, r.Int64N(1000)))
		after := DecidePlacement(w.buildInput(p))
		lost := 0
		for _, v := range before.Verdicts {
			now, _ := after.FindVerdict(v.Cluster)
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
		// In its own cluster, it does not even take that.
		delete(w.clusters, "new")
		placed := formatOutcomes(w.decideAndApply(p), OutcomePlaced)
		w.clusters["new"] = newCluster("new", withCPUs(1000, 1000))
		if got := formatOutcomes(w.decideAndApply(p), OutcomePlaced); got != placed {
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
		{"an empty cluster balances best", "{name: Balance}", newCluster("a", withPods(500, 0)), 0, 1000},
		{"as many Bundles as pods: half", "{name: Balance}", newCluster("a", withPods(500, 500)), 500, 500},
		{"of unknown size", "{name: Balance}", newCluster("a"), 110, 500},
		{"three times its pods", "{name: Balance}", newCluster("a", withPods(10, 10)), 30, 250},
		{"half of it is free", "{name: ResourceAvailable, resource: cpu}", newCluster("a", withCPUs(8, 4)), 9, 500},
		{"overbooked", "{name: ResourceAvailable, resource: cpu}", newCluster("a", withCPUs(8, -4)), 0, 0},
		{"not reported", "{name: ResourceAvailable, resource: nvidia.com/gpu}", newCluster("a", withCPUs(8, 8)), 0, 0},
		{"full: enough", "{name: ResourceAvailable, resource: cpu, full: 4}", newCluster("a", withCPUs(800, 8)), 0, 1000},
		{"full: a quarter of it", "{name: ResourceAvailable, resource: cpu, full: 32}", newCluster("a", withCPUs(8, 8)), 0, 250},
		{"weight", "{name: ResourceAvailable, resource: cpu, weight: 3}, {name: Balance}", newCluster("a", withCPUs(8, 0)), 0, 250},
		{"not steady where it does not run", "{name: Steady}", newCluster("a"), 0, 0},
		{"property in between", "{name: Property, property: {name: disk, from: 100, to: 500}}", newCluster("a", withReport("disk", "200")), 0, 250},
		{"property where less is better", "{name: Property, property: {name: price, from: '10', to: '0'}}", newCluster("a", withReport("price", "2500m")), 0, 750},
		{"property beyond", "{name: Property, property: {name: disk, from: 0, to: 1}}", newCluster("a", withReport("disk", "7")), 0, 1000},
		{"property that is no number", "{name: Property, property: {name: disk, from: 0, to: 1}}", newCluster("a", withReport("disk", "big")), 0, 0},
		{"property that is not reported", "{name: Property, property: {name: disk, from: 1, to: 0}}", newCluster("a"), 0, 0},
		{"near: 2 of 3", "{name: Affinity, bundles: {names: [x]}}", newCluster("eu-a1"), 0, 667},
		{"near: none", "{name: Affinity, bundles: {names: [x]}}", newCluster("z"), 0, 0},
		{"near within a region: 1 of 3, once", "{name: Affinity, bundles: {names: [x], within: region}}", newCluster("z", locatedIn("eu", "eu-z", "")), 0, 333},
		{"far", "{name: AntiAffinity, bundles: {names: [x]}}", newCluster("eu-a1"), 0, 333},
		{"far from none that runs", "{name: AntiAffinity, bundles: {names: [absent]}}", newCluster("eu-a1"), 0, 1000},
		{"measure", "{name: ClusterScore, measure: price}", newCluster("a"), 0, 420},
		{"preferred by label", "{name: ClusterAffinity, clusterAffinity: {labelSelector: {matchLabels: {rack: '1'}}}}", newCluster("a", withLabel("rack", "1")), 0, 1000},
		{"not preferred by label", "{name: ClusterAffinity, clusterAffinity: {labelSelector: {matchLabels: {rack: '1'}}}}", newCluster("a", withLabel("rack", "2")), 0, 0},
		{"preferred by name", "{name: ClusterAffinity, clusterAffinity: {clusterNames: [a, b]}}", newCluster("a"), 0, 1000},
		{"not preferred by exclude", "{name: ClusterAffinity, clusterAffinity: {exclude: [a]}}", newCluster("a"), 0, 0},
		{"preferred by field", "{name: ClusterAffinity, clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}}}", newCluster("a", locatedIn("eu", "", "")), 0, 1000},
		{"not preferred by field", "{name: ClusterAffinity, clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [eu]}]}}}", newCluster("a", locatedIn("eu", "", "")), 0, 0},
		{"preferred by property", "{name: ClusterAffinity, clusterAffinity: {fieldSelector: {matchExpressions: [{key: disk, operator: Gt, values: ['100']}]}}}", newCluster("a", withReport("disk", "200")), 0, 1000},
		{"preferred with weights", "{name: ClusterAffinity, weight: 3, clusterAffinity: {clusterNames: [a]}}, {name: ClusterAffinity, clusterAffinity: {clusterNames: [b]}}", newCluster("a"), 0, 750},
		{"measure without ratings", "{name: ClusterScore, measure: noise}", newCluster("a"), 0, 0},
		{"a PreferNoSchedule taint", "{name: Balance}", newCluster("a", withTaint("t", "", corev1.TaintEffectPreferNoSchedule, 0)), 0, 800},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := parsePlacement(t, "{maxClusters: 1, scores: ["+tc.score+"]}")
			near := make([][]BundleClusters, len(p.Scores))
			for i, s := range p.Scores {
				if s.Bundles != nil && s.Bundles.Names[0] == "x" {
					at := func(name, region string) atoll.ClusterView { return atoll.ClusterView{Name: name, Region: region} }
					near[i] = []BundleClusters{{at("eu-a1", "eu"), at("eu-a2", "eu")}, {at("us-1", "us"), at("eu-a1", "")}, {at("us-2", "us")}}
				}
			}
			d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{tc.cluster}, Now: now, NearbyBundles: near, Facts: fakeFacts{
				pods:   func(*Cluster) int64 { return tc.load },
				rating: func(c *Cluster, measure string) int64 { return map[string]int64{"a price": 420}[c.Name+" "+measure] },
			}})
			if got := toThousand(d.Verdicts[0].Score); got != tc.want {
				t.Errorf("score %d, want %d", got, tc.want)
			}
		})
	}
}

func withReport(name, value string) func(*Cluster) {
	return func(c *Cluster) { c.Properties = map[string]string{name: value} }
}

// Scores come from agents' reports.
func TestAmountsOfACluster(t *testing.T) {
	var c v1alpha1.Cluster
	text := "status: {resources: {allocatable: {cpu: '8', memory: 16Gi, nvidia.com/gpu: '2'}, requested: {cpu: 1500m, nvidia.com/gpu: '3'}}}"
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	want := []ResourceAmount{{"cpu", 8000, 6500}, {"memory", 16 << 30 * 1000, 16 << 30 * 1000}, {"nvidia.com/gpu", 2000, -1000}}
	if got := ClusterOf(&c).Resources; !slices.Equal(got, want) {
		t.Errorf("resources %v, want %v", got, want)
	}
}

// Without scores the fleet fills evenly: a Bundle goes where fewest are, and equals are
// which the Bundle decides.
func TestBalanceIsTheDefault(t *testing.T) {
	w := newWorld()
	for i := range 10 {
		w.clusters[fmt.Sprint("c", i)] = newCluster(fmt.Sprint("c", i))
	}
	p := parsePlacement(t, "{maxClusters: 2}")
	firsts := map[string]bool{}
	for b := range 50 {
		in := w.buildInput(p)
		in.BundleUID, in.Rows = fmt.Sprint("bundle-", b), nil
		for _, c := range strings.Fields(formatOutcomes(DecidePlacement(in), OutcomePlaced)) {
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
		locatedIn(fmt.Sprint("region-", i%10), fmt.Sprint("zone-", i%40), "p")(&cs[i])
		cs[i].Resources = []ResourceAmount{{"cpu", 64_000, int64(i*7919%64_000) + 1}, {"memory", 1 << 40, int64(i*104729%1000+1) << 30}}
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
		in := Input{BundleUID: "b", Placement: p, Filter: CompilePlacement(p), Clusters: spreadFleet(n), SkipExplanations: true, Now: now}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := DecidePlacement(in); len(d.Verdicts) != 50 {
					b.Fatalf("%d verdicts: %s", len(d.Verdicts), d.UnmetSpread)
				}
			}
		})
	}
}

// A chosen cluster is in the first group that matches it.
func TestDecisionGroups(t *testing.T) {
	for _, choose := range []string{"", ", maxClusters: 3, scores: [{name: ResourceAvailable, resource: cpu}]"} {
		for rest, others := range map[string]string{"": "", ", {groupName: rest, labelSelector: {}}": "rest"} {
			w := newWorld(newCluster("a", withLabel("env", "canary"), withCPUs(9, 9)), newCluster("b", withLabel("env", "prod"), withCPUs(9, 8)), newCluster("c", withCPUs(9, 7)))
			p := parsePlacement(t, "{decisionGroups: [{groupName: first, labelSelector: {matchLabels: {env: canary}}}, {groupName: second, labelSelector: {matchExpressions: [{key: env, operator: Exists}]}}"+rest+"]"+choose+"}")
			for range 2 { // as newcomers, and as those that run it
				d := w.decideAndApply(p)
				for c, want := range map[string]string{"a": "first", "b": "second", "c": others} {
					if v, _ := d.FindVerdict(c); v.Outcome != OutcomePlaced || v.Group != want {
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
		BundleUID: "b", Placement: p, Filter: CompilePlacement(p), Clusters: spreadFleet(1000), SkipExplanations: true, Now: now,
		Facts: fakeFacts{pods: func(c *Cluster) int64 { return int64(len(c.Zone)) }},
	}
	b.ReportAllocs()
	for b.Loop() {
		DecidePlacement(in)
	}
}

// With a reserve and one cluster less, what comes is what would come of all.
func TestReserve(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, text := range []string{
		"{maxClusters: 5%s}", "{maxClusters: 6, spreadConstraints: [{spreadByField: region, minGroups: 2, maxGroups: 2}, {spreadByField: zone, maxSkew: 1}]%s}",
		"{maxClusters: 6, spreadConstraints: [{spreadByField: zone, minGroups: 4}]%s}",
	} {
		p := parsePlacement(t, fmt.Sprintf(text, byCPU))
		for range 200 {
			w := newWorld()
			for i := range 60 {
				region := r.IntN(3)
				name := fmt.Sprint("c", i)
				w.clusters[name] = newCluster(name, locatedIn(fmt.Sprint("r", region), fmt.Sprint("z", region, r.IntN(3)), ""), withCPUs(100, r.Int64N(100)))
			}
			terse := w.buildInput(p)
			terse.SkipExplanations = true
			d := DecidePlacement(terse)
			w.decideAndApply(p)
			placed := strings.Fields(formatOutcomes(d, OutcomePlaced))
			for _, gone := range placed[:1+r.IntN(ReserveDepth)] {
				delete(w.clusters, gone)
			}
			all := DecidePlacement(w.buildInput(p))
			few := w.buildInput(p)
			few.SkipExplanations = true
			few.Clusters = slices.DeleteFunc(few.Clusters, func(c Cluster) bool {
				_, has := w.rows[c.Name]
				return !has && !slices.Contains(d.ReserveClusters, c.Name)
			})
			if got, want := formatOutcomes(DecidePlacement(few), OutcomePlaced), formatOutcomes(all, OutcomePlaced); got != want || len(d.ReserveClusters) == 0 {
				t.Fatalf("%s: of %d in reserve %s, of all %s", text, len(d.ReserveClusters), got, want)
			}
		}
	}
}

// One of 50 chosen clusters goes: what comes in its place is found among the reserve.
func BenchmarkOneClusterGoes(b *testing.B) {
	in := Input{BundleUID: "b", Placement: spreadOver50(b), Clusters: spreadFleet(10_000), SkipExplanations: true, Now: now}
	in.Filter = CompilePlacement(in.Placement)
	d := DecidePlacement(in)
	in.Rows = map[string]atoll.RowSpec{}
	keep := map[string]bool{}
	for i, v := range d.Verdicts {
		if i > 0 {
			in.Rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint}
			keep[v.Cluster] = true
		}
	}
	for _, name := range d.ReserveClusters {
		keep[name] = true
	}
	in.Clusters = slices.DeleteFunc(in.Clusters, func(c Cluster) bool { return !keep[c.Name] })
	b.ReportAllocs()
	for b.Loop() {
		if d := DecidePlacement(in); len(d.Verdicts) != 50 || d.WantsMore {
			b.Fatalf("%d verdicts: %s", len(d.Verdicts), d.UnmetSpread)
		}
	}
}

// A cluster changed, and a Bundle that has chosen all it wants is asked whether that is
// anything to it.
func BenchmarkOneClusterChanges(b *testing.B) {
	p := spreadOver50(b)
	f, c := CompilePlacement(p), spreadFleet(10)[3]
	row := atoll.RowSpec{UID: c.UID, Phase: atoll.RowActive, PlacementFingerprint: f.placementFingerprint}
	s := &ScoreThresholds{LowestChosen: 1 << 40}
	b.ReportAllocs()
	for b.Loop() {
		if !f.AdmitsCluster(&c) || f.JudgeCluster(&c, &row, v1alpha1.UnfitKeep, now).Outcome != OutcomePlaced || f.CanMove(&c, &row, &Input{}, s) {
			b.Fatal("the cluster does not fit")
		}
	}
}

// The order in which clusters are listed decides nothing, also between equal groups.
func TestOrderOfClustersDecidesNothing(t *testing.T) {
	placements := []v1alpha1.PlacementSpec{
		parsePlacement(t, "{maxClusters: 3}"),
		parsePlacement(t, "{spreadConstraints: [{spreadByField: region, minGroups: 2, maxGroups: 2}, {spreadByField: cluster, minGroups: 3, maxGroups: 3}]}"),
		parsePlacement(t, "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]}"),
	}
	var fleet []Cluster
	for i := range 12 {
		c := Cluster{ClusterView: atoll.ClusterView{Name: fmt.Sprintf("c%02d", i), Region: fmt.Sprint("r", i%4), Zone: fmt.Sprint("z", i%3)}, UID: fmt.Sprint("u", i), Accepted: true}
		fleet = append(fleet, c)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i, p := range placements {
		for _, bundle := range []string{"a", "b", "c", "d"} {
			want := ""
			for range 8 {
				shuffled := slices.Clone(fleet)
				rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				got := formatOutcomes(DecidePlacement(Input{BundleUID: bundle, Placement: p, Clusters: shuffled, Now: now}), OutcomePlaced)
				if want == "" {
					want = got
				}
				if got != want || got == "" {
					t.Errorf("placement %d of bundle %s: on %q, and in another order %q", i, bundle, got, want)
				}
			}
		}
	}
}
