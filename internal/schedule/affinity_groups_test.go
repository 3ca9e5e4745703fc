package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// threeGroups is two groups by name, own and cloud.
func threeGroups(failback *v1alpha1.Failback) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{Failback: failback, ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
		{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("at", "atHome")}},
		{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("at", "cloud")}},
	}}
}

func failbackAfter(hold time.Duration) *v1alpha1.Failback {
	return &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{Duration: hold}}
}

var (
	atHome  = withLabel("at", "atHome")
	inCloud = withLabel("at", "cloud")
	down    = withTaint("down", "", corev1.TaintEffectNoExecute, time.Minute)
	full    = withTaint("full", "", corev1.TaintEffectNoSchedule, 0)
)

// in a group, as a row stores it.
func inGroup(p v1alpha1.PlacementSpec, group string, c Cluster) atoll.RowSpec {
	r := activeRow(c, p)
	r.PlacementFingerprint = CompilePlacement(p).findGroup(group).placementFingerprint
	return r
}

func formatGroupDecision(d Decision) string {
	var out []string
	for _, v := range d.Verdicts {
		if v.Outcome != OutcomeOut {
			out = append(out, v.Cluster+"="+string(v.Outcome))
		}
	}
	return strings.Join(out, " ")
}

// The first usable group is chosen. Without one it is the first of which clusters can be chosen.
func TestFirstUsableGroup(t *testing.T) {
	usable, short, none := &groupTrial{}, &groupTrial{short: true}, &groupTrial{decision: Decision{NoFit: true}}
	for _, c := range []struct {
		name         string
		groups       []*groupTrial
		from, before int // before: the group that firstUsableBefore(from, 2) returns
		want         int
	}{
		{"the second", []*groupTrial{none, usable, usable}, 0, 1, 1},
		{"after one that is short", []*groupTrial{short, none, usable}, 0, 2, 2},
		{"short groups only", []*groupTrial{none, short, short}, 0, 2, 1},
		{"none fits", []*groupTrial{none, none, none}, 0, 2, 0},
		{"none fits from a later one on", []*groupTrial{usable, none, none}, 1, 2, 1},
		{"an earlier one is not looked at", []*groupTrial{usable, none, usable}, 1, 2, 2},
	} {
		trials := &groupTrials{byGroup: c.groups}
		if got := trials.firstUsable(c.from); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if got := trials.firstUsableBefore(c.from, 2); got != c.before {
			t.Errorf("%s: %d before the last, want %d", c.name, got, c.before)
		}
	}
}

// An earlier group that is not in use has the first reason that holds.
func TestExplainUnusedGroup(t *testing.T) {
	for _, c := range []struct {
		name  string
		trial groupTrial
		group AffinityGroup
		want  string
	}{
		{"no cluster", groupTrial{decision: Decision{NoFit: true}}, AffinityGroup{}, "no cluster fits in it"},
		{"spread", groupTrial{decision: Decision{NoFit: true, UnmetSpread: "too few zones"}}, AffinityGroup{Fit: 1}, "too few zones"},
		{"no choice", groupTrial{decision: Decision{NoFit: true}}, AffinityGroup{Fit: 1}, "none of its clusters can be chosen"},
		{"no room", groupTrial{short: true, capacity: 2, needs: 5}, AffinityGroup{Fit: 1}, "it has room for 2 of 5 replicas"},
		{"never back", groupTrial{}, AffinityGroup{Fit: 1, Healthy: 1}, "it could be used, and what runs stays in cloud: failback.policy is Never"},
	} {
		trials := &groupTrials{f: &CompiledPlacement{affinityGroups: []*CompiledPlacement{{groupName: "own"}, {groupName: "cloud"}}}, in: &Input{}, byGroup: []*groupTrial{&c.trial, nil}}
		if got := trials.explainUnused(0, 1, &c.group); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Which group is used, and what becomes of rows in the others.
func TestGroups(t *testing.T) {
	a, b, c, d := newCluster("a", atHome), newCluster("b", atHome), newCluster("c", inCloud), newCluster("d", inCloud)
	p := threeGroups(nil)
	own := func(x Cluster) atoll.RowSpec { return inGroup(p, "own", x) }
	other := func(x Cluster) atoll.RowSpec { return inGroup(p, "cloud", x) }
	for _, tc := range []struct {
		name     string
		clusters []Cluster
		rows     map[string]atoll.RowSpec
		unfit    v1alpha1.WhenUnfit
		want     string
		group    string
		noFit    bool
	}{
		{"the first that fits", []Cluster{a, b, c, d}, nil, "", "a=Placed b=Placed", "own", false},
		{"the first is full", []Cluster{newCluster("a", atHome, full), c, d}, nil, "", "c=Placed d=Placed", "cloud", false},
		{"the first has no cluster", []Cluster{c}, nil, "", "c=Placed", "cloud", false},
		{"none fits", []Cluster{newCluster("x")}, nil, "", "", "own", true},
		{"none fits, and one runs", []Cluster{newCluster("a", atHome, down)}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Kept", "own", true},
		{"it stays where it is", []Cluster{a, b, c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Placed b=Placed", "own", false},
		{"a cordon moves nothing", []Cluster{newCluster("a", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Kept", "own", true},
		{"a cordon moves it on demand", []Cluster{newCluster("a", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a)}, v1alpha1.UnfitRemove, "a=Leaves c=Placed", "cloud", false},
		{"evicted within the group", []Cluster{newCluster("a", atHome, down), b, c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Leaves b=Placed", "own", false},
		{"evicted from the group", []Cluster{newCluster("a", atHome, down), newCluster("b", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Leaves c=Placed", "cloud", false},
		{"one is evicted, and one is cordoned", []Cluster{newCluster("a", atHome, down), newCluster("b", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a), "b": own(b)}, "", "a=Leaves b=Kept c=Placed", "cloud", false},
		{"in the second it stays", []Cluster{a, b, c, d}, map[string]atoll.RowSpec{"c": other(c)}, "", "c=Placed d=Placed", "cloud", false},
		{"the move is not over, and the first is well again", []Cluster{a, c}, map[string]atoll.RowSpec{"a": own(a), "c": other(c)}, "", "a=Placed c=Leaves", "own", false},
		{"out of the second there is only the first", []Cluster{a, newCluster("c", inCloud, down)}, map[string]atoll.RowSpec{"c": other(c)}, "", "a=Placed c=Leaves", "own", false},
		{"it drifts from one group to the other", []Cluster{newCluster("a", inCloud), b}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Kept b=Placed", "own", false},
		{"groups where there were none", []Cluster{a, c}, map[string]atoll.RowSpec{"a": activeRow(a, v1alpha1.PlacementSpec{}), "c": activeRow(c, v1alpha1.PlacementSpec{})}, "", "a=Placed c=Leaves", "own", false},
		{"groups where there were none, and all is in the second", []Cluster{a, c}, map[string]atoll.RowSpec{"c": activeRow(c, v1alpha1.PlacementSpec{})}, "", "c=Placed", "cloud", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: tc.clusters, Rows: tc.rows, WhenUnfit: tc.unfit, Now: now})
			if got := formatGroupDecision(d); got != tc.want || d.Group != tc.group || d.NoFit != tc.noFit {
				t.Errorf("%q in %s, no fit %t; want %q in %s, %t", got, d.Group, d.NoFit, tc.want, tc.group, tc.noFit)
			}
			for _, v := range d.Verdicts {
				if v.Outcome == OutcomePlaced && rememberedGroup(v.PlacementFingerprint) != d.Group {
					t.Errorf("%s is placed, and remembers %q", v.Cluster, v.PlacementFingerprint)
				}
			}
		})
	}
}

// A group that is renamed or taken out of the placement is an edit.
func TestGroupsAreEdited(t *testing.T) {
	p, c := threeGroups(nil), newCluster("c", inCloud)
	r := inGroup(p, "cloud", c)
	p.ClusterAffinities = p.ClusterAffinities[:1]
	d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{newCluster("a", atHome), c}, Rows: map[string]atoll.RowSpec{"c": r}, Now: now})
	if v, _ := d.FindVerdict("c"); v.Outcome != OutcomeLeaves || v.RowReason != atoll.ReasonPlacementEdited {
		t.Errorf("what was in a group that is gone: %s %s", v, v.RowReason)
	}
	single := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("at", "cloud")})
	d = DecidePlacement(Input{Placement: single, Clusters: []Cluster{c, newCluster("d", inCloud)}, Rows: map[string]atoll.RowSpec{"c": r}, Now: now})
	if v, _ := d.FindVerdict("c"); v.Outcome != OutcomePlaced || rememberedGroup(v.PlacementFingerprint) != "" {
		t.Errorf("where there are no groups any more: %s, remembers %q", v, v.PlacementFingerprint)
	}
}

// The way back: never, or after a cluster of an earlier group was well for the hold time,
// and from there on it is the group in use.
func TestFailback(t *testing.T) {
	a, c := newCluster("a", atHome), newCluster("c", inCloud)
	healthy := func(names ...string) func(*Cluster) bool {
		return func(c *Cluster) bool { return slices.Contains(names, c.Name) }
	}
	later := now.Add(-4 * time.Minute)
	for _, tc := range []struct {
		name     string
		failback *v1alpha1.Failback
		healthy  func(*Cluster) bool
		better   PendingFailback
		want     string
		next     PendingFailback
		in       time.Duration // until it is looked at again; 0: not
		waits    bool
	}{
		{"by default", nil, nil, PendingFailback{"own", later}, "c=Placed", PendingFailback{}, 0, false},
		{"never", &v1alpha1.Failback{Policy: v1alpha1.FailbackNever}, nil, PendingFailback{"own", later}, "c=Placed", PendingFailback{}, 0, false},
		{"it has just become well", failbackAfter(3 * time.Minute), healthy("a"), PendingFailback{}, "c=Placed", PendingFailback{"own", now}, 3 * time.Minute, true},
		{"it has been well for too short", failbackAfter(5 * time.Minute), healthy("a"), PendingFailback{"own", later}, "c=Placed", PendingFailback{"own", later}, time.Minute, true},
		{"it has been well for long enough", failbackAfter(4 * time.Minute), healthy("a"), PendingFailback{"own", later}, "a=Placed c=Leaves", PendingFailback{"own", later}, 0, false},
		{"the default hold time", &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy}, healthy("a"), PendingFailback{"own", later}, "c=Placed", PendingFailback{"own", later}, time.Minute, true},
		{"it is not well", failbackAfter(time.Minute), healthy("c"), PendingFailback{"own", later}, "c=Placed", PendingFailback{}, 0, true},
		{"another group was well", failbackAfter(time.Minute), healthy("a"), PendingFailback{"before", later}, "c=Placed", PendingFailback{"own", now}, time.Minute, true},
		{"at once", failbackAfter(0), healthy("a"), PendingFailback{}, "a=Placed c=Leaves", PendingFailback{"own", now}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := threeGroups(tc.failback)
			d := DecidePlacement(Input{
				Placement: p, Clusters: []Cluster{a, c}, Rows: map[string]atoll.RowSpec{"c": inGroup(p, "cloud", c)}, Now: now,
				Facts: fakeFacts{connected: tc.healthy}, PendingFailback: tc.better,
			})
			var at time.Time
			if tc.in > 0 {
				at = now.Add(tc.in)
			}
			if got := formatGroupDecision(d); got != tc.want || d.PendingFailback != tc.next || !d.RecheckAt.Equal(at) || d.AwaitsFailback != tc.waits {
				t.Errorf("%q, better %v at %s, waits %t; want %q, %v at %s, %t", got, d.PendingFailback, d.RecheckAt, d.AwaitsFailback, tc.want, tc.next, at, tc.waits)
			}
			if v, _ := d.FindVerdict("c"); v.Outcome == OutcomeLeaves && (v.RowReason != atoll.ReasonGroupLeft || !strings.Contains(v.Reason, "own is used again")) {
				t.Errorf("c leaves as %s: %s", v.RowReason, v)
			}
		})
	}
	p := threeGroups(failbackAfter(time.Hour))
	rows := map[string]atoll.RowSpec{"a": inGroup(p, "own", a), "c": inGroup(p, "cloud", c)}
	if d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{a, c}, Rows: rows, Now: now}); formatGroupDecision(d) != "a=Placed c=Leaves" {
		t.Errorf("once it has begun the way back goes on: %s", formatGroupDecision(d))
	}
}

// Every leaf of a group changes which clusters are in it, and common parts hold in all.
func TestGroupFields(t *testing.T) {
	for _, tc := range []struct{ field, placement, want string }{
		{"affinityName", "clusterAffinities: [{affinityName: a, clusterNames: [absent]}, {affinityName: b}]", "ap-1 eu-1 eu-2"},
		{"clusterNames", "clusterAffinities: [{affinityName: a, clusterNames: [eu-1]}, {affinityName: b}]", "eu-1"},
		{"exclude", "clusterAffinities: [{affinityName: a, exclude: [eu-1]}]", "ap-1 eu-2"},
		{"labelSelector", "clusterAffinities: [{affinityName: a, labelSelector: {matchLabels: {env: test}}}, {affinityName: b}]", "eu-2"},
		{"fieldSelector", "clusterAffinities: [{affinityName: a, fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [metal]}]}}]", "ap-1"},
		{"clusterSets", "clusterAffinities: [{affinityName: a, clusterSets: [none]}, {affinityName: b, clusterSets: [paid]}]", "eu-1"},
		{"celSelector", "clusterAffinities: [{affinityName: a, celSelector: \"cluster.zone == 'eu-b'\"}]", "eu-2"},
		{"common parts", "{clusterSets: [europe], celSelector: \"cluster.provider == 'gcp'\", clusterAffinities: [{affinityName: a, labelSelector: {matchLabels: {env: prod}}}, {affinityName: b}]}", "eu-2"},
		{"common tolerations", "{clusterTolerations: [{operator: Exists}], clusterAffinities: [{affinityName: a, clusterNames: [us-1]}]}", "us-1"},
		{"common choice", "{maxClusters: 1, clusterAffinities: [{affinityName: a, clusterNames: [absent]}, {affinityName: b, clusterNames: [eu-1]}]}", "eu-1"},
		{"a spread that only a later group has", "{spreadConstraints: [{spreadByField: region, minGroups: 2}], clusterAffinities: [{affinityName: a, clusterNames: [eu-1, eu-2]}, {affinityName: b}]}", "ap-1 eu-1 eu-2"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			if got := chosenClusters(t, tc.placement); got != tc.want {
				t.Errorf("chosen: %s, want %s", got, tc.want)
			}
		})
	}
}

// Rows distinguish a group's own sets and expression from the placement's.
func TestEditsOfAGroup(t *testing.T) {
	text := "{celSelector: \"cluster.region == 'eu'\", clusterSets: [all], clusterAffinities: [{affinityName: a, celSelector: \"cluster.zone == 'z'\", clusterSets: [own]}]}"
	parse := func(text string) (p v1alpha1.PlacementSpec) {
		if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := parse(text)
	good := newCluster("a", locatedIn("eu", "z", "p"), inClusterSets("all", "own"))
	r := inGroup(p, "a", good)
	for _, tc := range []struct {
		name    string
		text    string
		cluster Cluster
		want    Outcome
		filter  string
	}{
		{"fits", text, good, OutcomePlaced, ""},
		{"the zone drifts", text, newCluster("a", locatedIn("eu", "y", "p"), inClusterSets("all", "own")), OutcomeKept, FilterCEL},
		{"the region drifts", text, newCluster("a", locatedIn("us", "z", "p"), inClusterSets("all", "own")), OutcomeKept, FilterCEL},
		{"its own set drifts", text, newCluster("a", locatedIn("eu", "z", "p"), inClusterSets("all")), OutcomeKept, FilterSets},
		{"the common set drifts", text, newCluster("a", locatedIn("eu", "z", "p"), inClusterSets("own")), OutcomeKept, FilterSets},
		{"its expression is edited", strings.Replace(text, "'z'", "'x'", 1), good, OutcomeLeaves, FilterCEL},
		{"the common expression is edited", strings.Replace(text, "'eu'", "'x'", 1), good, OutcomeLeaves, FilterCEL},
		{"its sets are edited", strings.Replace(text, "[own]", "[x]", 1), good, OutcomeLeaves, FilterSets},
		{"the common sets are edited", strings.Replace(text, "[all]", "[x]", 1), good, OutcomeLeaves, FilterSets},
		{"the common expression is edited where the zone has drifted", strings.Replace(text, "'eu'", "'eu' || true", 1), newCluster("a", locatedIn("eu", "y", "p"), inClusterSets("all", "own")), OutcomeKept, FilterCEL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := CompilePlacement(parse(tc.text)).affinityGroups[0]
			if v := f.judgeByUsedGroup(&tc.cluster, &r, rowTerms{now: now}); v.Outcome != tc.want || v.Filter != tc.filter {
				t.Errorf("%s, want %s by %s", v, tc.want, tc.filter)
			}
		})
	}
}

// A newcomer in no group hears why of each.
func TestNoGroupSaysWhy(t *testing.T) {
	p := threeGroups(nil)
	for name, want := range map[*Cluster]string{
		pointerTo(newCluster("x")): `clusterAffinities: in no group: own: labels do not match "at=atHome"; cloud: labels do not match "at=cloud"`,
		pointerTo(newCluster("x", func(c *Cluster) { c.Accepted = false })): "accepted: not accepted: `atoll accept x` is missing",
		pointerTo(newCluster("x", inCloud)):                                 "clusterAffinities: it fits in group cloud, and group own is in use",
	} {
		d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{newCluster("a", atHome), *name}, Now: now})
		if v, _ := d.FindVerdict("x"); v.Filter+": "+v.Reason != want {
			t.Errorf("%s: %s, want %s", v.Filter, v.Reason, want)
		}
	}
	if got := fmt.Sprint(CompilePlacement(v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
		{AffinityName: "a", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"y", "x"}}},
		{AffinityName: "b", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"x"}}},
	}}).NamedClusters()); got != "[x y]" {
		t.Errorf("names %s", got)
	}
}

func pointerTo[T any](v T) *T { return &v }
