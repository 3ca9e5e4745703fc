package schedule

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A cluster that leaves the fleet gets nothing new and loses what it has, also where no
// other one fits, or where a minimum cannot be had without it.
func TestAClusterThatLeavesTheFleet(t *testing.T) {
	going := func(name string, mode v1alpha1.ClusterRemovalMode) Cluster {
		c := cluster(name)
		c.Removal = mode
		return c
	}
	for _, tc := range []struct {
		name      string
		placement v1alpha1.PlacementSpec
		clusters  []Cluster
		orphan    bool
		noFit     bool
	}{
		{"clean", v1alpha1.PlacementSpec{}, []Cluster{going("a", v1alpha1.ClusterClean), cluster("b")}, false, false},
		{"orphan", v1alpha1.PlacementSpec{}, []Cluster{going("a", v1alpha1.ClusterOrphan), cluster("b")}, true, false},
		{"the only one", v1alpha1.PlacementSpec{}, []Cluster{going("a", v1alpha1.ClusterClean)}, false, true},
		{"chosen", v1alpha1.PlacementSpec{MaxClusters: 1}, []Cluster{going("a", v1alpha1.ClusterClean), cluster("b")}, false, false},
		{"of a group", v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
			{AffinityName: "one", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
			{AffinityName: "two", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
		}}, []Cluster{going("a", v1alpha1.ClusterOrphan), cluster("b")}, true, false},
		{"a minimum that cannot be had", v1alpha1.PlacementSpec{SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByCluster, MinGroups: 2}}},
			[]Cluster{going("a", v1alpha1.ClusterClean), cluster("b")}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Compile(tc.placement)
			row := atoll.RowSpec{UID: cluster("a").UID, Phase: atoll.RowActive, Revision: "r", Placement: f.print}
			if f.Grouped() {
				row.Placement = f.fallbacks[0].print
			}
			d := Schedule(Input{Placement: tc.placement, Clusters: tc.clusters, Rows: map[string]atoll.RowSpec{"a": row}, Now: now})
			v, _ := d.Verdict("a")
			if v.Outcome != Leaves || v.Word != atoll.RowClusterRemoved || v.Orphan != tc.orphan {
				t.Errorf("its row: %s (%s), orphan %t", v, v.Word, v.Orphan)
			}
			if d.NoFit != tc.noFit {
				t.Errorf("no cluster fits: %t, want %t", d.NoFit, tc.noFit)
			}
			row.Phase = atoll.RowRemoving
			d = Schedule(Input{Placement: tc.placement, Clusters: tc.clusters, Rows: map[string]atoll.RowSpec{"a": row}, Now: now})
			if v, _ := d.Verdict("a"); v.Outcome != Out || v.Orphan != tc.orphan {
				t.Errorf("its row on the way out: %s, orphan %t", v, v.Orphan)
			}
		})
	}
}

// What is in a cluster that is to be cleaned stays where it is until that is confirmed, whatever
// the policy says of clusters that do not fit; what users edit meanwhile goes its way. A cluster
// that is given up keeps all.
func TestARemovalIsHeld(t *testing.T) {
	held := func(spec v1alpha1.ClusterRemoval, found string) Cluster {
		obj := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true, Removal: &spec}}
		if found != "" {
			obj.Status.Removal = &v1alpha1.ClusterRemovalStatus{Confirmed: found}
		}
		obj.Name, obj.UID = "a", "uid-a"
		return ClusterOf(obj)
	}
	edited := v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}}
	grouped := v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
		{AffinityName: "one", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
		{AffinityName: "two", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
	}}
	clean := v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}
	confirmed := v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "p"}
	for _, tc := range []struct {
		name      string
		removal   v1alpha1.ClusterRemoval
		found     string
		placement v1alpha1.PlacementSpec
		unfit     v1alpha1.WhenUnfit
		want      Outcome
		word      string
	}{
		{"clean", clean, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, Kept, atoll.RowUnfit},
		{"whenUnfit Remove", clean, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"the best one is wanted", clean, "", v1alpha1.PlacementSpec{MaxClusters: 1}, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"of a group", clean, "", grouped, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"edited", clean, "", edited, v1alpha1.UnfitKeep, Leaves, atoll.RowPlacementEdited},
		{"given up", v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "p", Force: true}, "p", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, Kept, atoll.RowUnfit},
		{"confirmed", confirmed, "p", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, Leaves, atoll.RowClusterRemoved},
		{"confirmed, and the leading hub has not looked", confirmed, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"another plan was found", confirmed, "q", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"the confirmation is taken back", clean, "p", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"orphan", v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, Leaves, atoll.RowClusterRemoved},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Compile(tc.placement)
			a := held(tc.removal, tc.found)
			row := atoll.RowSpec{UID: a.UID, Phase: atoll.RowActive, Revision: "r", Placement: f.print}
			if f.Grouped() {
				row.Placement = f.fallbacks[0].print
			}
			in := Input{Placement: tc.placement, Clusters: []Cluster{a, cluster("b")}, Rows: map[string]atoll.RowSpec{"a": row}, WhenUnfit: tc.unfit, Now: now}
			d := Schedule(in)
			if v, _ := d.Verdict("a"); v.Outcome != tc.want || v.Word != tc.word {
				t.Errorf("its row: %s (%s), want %s (%s)", v, v.Word, tc.want, tc.word)
			}
			if v, _ := d.Verdict("b"); tc.want == Kept && tc.placement.MaxClusters == 1 && v.Outcome == Placed {
				t.Errorf("it is replaced although it stays: %s", v)
			}
			in.Rows = nil
			d = Schedule(in)
			if v, _ := d.Verdict("a"); v.Outcome != Out {
				t.Errorf("newcomers: %s", v)
			}
		})
	}
}
