package atoll_test

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestTombstoneConfirmed(t *testing.T) {
	tomb := atoll.Tombstone{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, UID: "u1"}
	active := atoll.RowSpec{Generation: 4, Revision: "r2", Phase: atoll.RowActive}
	behind := atoll.RowSpec{Generation: 4, Revision: "r1", Phase: atoll.RowActive}
	removing := atoll.RowSpec{Generation: 4, Revision: "r2", Phase: atoll.RowRemoving}
	for _, c := range []struct {
		name   string
		spec   atoll.RowSpec
		status *atoll.RowStatus
		want   bool
	}{
		{"never reported", active, nil, false},
		{"reported something else", active, &atoll.RowStatus{Generation: 4, DoneTombstones: []string{"apps/Deployment/shop/web u0"}}, false},
		{"carried out", active, &atoll.RowStatus{Generation: 4, DoneTombstones: []string{"apps/Deployment/shop/web u1"}}, true},
		{"carried out before it came back", active, &atoll.RowStatus{Generation: 3, DoneTombstones: []string{"apps/Deployment/shop/web u1"}}, false},
		{"carried out with many", active, &atoll.RowStatus{Generation: 4, AllTombstonesDone: true}, true},
		{"many carried out, of an older order", active, &atoll.RowStatus{Generation: 3, AllTombstonesDone: true}, false},
		{"many carried out, of a revision without it", behind, &atoll.RowStatus{Generation: 4, AllTombstonesDone: true}, false},
		{"many carried out, of an order before the one without memory", active, &atoll.RowStatus{Generation: 4, State: atoll.RowFailed, Reason: atoll.ReasonAgentMemoryFull, AllTombstonesDone: true}, false},
		{"carried out, of an order before the one over a frame", active, &atoll.RowStatus{Generation: 4, State: atoll.RowFailed, Reason: atoll.ReasonOrderTooLarge, DoneTombstones: []string{"apps/Deployment/shop/web u1"}}, false},
		{"carried out, in a row that failed", active, &atoll.RowStatus{Generation: 4, State: atoll.RowFailed, AllTombstonesDone: true}, true},
		{"removing, not done", removing, &atoll.RowStatus{Generation: 4, State: atoll.RowProgressing}, false},
		{"removed before it came back", removing, &atoll.RowStatus{Generation: 3, State: atoll.RowRemoved}, false},
		{"removed", removing, &atoll.RowStatus{Generation: 4, State: atoll.RowRemoved}, true},
		{"active again", active, &atoll.RowStatus{Generation: 4, State: atoll.RowRemoved}, false},
	} {
		if got := tomb.IsDoneInRow("r2", c.spec, c.status); got != c.want {
			t.Errorf("%s: Confirmed = %v, want %v", c.name, got, c.want)
		}
	}
}
