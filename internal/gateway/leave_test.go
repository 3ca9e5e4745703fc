package gateway

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// removal states how a cluster leaves the fleet; nil: it stays.
func (h *testHub) removal(cluster string, r *v1alpha1.ClusterRemoval) {
	h.t.Helper()
	var c v1alpha1.Cluster
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: cluster}, &c); err != nil {
		h.t.Fatal(err)
	}
	c.Spec.Removal = r
	if err := h.client.Update(h.t.Context(), &c); err != nil {
		h.t.Fatal(err)
	}
}

func (a *testAgent) told() bool { return a.see(func() bool { return a.leave != nil }) }

// settled: the hub has nothing more to say to the agent of a cluster, unless it has told it to
// leave. It changes how often the agent is to check in, which is said last.
func (a *testAgent) settled(cluster string, every time.Duration) {
	a.h.t.Helper()
	idle := 0
	a.see(func() bool { idle = a.frames["Idle"]; return true })
	a.h.checksIn(cluster, every)
	eventually(a.h.t, "the hub has said all", func() bool {
		return a.see(func() bool { return a.leave != nil || a.frames["Idle"] > idle })
	})
}

// sayLeft tells the hub that nothing is held.
func (a *testAgent) sayLeft(behind ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Left{Left: &pb.Left{Behind: behind}}}})
}

func TestAnAgentIsToldToLeaveWhenNoRowIsLeft(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connected("tokyo")
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r", 1)})
	eventually(t, "the order is stored", a.holds("b1", "r", 1))
	a.tellInventory()
	h.removal("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	a.settled("tokyo", time.Minute)
	a.sayLeft() // nobody asked
	a.ready("b1")
	eventually(t, "what was said is heard", func() bool { return h.rows.written() > 0 })
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": {UID: uid, Generation: 2, Revision: "r", Phase: atoll.RowRemoving}})
	eventually(t, "the removal is stored", a.holds("b1", "remove-r", 2))
	a.settled("tokyo", 2*time.Minute)
	if a.told() {
		t.Fatal("told to leave while a row is there")
	}
	h.rows.remove("b1", "tokyo")
	eventually(t, "the agent is told to leave", a.told)
	if !a.see(func() bool { return a.leave.GetClean() }) {
		t.Error("not told to remove namespaces")
	}
	select {
	case who := <-h.departed:
		t.Fatalf("forgotten by a word that nobody asked for: %s", who)
	default:
	}
	a.sayLeft("Namespace shop")
	if got := <-h.departed; got != "tokyo Namespace shop" {
		t.Errorf("forgotten: %q", got)
	}
	<-a.closed
	if a.refused.GetReason() != "Unknown" {
		t.Errorf("it is not told that it was removed: %v", a.refused)
	}
	a.connect()
	<-a.closed
	if a.refused.GetReason() != "Unknown" {
		t.Errorf("when it comes back: %v", a.refused)
	}
}

// What was taken back begins with a session of its own, in which nothing is known of the
// one before; so does another mode.
func TestARemovalThatIsTakenBackEndsTheSession(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	h.removal("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	eventually(t, "told to leave", a.told)
	h.removal("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan})
	<-a.closed
	a.connect()
	eventually(t, "told to leave again", a.told)
	if a.see(func() bool { return a.leave.GetClean() }) {
		t.Error("told to remove namespaces")
	}
	h.removal("tokyo", nil)
	<-a.closed
	a.connect()
	eventually(t, "it is welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	a.sayLeft()
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(h.uidOf("tokyo"), "r", 5)})
	eventually(t, "orders come again", a.holds("b1", "r", 5))
	if a.told() || len(h.departed) > 0 {
		t.Errorf("told %t, forgotten %d", a.told(), len(h.departed))
	}
}

// A cluster that is given up is not asked for anything.
func TestAForcedRemovalAsksNobody(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	a.tellInventory()
	h.removal("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Force: true})
	a.settled("tokyo", time.Minute)
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(h.uidOf("tokyo"), "r", 1)})
	eventually(t, "orders still come", a.holds("b1", "r", 1))
	h.rows.remove("b1", "tokyo")
	a.report("none", atoll.RowStatus{Generation: 1, State: atoll.RowReady})
	h.rows.set("b2", map[string]atoll.RowSpec{"tokyo": active(h.uidOf("tokyo"), "r", 1)})
	eventually(t, "and others", a.holds("b2", "r", 1))
	if a.told() {
		t.Error("told to leave")
	}
}

// What keeps an agent from leaving is handed on, if it was asked to leave.
func TestWhatAnAgentWaitsForIsToldOn(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	says := func(waits string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Leaving{Leaving: &pb.Leaving{Waits: waits, Since: 7}}}})
	}
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(h.uidOf("tokyo"), "r", 1)})
	eventually(t, "the order is stored", a.holds("b1", "r", 1))
	says("unasked")
	a.ready("b1")
	eventually(t, "what was said is heard", func() bool { return h.rows.written() > 0 })
	h.rows.remove("b1", "tokyo")
	h.removal("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	eventually(t, "told to leave", a.told)
	says("a finalizer")
	if got := <-h.waits; got != "tokyo a finalizer 7" {
		t.Errorf("told on: %q", got)
	}
	says("")
	if got := <-h.waits; got != "tokyo  7" {
		t.Errorf("told on: %q", got)
	}
}

func (h *testHub) uidOf(cluster string) string {
	c, _ := h.clusters.Get(cluster)
	return string(c.UID)
}
