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
