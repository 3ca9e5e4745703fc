package gateway

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// tell what the agent remembers, in two frames.
func (a *testAgent) tell(bundles ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range bundles {
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: &pb.Remembered{Tombstones: []*pb.RememberedTombstone{{Bundle: b}}}}}})
	}
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: &pb.Remembered{Complete: true}}}})
}

// TestNothingIsOrderedBeforeWhatIsRememberedIsSettled asks an agent first.
func TestNothingIsOrderedBeforeWhatIsRememberedIsSettled(t *testing.T) {
	told := make(chan Remembered, 4)
	h := newTestHub(t, func(o *Options) {
		o.Recalling = func() bool { return true }
		o.OnRemembered = func(r Remembered) { told <- r }
	})
	uid, id := h.cluster("tokyo")
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	a := h.agent(id, "one")
	a.connect()
	eventually(t, "it is asked", func() bool { return a.see(func() bool { return a.frames["Recall"] == 1 }) })
	a.tell("x", "y")
	r := <-told
	if r.Cluster != "tokyo" || r.UID != uid || len(r.Tombstones) != 2 || r.Settled == nil {
		t.Fatalf("told %+v", r)
	}
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r2", 2)})
	a.report("nothing", atoll.RowStatus{State: atoll.RowRemoved}) // answered, so the stream lives
	eventually(t, "it is heard", func() bool { return a.see(func() bool { return a.core.Unacknowledged() == 0 }) })
	if a.see(func() bool { return a.frames["Upsert"]+a.frames["DigestQuery"] > 0 }) {
		t.Error("orders flow before it is settled")
	}
	r.Settled()
	eventually(t, "orders flow", a.holds("b", "r2", 2))
	a.tell("z") // nobody asked
	r.Settled()
	a.cut()
	a.connect()
	eventually(t, "it is asked again", func() bool { return a.see(func() bool { return a.frames["Recall"] == 1 }) })
	a.tell()
	if again := <-told; len(again.Tombstones) != 0 {
		t.Errorf("what nobody asked for counts: %+v", again)
	}
}

// TestAHubThatHoldsAsksToo so that people can see what a decision would mean, and
// sends nothing to sessions from before the decision.
func TestAHubThatHoldsAsksToo(t *testing.T) {
	told := make(chan Remembered, 4)
	h := newTestHub(t, func(o *Options) { o.OnRemembered = func(r Remembered) { told <- r } })
	st := h.hub.Load().DeepCopy()
	st.Rewound = &enginev1.Rewound{Since: metav1.NewTime(time.Now()), Reason: "restored"}
	h.hub.Store(st)
	uid, id := h.cluster("tokyo")
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	a := h.agent(id, "one")
	a.connect()
	eventually(t, "it is asked", func() bool { return a.see(func() bool { return a.frames["Recall"] == 1 }) })
	a.tell("x")
	if r := <-told; len(r.Tombstones) != 1 || r.Settled != nil {
		t.Errorf("told %+v", r)
	}
	accepted := st.DeepCopy()
	accepted.Rewound.Accepted = "members"
	h.hub.Store(accepted)
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r2", 2)})
	a.report("nothing", atoll.RowStatus{State: atoll.RowRemoved})
	eventually(t, "it is heard", func() bool { return a.see(func() bool { return a.core.Unacknowledged() == 0 }) })
	if a.see(func() bool { return a.frames["Upsert"] > 0 }) {
		t.Error("a session from before the decision gets orders")
	}
	h.Reset("the hub goes on")
	<-a.closed
	a.connect()
	eventually(t, "orders flow in the next", a.holds("b", "r2", 2))
}
