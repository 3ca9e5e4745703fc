package schedule

import "testing"

// A constraint without a field and a label spreads over clusters, as one that names that field.
func TestSpreadWithoutAFieldIsOverClusters(t *testing.T) {
	fleet := []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}
	for name, tc := range map[string]struct {
		constraint string
		chosen     int
	}{
		"maxGroups":           {"{maxGroups: 2}", 2},
		"minGroups":           {"{minGroups: 3}", 3},
		"minGroups, too many": {"{minGroups: 4}", 0},
		"nothing":             {"{}", 3},
	} {
		p := parsePlacement(t, "{spreadConstraints: ["+tc.constraint+"]}")
		d, chosen := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: fleet, Now: now}), 0
		for _, v := range d.Verdicts {
			if v.Outcome == OutcomePlaced {
				chosen++
			}
		}
		if chosen != tc.chosen || d.Choice.Spread[0].SpreadField != "cluster" {
			t.Errorf("%s: %d clusters by %q, want %d", name, chosen, d.Choice.Spread[0].SpreadField, tc.chosen)
		}
	}
	named, short := parsePlacement(t, "{spreadConstraints: [{spreadByField: cluster, maxGroups: 2}]}"), parsePlacement(t, "{spreadConstraints: [{maxGroups: 2}]}")
	if CompilePlacement(named).placementFingerprint != CompilePlacement(short).placementFingerprint {
		t.Error("the field that is the default is an edit")
	}
	if short.SpreadConstraints[0].SpreadByField != "" {
		t.Error("the argument was changed")
	}
}
