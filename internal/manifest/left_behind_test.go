package manifest_test

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// To move an item to another Bundle is no wish that it goes: where a cluster leaves the fleet
// with what runs in it before the move came there, the item stays.
func TestMovedItemsStayInALeavingCluster(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	is := func(yes bool) func(string) bool { return func(uid string) bool { return yes && uid == "b2" } }
	for _, tc := range []struct {
		name         string
		row          atoll.RowSpec
		movedTo      []string
		here, leaves bool
		tombstones   int
		movesTo      int
	}{
		{"orphaned with its cluster", atoll.RowSpec{Phase: atoll.RowRemoving, Orphan: true, Reason: string(atoll.ReasonClusterRemoved)}, []string{"b2"}, false, false, 0, 0},
		{"deleted by users", atoll.RowSpec{Phase: atoll.RowRemoving, Orphan: true, Reason: string(atoll.ReasonClusterRemoved)}, nil, false, false, 1, 0},
		{"cleaned", atoll.RowSpec{Phase: atoll.RowRemoving, Reason: string(atoll.ReasonClusterRemoved)}, []string{"b2"}, false, false, 1, 0},
		{"its cluster leaves", atoll.RowSpec{Phase: atoll.RowLeaving, Reason: string(atoll.ReasonClusterRemoved)}, []string{"b2"}, false, true, 0, 0},
		{"the other is here", atoll.RowSpec{Phase: atoll.RowActive}, []string{"b2"}, true, true, 1, 1},
		{"the other is not here", atoll.RowSpec{Phase: atoll.RowActive}, []string{"b2"}, false, false, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := manifest.BuildManifest(manifest.ManifestInput{
				Row: tc.row, HasActiveRow: is(tc.here), ClusterLeaving: tc.leaves,
				Content: &atoll.Content{Removal: v1alpha1.RemoveDelete, Tombstones: []atoll.Tombstone{{Key: key, UID: "t", MovedTo: tc.movedTo}}},
			})
			if len(m.Tombstones) != tc.tombstones || tc.tombstones == 1 && len(m.Tombstones[0].MovedTo) != tc.movesTo {
				t.Errorf("it says %+v", m.Tombstones)
			}
		})
	}
}
