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

// ladder is two groups by name, own and cloud.
func ladder(failback *v1alpha1.Failback) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{Failback: failback, ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
		{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: matching("at", "atHome")}},
		{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: matching("at", "cloud")}},
	}}
}

func back(hold time.Duration) *v1alpha1.Failback {
	return &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{Duration: hold}}
}

var (
	atHome  = label("at", "atHome")
	inCloud = label("at", "cloud")
	down    = taint("down", "", corev1.TaintEffectNoExecute, time.Minute)
	full    = taint("full", "", corev1.TaintEffectNoSchedule, 0)
)

// in a group, as a row remembers it.
func inGroup(p v1alpha1.PlacementSpec, group string, c Cluster) atoll.RowSpec {
	r := row(c, p)
	r.Placement = Compile(p).byName(group).print
	return r
}

func told(d Decision) string {
	var out []string
	for _, v := range d.Verdicts {
		if v.Outcome != Out {
			out = append(out, v.Cluster+"="+string(v.Outcome))
		}
	}
	return strings.Join(out, " ")
}

// Which group is used, and what becomes of rows in the others.
func TestGroups(t *testing.T) {
	a, b, c, d := cluster("a", atHome), cluster("b", atHome), cluster("c", inCloud), cluster("d", inCloud)
	p := ladder(nil)
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
		{"the first is full", []Cluster{cluster("a", atHome, full), c, d}, nil, "", "c=Placed d=Placed", "cloud", false},
		{"the first has nobody", []Cluster{c}, nil, "", "c=Placed", "cloud", false},
		{"none fits", []Cluster{cluster("x")}, nil, "", "", "own", true},
		{"none fits, and one runs", []Cluster{cluster("a", atHome, down)}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Kept", "own", true},
		{"it stays where it is", []Cluster{a, b, c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Placed b=Placed", "own", false},
		{"a cordon moves nothing", []Cluster{cluster("a", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Kept", "own", true},
		{"a cordon moves it on demand", []Cluster{cluster("a", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a)}, v1alpha1.UnfitRemove, "a=Leaves c=Placed", "cloud", false},
		{"evicted within the group", []Cluster{cluster("a", atHome, down), b, c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Leaves b=Placed", "own", false},
		{"evicted from the group", []Cluster{cluster("a", atHome, down), cluster("b", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Leaves c=Placed", "cloud", false},
		{"one is evicted, and one is cordoned", []Cluster{cluster("a", atHome, down), cluster("b", atHome, full), c}, map[string]atoll.RowSpec{"a": own(a), "b": own(b)}, "", "a=Leaves b=Kept c=Placed", "cloud", false},
		{"in the second it stays", []Cluster{a, b, c, d}, map[string]atoll.RowSpec{"c": other(c)}, "", "c=Placed d=Placed", "cloud", false},
		{"the move is not over, and the first is well again", []Cluster{a, c}, map[string]atoll.RowSpec{"a": own(a), "c": other(c)}, "", "a=Placed c=Leaves", "own", false},
		{"out of the second there is only the first", []Cluster{a, cluster("c", inCloud, down)}, map[string]atoll.RowSpec{"c": other(c)}, "", "a=Placed c=Leaves", "own", false},
		{"it drifts from one group to the other", []Cluster{cluster("a", inCloud), b}, map[string]atoll.RowSpec{"a": own(a)}, "", "a=Kept b=Placed", "own", false},
		{"groups where there were none", []Cluster{a, c}, map[string]atoll.RowSpec{"a": row(a, v1alpha1.PlacementSpec{}), "c": row(c, v1alpha1.PlacementSpec{})}, "", "a=Placed c=Leaves", "own", false},
		{"groups where there were none, and all is in the second", []Cluster{a, c}, map[string]atoll.RowSpec{"c": row(c, v1alpha1.PlacementSpec{})}, "", "c=Placed", "cloud", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Schedule(Input{Bundle: "b", Placement: p, Clusters: tc.clusters, Rows: tc.rows, WhenUnfit: tc.unfit, Now: now})
			if got := told(d); got != tc.want || d.Group != tc.group || d.NoFit != tc.noFit {
				t.Errorf("%q in %s, no fit %t; want %q in %s, %t", got, d.Group, d.NoFit, tc.want, tc.group, tc.noFit)
			}
			for _, v := range d.Verdicts {
				if v.Outcome == Placed && rememberedGroup(v.Placement) != d.Group {
					t.Errorf("%s is placed, and remembers %q", v.Cluster, v.Placement)
				}
			}
		})
	}
}

// A group that is renamed or taken out of the placement is an edit.
func TestGroupsAreEdited(t *testing.T) {
	p, c := ladder(nil), cluster("c", inCloud)
	r := inGroup(p, "cloud", c)
	p.ClusterAffinities = p.ClusterAffinities[:1]
	d := Schedule(Input{Placement: p, Clusters: []Cluster{cluster("a", atHome), c}, Rows: map[string]atoll.RowSpec{"c": r}, Now: now})
	if v, _ := d.Verdict("c"); v.Outcome != Leaves || v.Word != atoll.RowPlacementEdited {
		t.Errorf("what was in a group that is gone: %s %s", v, v.Word)
	}
	single := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("at", "cloud")})
	d = Schedule(Input{Placement: single, Clusters: []Cluster{c, cluster("d", inCloud)}, Rows: map[string]atoll.RowSpec{"c": r}, Now: now})
	if v, _ := d.Verdict("c"); v.Outcome != Placed || rememberedGroup(v.Placement) != "" {
		t.Errorf("where there are no groups any more: %s, remembers %q", v, v.Placement)
	}
}

// The way back: never, or after a cluster of an earlier group was well for the hold time,
// and from there on it is the group in use.
func TestFailback(t *testing.T) {
	a, c := cluster("a", atHome), cluster("c", inCloud)
	healthy := func(names ...string) func(*Cluster) bool {
		return func(c *Cluster) bool { return slices.Contains(names, c.Name) }
	}
	later := now.Add(-4 * time.Minute)
	for _, tc := range []struct {
		name     string
		failback *v1alpha1.Failback
		healthy  func(*Cluster) bool
		better   Better
		want     string
		next     Better
		in       time.Duration // until it is looked at again; 0: not
		waits    bool
	}{
		{"by default", nil, nil, Better{"own", later}, "c=Placed", Better{}, 0, false},
		{"never", &v1alpha1.Failback{Policy: v1alpha1.FailbackNever}, nil, Better{"own", later}, "c=Placed", Better{}, 0, false},
		{"it has just become well", back(3 * time.Minute), healthy("a"), Better{}, "c=Placed", Better{"own", now}, 3 * time.Minute, true},
		{"it has been well for too short", back(5 * time.Minute), healthy("a"), Better{"own", later}, "c=Placed", Better{"own", later}, time.Minute, true},
		{"it has been well for long enough", back(4 * time.Minute), healthy("a"), Better{"own", later}, "a=Placed c=Leaves", Better{"own", later}, 0, false},
		{"the default hold time", &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy}, healthy("a"), Better{"own", later}, "c=Placed", Better{"own", later}, time.Minute, true},
		{"it is not well", back(time.Minute), healthy("c"), Better{"own", later}, "c=Placed", Better{}, 0, true},
		{"another group was well", back(time.Minute), healthy("a"), Better{"before", later}, "c=Placed", Better{"own", now}, time.Minute, true},
		{"at once", back(0), healthy("a"), Better{}, "a=Placed c=Leaves", Better{"own", now}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := ladder(tc.failback)
			d := Schedule(Input{
				Placement: p, Clusters: []Cluster{a, c}, Rows: map[string]atoll.RowSpec{"c": inGroup(p, "cloud", c)}, Now: now,
				Healthy: tc.healthy, Better: tc.better,
			})
			var at time.Time
			if tc.in > 0 {
				at = now.Add(tc.in)
			}
			if got := told(d); got != tc.want || d.Better != tc.next || !d.LookAt.Equal(at) || d.FailsBack != tc.waits {
				t.Errorf("%q, better %v at %s, waits %t; want %q, %v at %s, %t", got, d.Better, d.LookAt, d.FailsBack, tc.want, tc.next, at, tc.waits)
			}
			if v, _ := d.Verdict("c"); v.Outcome == Leaves && (v.Word != atoll.RowGroupLeft || !strings.Contains(v.Reason, "own is used again")) {
				t.Errorf("c leaves as %s: %s", v.Word, v)
			}
		})
	}
	p := ladder(back(time.Hour))
	rows := map[string]atoll.RowSpec{"a": inGroup(p, "own", a), "c": inGroup(p, "cloud", c)}
	if d := Schedule(Input{Placement: p, Clusters: []Cluster{a, c}, Rows: rows, Now: now}); told(d) != "a=Placed c=Leaves" {
		t.Errorf("once it has begun the way back goes on: %s", told(d))
	}
}

// Every leaf of a group changes which clusters are in it, and common parts hold in all.
func TestGroupFields(t *testing.T) {
	for _, tc := range []struct{ field, placement, want string }{
		{"affinityName", "clusterAffinities: [{affinityName: a, clusterNames: [nobody]}, {affinityName: b}]", "ap-1 eu-1 eu-2"},
		{"clusterNames", "clusterAffinities: [{affinityName: a, clusterNames: [eu-1]}, {affinityName: b}]", "eu-1"},
		{"exclude", "clusterAffinities: [{affinityName: a, exclude: [eu-1]}]", "ap-1 eu-2"},
		{"labelSelector", "clusterAffinities: [{affinityName: a, labelSelector: {matchLabels: {env: test}}}, {affinityName: b}]", "eu-2"},
		{"fieldSelector", "clusterAffinities: [{affinityName: a, fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [metal]}]}}]", "ap-1"},
		{"clusterSets", "clusterAffinities: [{affinityName: a, clusterSets: [none]}, {affinityName: b, clusterSets: [paid]}]", "eu-1"},
		{"celSelector", "clusterAffinities: [{affinityName: a, celSelector: \"cluster.zone == 'eu-b'\"}]", "eu-2"},
		{"common parts", "{clusterSets: [europe], celSelector: \"cluster.provider == 'gcp'\", clusterAffinities: [{affinityName: a, labelSelector: {matchLabels: {env: prod}}}, {affinityName: b}]}", "eu-2"},
		{"common tolerations", "{clusterTolerations: [{operator: Exists}], clusterAffinities: [{affinityName: a, clusterNames: [us-1]}]}", "us-1"},
		{"common choice", "{maxClusters: 1, clusterAffinities: [{affinityName: a, clusterNames: [nobody]}, {affinityName: b, clusterNames: [eu-1]}]}", "eu-1"},
		{"a spread that only a later group has", "{spreadConstraints: [{spreadByField: region, minGroups: 2}], clusterAffinities: [{affinityName: a, clusterNames: [eu-1, eu-2]}, {affinityName: b}]}", "ap-1 eu-1 eu-2"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			if got := chosen(t, tc.placement); got != tc.want {
				t.Errorf("chosen: %s, want %s", got, tc.want)
			}
		})
	}
}

// What a group's own sets and expression refuse is told from the placement's.
func TestEditsOfAGroup(t *testing.T) {
	text := "{celSelector: \"cluster.region == 'eu'\", clusterSets: [all], clusterAffinities: [{affinityName: a, celSelector: \"cluster.zone == 'z'\", clusterSets: [own]}]}"
	parse := func(text string) (p v1alpha1.PlacementSpec) {
		if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := parse(text)
	good := cluster("a", where("eu", "z", "p"), sets("all", "own"))
	r := inGroup(p, "a", good)
	for _, tc := range []struct {
		name    string
		text    string
		cluster Cluster
		want    Outcome
		filter  string
	}{
		{"fits", text, good, Placed, ""},
		{"the zone drifts", text, cluster("a", where("eu", "y", "p"), sets("all", "own")), Kept, FilterCEL},
		{"the region drifts", text, cluster("a", where("us", "z", "p"), sets("all", "own")), Kept, FilterCEL},
		{"its own set drifts", text, cluster("a", where("eu", "z", "p"), sets("all")), Kept, FilterSets},
		{"the common set drifts", text, cluster("a", where("eu", "z", "p"), sets("own")), Kept, FilterSets},
		{"its expression is edited", strings.Replace(text, "'z'", "'x'", 1), good, Leaves, FilterCEL},
		{"the common expression is edited", strings.Replace(text, "'eu'", "'x'", 1), good, Leaves, FilterCEL},
		{"its sets are edited", strings.Replace(text, "[own]", "[x]", 1), good, Leaves, FilterSets},
		{"the common sets are edited", strings.Replace(text, "[all]", "[x]", 1), good, Leaves, FilterSets},
		{"the common expression is edited where the zone has drifted", strings.Replace(text, "'eu'", "'eu' || true", 1), cluster("a", where("eu", "y", "p"), sets("all", "own")), Kept, FilterCEL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Compile(parse(tc.text)).fallbacks[0]
			if v := f.judge(&tc.cluster, &r, "", now); v.Outcome != tc.want || v.Filter != tc.filter {
				t.Errorf("%s, want %s by %s", v, tc.want, tc.filter)
			}
		})
	}
}

// A newcomer in no group hears why of each.
func TestNoGroupSaysWhy(t *testing.T) {
	p := ladder(nil)
	for name, want := range map[*Cluster]string{
		ptr(cluster("x")): `clusterAffinities: in no group: own: labels do not match "at=atHome"; cloud: labels do not match "at=cloud"`,
		ptr(cluster("x", func(c *Cluster) { c.Accepted = false })): "accepted: not accepted: `atoll accept x` is missing",
		ptr(cluster("x", inCloud)):                                 "clusterAffinities: it fits in group cloud, and group own is in use",
	} {
		d := Schedule(Input{Placement: p, Clusters: []Cluster{cluster("a", atHome), *name}, Now: now})
		if v, _ := d.Verdict("x"); v.Filter+": "+v.Reason != want {
			t.Errorf("%s: %s, want %s", v.Filter, v.Reason, want)
		}
	}
	if got := fmt.Sprint(Compile(v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
		{AffinityName: "a", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"y", "x"}}},
		{AffinityName: "b", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"x"}}},
	}}).Names()); got != "[x y]" {
		t.Errorf("names %s", got)
	}
}

func ptr[T any](v T) *T { return &v }
