package delivery

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// sendRemembered what the agent stores, in two frames.
func (a *testAgent) sendRemembered(bundles ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bundles {
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: &pb.Remembered{Tombstones: []*pb.RememberedTombstone{{Bundle: b}}}}}})
	}
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: &pb.Remembered{Complete: true}}}})
}

// An agent is asked for the removals that it remembers before it gets orders.
func TestOrdersWaitForRememberedRemovals(t *testing.T) {
	remembered := make(chan Remembered, 4)
	h := newTestHub(t, func(o *Options) {
		o.Restore = &testRestore{recalling: true, remembered: remembered}
	})
	uid, id := h.createCluster("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	a := h.newAgent(id, "one")
	a.connectSession()
	testwait.UntilTrue(t, "it is asked", func() bool { return a.checkLocked(func() bool { return a.frames["Recall"] == 1 }) })
	a.sendRemembered("x", "y")
	r := <-remembered
	if r.Cluster != "tokyo" || r.UID != uid || len(r.Tombstones) != 2 || r.Settled == nil {
		t.Fatalf("remembered %+v", r)
	}
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r2", 2)})
	a.reportStatus("nothing", atoll.RowStatus{State: atoll.RowRemoved}) // answered, so the stream lives
	testwait.UntilTrue(t, "it is heard", func() bool { return a.checkLocked(func() bool { return a.core.CountUnacknowledged() == 0 }) })
	if a.checkLocked(func() bool { return a.frames["Upsert"]+a.frames["DigestQuery"] > 0 }) {
		t.Error("orders flow before it is settled")
	}
	r.Settled()
	testwait.UntilTrue(t, "orders flow", a.holdsManifest("b", "r2", 2))
	a.sendRemembered("z") // without a request
	r.Settled()
	a.cutStream()
	a.connectSession()
	testwait.UntilTrue(t, "it is asked again", func() bool { return a.checkLocked(func() bool { return a.frames["Recall"] == 1 }) })
	a.sendRemembered()
	if again := <-remembered; len(again.Tombstones) != 0 {
		t.Errorf("an answer without a request counts: %+v", again)
	}
}

// TestHoldingHubRecallsRemovals so that people can see what a decision would mean, and
// sends nothing to sessions from before the decision.
func TestHoldingHubRecallsRemovals(t *testing.T) {
	remembered := make(chan Remembered, 4)
	h := newTestHub(t, func(o *Options) { o.Restore.(*testRestore).remembered = remembered })
	st := h.hub.Load().DeepCopy()
	st.Rewound = &enginev1.Rewound{Since: metav1.NewTime(time.Now()), Reason: "restored"}
	h.hub.Store(st)
	uid, id := h.createCluster("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	a := h.newAgent(id, "one")
	a.connectSession()
	testwait.UntilTrue(t, "it is asked", func() bool { return a.checkLocked(func() bool { return a.frames["Recall"] == 1 }) })
	a.sendRemembered("x")
	if r := <-remembered; len(r.Tombstones) != 1 || r.Settled != nil {
		t.Errorf("remembered %+v", r)
	}
	accepted := st.DeepCopy()
	accepted.Rewound.Accepted = "members"
	h.hub.Store(accepted)
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r2", 2)})
	a.reportStatus("nothing", atoll.RowStatus{State: atoll.RowRemoved})
	testwait.UntilTrue(t, "it is heard", func() bool { return a.checkLocked(func() bool { return a.core.CountUnacknowledged() == 0 }) })
	if a.checkLocked(func() bool { return a.frames["Upsert"] > 0 }) {
		t.Error("a session from before the decision gets orders")
	}
	h.ResetSessions("the hub goes on")
	<-a.closed
	a.connectSession()
	testwait.UntilTrue(t, "orders flow in the next", a.holdsManifest("b", "r2", 2))
}
