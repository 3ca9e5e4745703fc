package delivery

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// setRemoval states how a cluster leaves the fleet; nil: it stays.
func (h *testHub) setRemoval(cluster string, r *v1alpha1.ClusterRemoval) {
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

func (a *testAgent) isToldToLeave() bool { return a.checkLocked(func() bool { return a.leave != nil }) }

// awaitSettled waits until the hub has nothing more to send to the agent, except Leave.
func (a *testAgent) awaitSettled(cluster string, every time.Duration) {
	a.h.t.Helper()
	idle := 0
	a.checkLocked(func() bool { idle = a.frames["Idle"]; return true })
	a.h.setCheckIn(cluster, every)
	testwait.UntilTrue(a.h.t, "the hub has said all", func() bool {
		return a.checkLocked(func() bool { return a.leave != nil || a.frames["Idle"] > idle })
	})
}

// sendLeft reports to the hub that nothing is held.
func (a *testAgent) sendLeft(behind ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Left{Left: &pb.Left{Behind: behind}}}})
}

func TestAgentLeavesAfterItsLastRow(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectAgent("tokyo")
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r", 1)})
	testwait.UntilTrue(t, "the order is stored", a.holdsManifest("b1", "r", 1))
	a.sendInventory()
	h.setRemoval("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	a.awaitSettled("tokyo", time.Minute)
	a.sendLeft() // without a request
	a.reportReady("b1")
	testwait.UntilTrue(t, "what was said is heard", func() bool { return h.rows.countWrites() > 0 })
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": {UID: uid, Generation: 2, Revision: "r", Phase: atoll.RowRemoving}})
	testwait.UntilTrue(t, "the removal is stored", a.holdsManifest("b1", "remove-r", 2))
	a.awaitSettled("tokyo", 2*time.Minute)
	if a.isToldToLeave() {
		t.Fatal("ordered to leave while a row exists")
	}
	h.rows.removeRow("b1", "tokyo")
	testwait.UntilTrue(t, "the agent is ordered to leave", a.isToldToLeave)
	if !a.checkLocked(func() bool { return a.leave.GetClean() }) {
		t.Error("not ordered to remove namespaces")
	}
	select {
	case cluster := <-h.departed:
		t.Fatalf("deleted by an answer without a request: %s", cluster)
	default:
	}
	a.sendLeft("Namespace shop")
	if got := <-h.departed; got != "tokyo Namespace shop" {
		t.Errorf("forgotten: %q", got)
	}
	<-a.closed
	if a.refused.GetReason() != "Unknown" {
		t.Errorf("the agent does not get that it was removed: %v", a.refused)
	}
	a.connectSession()
	<-a.closed
	if a.refused.GetReason() != "Unknown" {
		t.Errorf("when it comes back: %v", a.refused)
	}
}

// A revoked removal starts a new session without the state of the old one. A new mode of
// removal does so, too.
func TestRevokedRemovalEndsTheSession(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
	h.setRemoval("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	testwait.UntilTrue(t, "ordered to leave", a.isToldToLeave)
	h.setRemoval("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan})
	<-a.closed
	a.connectSession()
	testwait.UntilTrue(t, "ordered to leave again", a.isToldToLeave)
	if a.checkLocked(func() bool { return a.leave.GetClean() }) {
		t.Error("ordered to remove namespaces")
	}
	h.setRemoval("tokyo", nil)
	<-a.closed
	a.connectSession()
	testwait.UntilTrue(t, "it is welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	a.sendLeft()
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(h.uidOf("tokyo"), "r", 5)})
	testwait.UntilTrue(t, "orders come again", a.holdsManifest("b1", "r", 5))
	if a.isToldToLeave() || len(h.departed) > 0 {
		t.Errorf("ordered %t, deleted %d", a.isToldToLeave(), len(h.departed))
	}
}

// A cluster that is given up is not asked for anything.
func TestForcedRemovalDoesNotInvolveTheAgent(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
	a.sendInventory()
	h.setRemoval("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Force: true})
	a.awaitSettled("tokyo", time.Minute)
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(h.uidOf("tokyo"), "r", 1)})
	testwait.UntilTrue(t, "orders still come", a.holdsManifest("b1", "r", 1))
	h.rows.removeRow("b1", "tokyo")
	a.reportStatus("none", atoll.RowStatus{Generation: 1, State: atoll.RowReady})
	h.rows.setRows("b2", map[string]atoll.RowSpec{"tokyo": activeSpec(h.uidOf("tokyo"), "r", 1)})
	testwait.UntilTrue(t, "and others", a.holdsManifest("b2", "r", 1))
	if a.isToldToLeave() {
		t.Error("ordered to leave")
	}
}

// The reason of a blocked leave is passed on if the agent was ordered to leave.
func TestReasonOfABlockedLeaveIsReported(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
	says := func(waits string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Leaving{Leaving: &pb.Leaving{Waits: waits, Since: 7}}}})
	}
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(h.uidOf("tokyo"), "r", 1)})
	testwait.UntilTrue(t, "the order is stored", a.holdsManifest("b1", "r", 1))
	says("unasked")
	a.reportReady("b1")
	testwait.UntilTrue(t, "what was said is heard", func() bool { return h.rows.countWrites() > 0 })
	h.rows.removeRow("b1", "tokyo")
	h.setRemoval("tokyo", &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	testwait.UntilTrue(t, "ordered to leave", a.isToldToLeave)
	says("a finalizer")
	if got := <-h.waits; got != "tokyo a finalizer 7" {
		t.Errorf("reported: %q", got)
	}
	says("")
	if got := <-h.waits; got != "tokyo  7" {
		t.Errorf("reported: %q", got)
	}
}

func (h *testHub) uidOf(cluster string) string {
	c, _ := h.clusters.Get(cluster)
	return string(c.UID)
}
