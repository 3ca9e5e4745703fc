package rewind_test

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rewind"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

var web = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func told(t *testing.T, bundle string, generation, at int64, tomb *atoll.Tombstone) *pb.RememberedTombstone {
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
	m, unread := rewind.MemoryOf([]*pb.RememberedTombstone{
		told(t, "b", 3, 30, &atoll.Tombstone{Key: web, UID: "u1", Cause: atoll.CauseDeleted}),
		told(t, "b", 4, 40, &atoll.Tombstone{Key: web, UID: "u2", Cause: atoll.CauseMoved}),
		told(t, "b", 4, 40, &atoll.Tombstone{Key: web, UID: "u3", Cause: atoll.CauseUnused}),
		told(t, "c", 9, 90, nil), told(t, "c", 7, 70, nil),
		{Bundle: "d", Tombstone: []byte("{")},
	})
	if len(m.Deleted) != 1 || m.Deleted[0] != (rewind.Deleted{Key: web, UID: "u1", At: 30}) {
		t.Errorf("deleted: %+v", m.Deleted)
	}
	if len(m.Rows) != 1 || m.Rows["c"] != (rewind.Removed{Generation: 9, At: 90}) {
		t.Errorf("rows: %+v", m.Rows)
	}
	if unread != 1 {
		t.Errorf("%d unread", unread)
	}
}

func TestForgottenRemovals(t *testing.T) {
	since := time.Unix(1000, 0)
	row := atoll.RowSpec{Generation: 5, Phase: atoll.RowActive, Since: 100}
	with := func(f func(*atoll.RowSpec)) atoll.RowSpec { r := row; f(&r); return r }
	for _, c := range []struct {
		name    string
		row     atoll.RowSpec
		removed rewind.Removed
		want    bool
	}{
		{"removed after the snapshot", row, rewind.Removed{Generation: 8, At: 500}, true},
		{"removed, the row changed since the restore", with(func(r *atoll.RowSpec) { r.Generation = 20 }), rewind.Removed{Generation: 8, At: 500}, true},
		{"removed before it came back, in the snapshot", row, rewind.Removed{Generation: 3, At: 50}, false},
		{"placed anew after the restore", with(func(r *atoll.RowSpec) { r.Since = 1500 }), rewind.Removed{Generation: 8, At: 500}, false},
		{"going anyway", with(func(r *atoll.RowSpec) { r.Phase = atoll.RowRemoving }), rewind.Removed{Generation: 8, At: 500}, false},
		{"held already", with(func(r *atoll.RowSpec) { r.Recall = &atoll.Recall{} }), rewind.Removed{Generation: 8, At: 500}, false},
	} {
		if got := rewind.Forgotten(c.row, c.removed, since); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	held := rewind.HoldRow(row, rewind.Removed{Generation: 8, At: 500}, "p", 30, time.Unix(1200, 0))
	if held.Phase != atoll.RowRemoving || held.Generation != 31 || held.Recall == nil || held.Recall.At != 500 || row.Recall != nil {
		t.Errorf("held: %+v", held)
	}
}

func TestARemovalThatFollowsFromItsItemsIsNotHeldTwice(t *testing.T) {
	content := &atoll.Content{Items: []atoll.Item{{Key: web, UID: "u1"}, {UID: "dep", Dependency: true}}}
	if !rewind.Covered(content, map[string]bool{"u1": true}) {
		t.Error("all that was chosen is held")
	}
	if rewind.Covered(content, map[string]bool{"dep": true}) || rewind.Covered(&atoll.Content{}, nil) {
		t.Error("nothing that was chosen is held")
	}
}

func TestMembersAreAskedAsLongAsTheyRemember(t *testing.T) {
	st := &enginev1.HubState{Rewound: &enginev1.Rewound{Since: metav1.NewTime(noon)}}
	if rewind.Recalling(nil, noon) || rewind.Recalling(st, noon) {
		t.Error("asked before a decision")
	}
	st.Rewound.Accepted = rewind.AcceptedHub
	if rewind.Recalling(st, noon) {
		t.Error("asked though the hub's word counts")
	}
	st.Rewound.Accepted = rewind.AcceptedMembers
	if !rewind.Recalling(st, noon.Add(29*24*time.Hour)) || rewind.Recalling(st, noon.Add(31*24*time.Hour)) {
		t.Error("asked for another time than 30 days")
	}
}
