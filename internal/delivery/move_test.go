package delivery

import (
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// isQuiet reports whether the cluster's session could be moved.
func (h *testHub) isQuiet(uid string) bool {
	s := h.sessions.getByUID(uid)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.senderRunning && s.core != nil && s.core.IsSynced() && s.queue.isEmpty()
}

func TestAgentsMoveToAnotherHub(t *testing.T) {
	h, _ := newHAHub(t)
	tokyo, a := h.connectAgent("tokyo")
	oslo, b := h.connectAgent("oslo")
	testwait.UntilTrue(t, "all is compared", func() bool { return h.isQuiet(tokyo) && h.isQuiet(oslo) })
	if n := h.MoveAgents(1, "10.0.0.2:6444", func(cluster string) bool { return cluster == "oslo" }); n != 1 {
		t.Fatalf("%d agents are asked", n)
	}
	<-b.closed
	if !b.checkLocked(func() bool { return b.frames["Move"] == 1 && b.refused == nil }) {
		t.Errorf("the agent that prefers the other hub gets %v, and is refused with %v", b.frames, b.refused)
	}
	b.connectSession() // it does not reach the other hub, and is let be for a while
	testwait.UntilTrue(t, "it is back", func() bool { return h.isQuiet(oslo) })
	if n := h.MoveAgents(5, "10.0.0.2:6444", func(string) bool { return true }); n != 1 {
		t.Errorf("%d agents are asked, with the one that came back", n)
	}
	<-a.closed
	movable := func(at time.Time) bool { return slices.Contains(h.sessions.listMovable(at), h.sessions.getByUID(oslo)) }
	if movable(time.Now()) || !movable(time.Now().Add(moveRetryAfter)) {
		t.Error("an agent that came back is asked at once, or never again")
	}
	if n := len(h.sessions.moveRequestedAt); n > 0 {
		t.Errorf("%d agents are remembered that were asked long ago", n)
	}
}

func TestBusyAgentsDoNotMove(t *testing.T) {
	h, _ := newHAHub(t)
	uid, a := h.connectAgent("tokyo")
	testwait.UntilTrue(t, "all is compared", func() bool { return h.isQuiet(uid) })
	a.reportStatus("b1", atoll.RowStatus{Generation: 3, Content: "c", State: atoll.RowReady, Applied: true})
	s := h.sessions.getByUID(uid)
	testwait.UntilTrue(t, "the report waits for its row", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.earlyReports) == 1
	})
	if n := h.MoveAgents(1, "10.0.0.2:6444", func(string) bool { return true }); n != 0 {
		t.Errorf("%d agents are asked", n)
	}
}
