package restore_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/restore"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

var webKey = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func rememberedTombstone(t *testing.T, bundle string, generation, at int64, tomb *atoll.Tombstone) *pb.RememberedTombstone {
	t.Helper()
	r := &pb.RememberedTombstone{Bundle: bundle, Generation: generation, At: at}
	if tomb != nil {
		body, err := json.Marshal(tomb)
		if err != nil {
			t.Fatal(err)
		}
		r.Tombstone = body
	}
	return r
}

func TestOnlyUsersDeletionsAndTheLastRemovalsCount(t *testing.T) {
	m, unread := restore.ParseMemory([]*pb.RememberedTombstone{
		rememberedTombstone(t, "b", 3, 30, &atoll.Tombstone{Key: webKey, UID: "u1", Cause: atoll.CauseDeleted}),
		rememberedTombstone(t, "b", 4, 40, &atoll.Tombstone{Key: webKey, UID: "u2", Cause: atoll.CauseMoved}),
		rememberedTombstone(t, "b", 4, 40, &atoll.Tombstone{Key: webKey, UID: "u3", Cause: atoll.CauseUnused}),
		rememberedTombstone(t, "c", 9, 90, nil), rememberedTombstone(t, "c", 7, 70, nil),
		rememberedTombstone(t, "c", 9, 95, nil), // the same removal, by a later report
		{Bundle: "d", Tombstone: []byte("{")},
		rememberedTombstone(t, "d", 1, 10, &atoll.Tombstone{Key: webKey, Cause: atoll.CauseDeleted}), // it has no UID
	})
	if len(m.Deleted) != 1 || m.Deleted[0] != (restore.DeletedTemplate{Key: webKey, UID: "u1", RemovedAt: 30}) {
		t.Errorf("deleted: %+v", m.Deleted)
	}
	if len(m.Rows) != 1 || m.Rows["c"] != (restore.RemovedRow{Generation: 9, RemovedAt: 95}) {
		t.Errorf("rows: %+v", m.Rows)
	}
	if unread != 2 {
		t.Errorf("%d unread", unread)
	}
}

// Deleted templates are listed by key, then by UID.
func TestDeletedTemplatesAreSorted(t *testing.T) {
	apiKey := webKey
	apiKey.Name = "api"
	m, _ := restore.ParseMemory([]*pb.RememberedTombstone{
		rememberedTombstone(t, "b", 1, 10, &atoll.Tombstone{Key: webKey, UID: "u1", Cause: atoll.CauseDeleted}),
		rememberedTombstone(t, "b", 1, 10, &atoll.Tombstone{Key: apiKey, UID: "u3", Cause: atoll.CauseDeleted}),
		rememberedTombstone(t, "b", 1, 10, &atoll.Tombstone{Key: apiKey, UID: "u2", Cause: atoll.CauseDeleted}),
	})
	var uids []string
	for _, d := range m.Deleted {
		uids = append(uids, d.UID)
	}
	if want := []string{"u2", "u3", "u1"}; !slices.Equal(uids, want) {
		t.Errorf("%v, want %v", uids, want)
	}
}

func TestForgottenRemovals(t *testing.T) {
	since := time.Unix(1000, 0)
	row := atoll.RowSpec{Generation: 5, Phase: atoll.RowActive, Since: 100}
	with := func(f func(*atoll.RowSpec)) atoll.RowSpec { r := row; f(&r); return r }
	for _, c := range []struct {
		name    string
		row     atoll.RowSpec
		removed restore.RemovedRow
		want    bool
	}{
		{"removed after the snapshot", row, restore.RemovedRow{Generation: 8, RemovedAt: 500}, true},
		{"removed, the row changed since the restore", with(func(r *atoll.RowSpec) { r.Generation = 20 }), restore.RemovedRow{Generation: 8, RemovedAt: 500}, true},
		{"removed before it came back, in the snapshot", row, restore.RemovedRow{Generation: 3, RemovedAt: 50}, false},
		{"removed after the snapshot, of the same generation", row, restore.RemovedRow{Generation: 5, RemovedAt: 101}, true},
		{"removed in the second of its creation", row, restore.RemovedRow{Generation: 5, RemovedAt: 100}, false},
		{"a later generation by an earlier clock", row, restore.RemovedRow{Generation: 6, RemovedAt: 50}, true},
		{"placed again in the second of the restore", with(func(r *atoll.RowSpec) { r.Since = 1000 }), restore.RemovedRow{Generation: 8, RemovedAt: 500}, false},
		{"placed again after the restore", with(func(r *atoll.RowSpec) { r.Since = 1500 }), restore.RemovedRow{Generation: 8, RemovedAt: 500}, false},
		{"going anyway", with(func(r *atoll.RowSpec) { r.Phase = atoll.RowRemoving }), restore.RemovedRow{Generation: 8, RemovedAt: 500}, false},
		{"held already", with(func(r *atoll.RowSpec) { r.Recall = &atoll.RememberedRemoval{} }), restore.RemovedRow{Generation: 8, RemovedAt: 500}, false},
	} {
		if got := restore.IsRemovalForgotten(c.row, c.removed, since); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A held row keeps nothing of the move that it was in.
func TestHoldRow(t *testing.T) {
	row := atoll.RowSpec{
		UID: "uid-a", Generation: 5, Phase: atoll.RowActive, Since: 100, Reason: "NoCapacity", Orphan: true, GrownAt: 110, MovingSince: 120,
		HomeItems: []string{"web"}, ShrinkTo: map[string]int64{"web": 1}, Assigned: map[string]int64{"web": 2},
	}
	for _, c := range []struct{ member, floor, want int64 }{{8, 30, 31}, {40, 30, 41}, {3, 2, 6}} {
		want := atoll.RowSpec{
			UID: "uid-a", Generation: c.want, Phase: atoll.RowRemoving, Since: 1200, Assigned: map[string]int64{"web": 2},
			Recall: &atoll.RememberedRemoval{RemovedAt: 500, Placement: "p"},
		}
		got := restore.HoldForgottenRemoval(row, restore.RemovedRow{Generation: c.member, RemovedAt: 500}, "p", c.floor, time.Unix(1200, 0))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if row.Recall != nil {
		t.Error("the row itself changed")
	}
}

func TestDeletionNote(t *testing.T) {
	got := restore.DeletionNote(restore.DeletedTemplate{Key: webKey, UID: "u1", RemovedAt: 90}, "oslo")
	if want := atoll.RecalledDeleted + " 1970-01-01T00:01:30Z, says oslo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestARemovalThatFollowsFromItsItemsIsNotHeldTwice(t *testing.T) {
	content := &atoll.Content{Items: []atoll.Item{{Key: webKey, UID: "u1"}, {UID: "dep", Dependency: true}}}
	if !restore.AllItemsHeldBack(content, map[string]bool{"u1": true}) {
		t.Error("all that was chosen is held")
	}
	if restore.AllItemsHeldBack(content, map[string]bool{"dep": true}) || restore.AllItemsHeldBack(&atoll.Content{}, nil) {
		t.Error("nothing that was chosen is held")
	}
}

func TestMembersAreAskedAsLongAsTheyRemember(t *testing.T) {
	st := &enginev1.HubState{Rewound: &enginev1.Rewound{Since: metav1.NewTime(noon)}}
	if restore.IsRecalling(nil, noon) || restore.IsRecalling(st, noon) {
		t.Error("asked before a decision")
	}
	st.Rewound.Accepted = restore.AcceptedHub
	if restore.IsRecalling(st, noon) {
		t.Error("asked though the hub's word counts")
	}
	st.Rewound.Accepted = restore.AcceptedMembers
	if !restore.IsRecalling(st, noon.Add(29*24*time.Hour)) || restore.IsRecalling(st, noon.Add(31*24*time.Hour)) {
		t.Error("asked for another time than 30 days")
	}
}
