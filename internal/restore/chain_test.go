package restore_test

import (
	"fmt"
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/restore"
)

var noon = time.Unix(1_800_000_000, 0)

func TestStartsAreChained(t *testing.T) {
	var st enginev1.HubState
	for i := range restore.MaxChainLinks + 5 {
		st = restore.AppendStart(st, restore.Start{ID: fmt.Sprint("id", i), Revision: int64(i * 10)}, noon)
	}
	last := st.Chain[len(st.Chain)-1]
	if len(st.Chain) != restore.MaxChainLinks || st.Chain[0].ID != "id5" || last.Revision != int64((restore.MaxChainLinks+4)*10) {
		t.Fatalf("chain of %d, from %+v to %+v", len(st.Chain), st.Chain[0], last)
	}
	if st.Rewound != nil {
		t.Fatal("an ordinary start holds")
	}
}

func TestAnAppendedStartEndsWhatBeganIt(t *testing.T) {
	st := restore.BeginStart(restore.AppendStart(enginev1.HubState{}, restore.Start{ID: "a", Revision: 7}, noon), "b")
	if st.Beginning != "b" || len(st.Chain) != 1 {
		t.Fatalf("beginning is %q while b begins: %+v", st.Beginning, st)
	}
	st = restore.AppendStart(restore.BeginStart(st, "c"), restore.Start{ID: "c", Revision: 9}, noon)
	if st.Beginning != "" || len(st.Chain) != 2 || st.Chain[1].ID != "c" {
		t.Fatalf("after c began in b's place: %+v", st)
	}
}

func TestARestoredHubHoldsUntilItIsTold(t *testing.T) {
	st := restore.AppendStart(enginev1.HubState{}, restore.Start{ID: "a", Revision: 7, Restored: "restored from a backup"}, noon)
	if st.Rewound == nil || st.Rewound.Accepted != "" || !st.Rewound.Since.Time.Equal(noon) {
		t.Fatalf("after a restore: %+v", st.Rewound)
	}
	later := restore.HoldHub(st, "an agent saw a newer state", noon.Add(time.Hour))
	if later.Rewound.Reason != "restored from a backup" || !later.Rewound.Since.Time.Equal(noon) {
		t.Fatalf("a second proof took the first one's place: %+v", later.Rewound)
	}
	later.Rewound.Accepted = restore.AcceptedHub
	again := restore.HoldHub(later, "restored once more", noon.Add(2*time.Hour))
	if again.Rewound.Accepted != "" || again.Rewound.Reason != "restored once more" {
		t.Fatalf("a rewind after a decision: %+v", again.Rewound)
	}
}

func TestABumpedStoreShowsByItself(t *testing.T) {
	chain := []enginev1.ChainLink{{ID: "a", Revision: 40}, {ID: "b", Revision: 100}}
	for _, c := range []struct {
		name             string
		newest, revision int64
		look, hold       bool
	}{
		{"the next start", 180, 181, false, false},
		{"after much work", 1_500_000_090, 1_500_000_100, true, false},
		{"restored with a bump", 150, 1_000_000_150, true, true},
	} {
		if got := restore.NeedsKeyScan(chain, c.revision); got != c.look {
			t.Errorf("%s: Suspicious = %v, want %v", c.name, got, c.look)
		}
		if why := restore.RevisionJumpReason(c.newest, c.revision); (why != "") != c.hold {
			t.Errorf("%s: Jumped = %q, want a reason: %v", c.name, why, c.hold)
		}
	}
	first := []enginev1.ChainLink{{ID: "a", Revision: 40}}
	if at := int64(40 + restore.MaxRevisionJump); restore.NeedsKeyScan(first, at) || !restore.NeedsKeyScan(first, at+1) {
		t.Error("the second start is not looked at beyond the jump")
	}
	if restore.RevisionJumpReason(40, 40+restore.MaxRevisionJump) != "" || restore.RevisionJumpReason(40, 41+restore.MaxRevisionJump) == "" {
		t.Error("a store is held at the jump, or not beyond it")
	}
	if restore.NeedsKeyScan(nil, 1_000_000_150) {
		t.Error("a store without a start is looked at")
	}
}
