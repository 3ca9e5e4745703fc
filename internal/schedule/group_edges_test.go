package schedule

import (
	"fmt"
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// A cluster fits a placement of groups where it fits one of them, with or without a reason.
func TestAnyGroupAdmitsACluster(t *testing.T) {
	f := CompilePlacement(threeGroups(nil))
	for _, tc := range []struct {
		cluster Cluster
		want    bool
		filter  string
	}{
		{newCluster("a", atHome), true, ""}, {newCluster("a", inCloud), true, ""}, {newCluster("a"), false, FilterGroups}, {newCluster("a", inCloud, full), false, FilterGroups},
		{newCluster("a", inCloud, func(c *Cluster) { c.Deleting = true }), false, FilterDeleting},
	} {
		ok, filter, reason := f.CheckCluster(tc.cluster)
		if admits := f.AdmitsCluster(&tc.cluster); admits != tc.want || ok != tc.want || filter != tc.filter || (reason == "") != tc.want {
			t.Errorf("%v: admitted %t, checked %t by %s: %s", tc.cluster.Labels, admits, ok, filter, reason)
		}
	}
}

// A group that one row has to leave, and another one only stays in for want of a better place, is in use as long as a
// cluster fits in it. It is given up where none does.
func TestAGroupIsUsedWhileAClusterFits(t *testing.T) {
	p := threeGroups(nil)
	p.ClusterAffinities[1].ExcludeClusters = []string{"c"}
	former := threeGroups(nil)
	kept, leaving := newCluster("b"), newCluster("c", inCloud) // b lost its label, and c is excluded now
	for _, tc := range []struct {
		name  string
		fresh []Cluster
		want  string
	}{
		{"a cluster fits", []Cluster{newCluster("a", atHome), newCluster("d", inCloud)}, "cloud"},
		{"none fits", []Cluster{newCluster("a", atHome)}, "own"},
	} {
		in := Input{
			Placement: p, Clusters: append(slices.Clone(tc.fresh), kept, leaving), Now: now,
			Rows: map[string]atoll.RowSpec{"b": inGroup(former, "cloud", kept), "c": inGroup(former, "cloud", leaving)},
		}
		if d := DecidePlacement(in); d.Group != tc.want {
			t.Errorf("%s: group %s is in use: %s, want %s", tc.name, d.Group, formatGroupDecision(d), tc.want)
		}
	}
}

// A group counts a full cluster as fitting where it holds the Bundle, and as refused by its capacity where it does not.
func TestGroupsCountFullClusters(t *testing.T) {
	one, two := newCluster("a", atHome, statesCapacity(t, "{replicas: 1}")), newCluster("b", atHome, statesCapacity(t, "{replicas: 1}"))
	p := threeGroups(nil)
	in := inputFor(t, p, contentOf(t, deploymentJSON(3, "")), nil, one, two, newCluster("c", atHome), newCluster("d", inCloud))
	in.Rows = map[string]atoll.RowSpec{"a": inGroup(p, "own", one)}
	d := DecidePlacement(in)
	if got, want := groupText(d.Groups[0]), "own in use: fit 2, healthy 2, capacity 1, labelSelector 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := groupText(d.Groups[1]), "cloud: it comes after own: fit 1, healthy 1, labelSelector 3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A workload with volumes of its own that runs in one cluster is whole there. Parts in several stay parts.
func TestPartsWithVolumesOfOneClusterAreWhole(t *testing.T) {
	w := web
	w.Replicas, w.OwnVolumes = 6, true
	a, b := newCluster("a"), newCluster("b")
	for name, tc := range map[string]struct {
		rows map[string]atoll.RowSpec
		want []string
	}{
		"in one cluster":        {map[string]atoll.RowSpec{"a": runningRow(a, w, 4)}, []string{"a=6! b=0", "a=0 b=6!"}},
		"in two clusters":       {map[string]atoll.RowSpec{"a": runningRow(a, w, 4), "b": runningRow(b, w, 2)}, []string{"a=3 b=3"}},
		"in two, and at home":   {map[string]atoll.RowSpec{"a": withHome(runningRow(a, w, 4), w), "b": runningRow(b, w, 2)}, []string{"a=6! b=0"}},
		"in none, with no home": {nil, []string{"a=6! b=0", "a=0 b=6!"}},
	} {
		d := DecidePlacement(Input{BundleUID: "b", Placement: parsePlacement(t, dividedPlacement), Clusters: []Cluster{a, b}, Rows: tc.rows, Workloads: []Workload{w}, Now: now})
		if got := formatShares(d, w); !slices.Contains(tc.want, got) {
			t.Errorf("%s: %s, want one of %q", name, got, tc.want)
		}
	}
}

func withHome(row atoll.RowSpec, w Workload) atoll.RowSpec {
	row.HomeItems = []string{w.Key.String()}
	return row
}

// Free capacity is asked for where replicas may go, and nowhere else.
func TestFreeCapacityIsAskedOfHolders(t *testing.T) {
	w := web
	w.Replicas = 2
	p := parsePlacement(t, "{clusterAffinity: {clusterNames: [a, b]}, replicaScheduling: {"+aggregated+"}}")
	leaving := newCluster("c")
	d := DecidePlacement(Input{
		BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b"), leaving, newCluster("d")}, Workloads: []Workload{w}, Now: now,
		Rows: map[string]atoll.RowSpec{"c": activeRow(leaving, v1alpha1.PlacementSpec{})},
	})
	var asked []string
	d.WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) {
		asked = append(asked, cluster)
		return nil, false
	})
	if fmt.Sprint(asked) != "[a b]" {
		t.Errorf("asked for %q", asked)
	}
}

// A move keeps the spread as well as it is, also where it is not met. It opens no group beyond a maximum.
func TestMovesKeepTheSpreadAsItIs(t *testing.T) {
	// The options are in the groups 0, 0, 1, 1, 2, and none.
	groups := []int32{0, 0, 1, 1, 2, noGroup}
	for _, tc := range []struct {
		name     string
		rule     spreadRule
		from, to int32
		want     bool
	}{
		{"within a group, where a soft minimum is unmet", spreadRule{min: 3, isSoft: true}, 0, 1, true},
		{"out of a group that a soft minimum needs", spreadRule{min: 2, isSoft: true}, 2, 1, false},
		{"within a group, where a hard minimum is unmet", spreadRule{min: 3}, 0, 1, true},
		{"out of a group that a hard minimum needs", spreadRule{min: 2}, 2, 1, false},
		{"to a new group in place of another", spreadRule{min: 2, max: 2}, 2, 4, true},
		{"to no group", spreadRule{min: 2}, 2, 5, false},
		{"to a group beyond the maximum", spreadRule{min: 1, max: 2}, 0, 4, true},
		{"against a hard skew", spreadRule{min: 1, skew: 1}, 2, 1, false},
		{"against a soft skew", spreadRule{min: 1, skew: 1, isSoft: true}, 2, 1, false},
	} {
		tc.rule.groups, tc.rule.groupOf = 3, groups
		p := &candidatePool{problem: choiceProblem{options: make([]candidateOption, len(groups)), rules: []spreadRule{tc.rule}, maxChosen: 2}}
		if got := p.keepsSpread([]int32{0, 2}, tc.from, tc.to); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
	none := &candidatePool{}
	if !none.keepsSpread([]int32{0}, 0, 1) {
		t.Error("without a spread a move breaks it")
	}
	three := &candidatePool{problem: choiceProblem{options: make([]candidateOption, len(groups)), rules: []spreadRule{{min: 1, max: 2, groups: 3, groupOf: groups}}, maxChosen: 3}}
	if three.keepsSpread([]int32{0, 1, 2}, 0, 4) {
		t.Error("a third group is beyond the maximum of two")
	}
}
