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
		c := newCluster(name)
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
		{"clean", v1alpha1.PlacementSpec{}, []Cluster{going("a", v1alpha1.ClusterClean), newCluster("b")}, false, false},
		{"orphan", v1alpha1.PlacementSpec{}, []Cluster{going("a", v1alpha1.ClusterOrphan), newCluster("b")}, true, false},
		{"the only one", v1alpha1.PlacementSpec{}, []Cluster{going("a", v1alpha1.ClusterClean)}, false, true},
		{"chosen", v1alpha1.PlacementSpec{MaxClusters: 1}, []Cluster{going("a", v1alpha1.ClusterClean), newCluster("b")}, false, false},
		{"of a group", v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
			{AffinityName: "one", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
			{AffinityName: "two", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
		}}, []Cluster{going("a", v1alpha1.ClusterOrphan), newCluster("b")}, true, false},
		{"a minimum that cannot be had", v1alpha1.PlacementSpec{SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByCluster, MinGroups: 2}}},
			[]Cluster{going("a", v1alpha1.ClusterClean), newCluster("b")}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := CompilePlacement(tc.placement)
			row := atoll.RowSpec{UID: newCluster("a").UID, Phase: atoll.RowActive, Revision: "r", PlacementFingerprint: f.placementFingerprint}
			if f.HasGroups() {
				row.PlacementFingerprint = f.affinityGroups[0].placementFingerprint
			}
			d := DecidePlacement(Input{Placement: tc.placement, Clusters: tc.clusters, Rows: map[string]atoll.RowSpec{"a": row}, Now: now})
			v, _ := d.FindVerdict("a")
			if v.Outcome != OutcomeLeaves || v.RowReason != atoll.ReasonClusterRemoved || v.Orphan != tc.orphan {
				t.Errorf("its row: %s (%s), orphan %t", v, v.RowReason, v.Orphan)
			}
			if d.NoFit != tc.noFit {
				t.Errorf("no cluster fits: %t, want %t", d.NoFit, tc.noFit)
			}
			row.Phase = atoll.RowRemoving
			d = DecidePlacement(Input{Placement: tc.placement, Clusters: tc.clusters, Rows: map[string]atoll.RowSpec{"a": row}, Now: now})
			if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeOut || v.Orphan != tc.orphan {
				t.Errorf("its row on the way out: %s, orphan %t", v, v.Orphan)
			}
		})
	}
}

// A row in a cluster under a cleaning removal stays until that is confirmed, whatever the policy's
// whenUnfit; edits in the meantime take effect. A cluster that is given up keeps all.
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
		word      atoll.Reason
	}{
		{"clean", clean, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, OutcomeKept, atoll.ReasonUnfit},
		{"whenUnfit Remove", clean, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"the best one is wanted", clean, "", v1alpha1.PlacementSpec{MaxClusters: 1}, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"of a group", clean, "", grouped, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"edited", clean, "", edited, v1alpha1.UnfitKeep, OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"given up", v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "p", Force: true}, "p", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, OutcomeKept, atoll.ReasonUnfit},
		{"confirmed", confirmed, "p", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, OutcomeLeaves, atoll.ReasonClusterRemoved},
		{"confirmed, and the leading hub has not looked", confirmed, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"another plan was found", confirmed, "q", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"the confirmation is taken back", clean, "p", v1alpha1.PlacementSpec{}, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"orphan", v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, "", v1alpha1.PlacementSpec{}, v1alpha1.UnfitKeep, OutcomeLeaves, atoll.ReasonClusterRemoved},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := CompilePlacement(tc.placement)
			a := held(tc.removal, tc.found)
			row := atoll.RowSpec{UID: a.UID, Phase: atoll.RowActive, Revision: "r", PlacementFingerprint: f.placementFingerprint}
			if f.HasGroups() {
				row.PlacementFingerprint = f.affinityGroups[0].placementFingerprint
			}
			in := Input{Placement: tc.placement, Clusters: []Cluster{a, newCluster("b")}, Rows: map[string]atoll.RowSpec{"a": row}, WhenUnfit: tc.unfit, Now: now}
			d := DecidePlacement(in)
			if v, _ := d.FindVerdict("a"); v.Outcome != tc.want || v.RowReason != tc.word {
				t.Errorf("its row: %s (%s), want %s (%s)", v, v.RowReason, tc.want, tc.word)
			}
			if v, _ := d.FindVerdict("b"); tc.want == OutcomeKept && tc.placement.MaxClusters == 1 && v.Outcome == OutcomePlaced {
				t.Errorf("it is replaced although it stays: %s", v)
			}
			in.Rows = nil
			d = DecidePlacement(in)
			if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeOut {
				t.Errorf("newcomers: %s", v)
			}
		})
	}
}

// A row that was leaving with its cluster, and has lost its place to others since, leaves for another reason once the
// cluster stays in the fleet.
func TestARemovalThatIsCalledOffIsNoReason(t *testing.T) {
	placement := v1alpha1.PlacementSpec{MaxClusters: 1}
	for was, want := range map[string]string{"ClusterRemoved: it leaves the fleet": "PlacementEdited", "Evicted: a taint": "Evicted: a taint"} {
		a, b := newCluster("a"), newCluster("b")
		in := Input{Placement: placement, Clusters: []Cluster{a, b}, Now: now, Rows: map[string]atoll.RowSpec{
			"a": {UID: a.UID, Phase: atoll.RowLeaving, Revision: "r", Reason: was}, "b": {UID: b.UID, Phase: atoll.RowActive, Revision: "r"},
		}}
		d := DecidePlacement(in)
		v, _ := d.FindVerdict("a")
		if got := (atoll.RowReason{Reason: v.RowReason, Text: v.Reason}).String(); v.Outcome != OutcomeLeaves || got != want {
			t.Errorf("after %q it leaves because %q, want %q (%s)", was, got, want, v)
		}
	}
}
