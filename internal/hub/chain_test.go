package hub

import (
	"fmt"
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

func TestStartsAreChained(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var st enginev1.HubState
	for i := range chainLimit + 5 {
		st = appendStart(st, start{id: fmt.Sprint("id", i), revision: int64(i * 10)}, now)
	}
	if len(st.Chain) != chainLimit || st.Chain[0].ID != "id5" || st.Chain[chainLimit-1].Revision != int64((chainLimit+4)*10) {
		t.Fatalf("chain of %d, from %+v to %+v", len(st.Chain), st.Chain[0], st.Chain[len(st.Chain)-1])
	}
	if st.Rewound != nil {
		t.Fatal("an ordinary start holds")
	}
}

func TestARestoredHubHoldsUntilItIsTold(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	st := appendStart(enginev1.HubState{}, start{id: "a", revision: 7, restored: "restored from a backup"}, now)
	if st.Rewound == nil || st.Rewound.Accepted != "" || !st.Rewound.Since.Time.Equal(now) {
		t.Fatalf("after a restore: %+v", st.Rewound)
	}
	later := rewound(st, "an agent saw a newer state", now.Add(time.Hour))
	if later.Rewound.Reason != "restored from a backup" || !later.Rewound.Since.Time.Equal(now) {
		t.Fatalf("a second proof took the first one's place: %+v", later.Rewound)
	}
	later.Rewound.Accepted = "hub"
	again := rewound(later, "restored once more", now.Add(2*time.Hour))
	if again.Rewound.Accepted != "" || again.Rewound.Reason != "restored once more" {
		t.Fatalf("a rewind after a decision: %+v", again.Rewound)
	}
}
