package gateway

import (
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// quiet tells whether the cluster's session could be moved.
func (h *testHub) quiet(uid string) bool {
	s := h.sessions.of(uid)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.sending && s.core != nil && s.core.Synced() && s.queue.empty()
}

func TestAgentsAreSentOnToAnotherHub(t *testing.T) {
	h, _ := newBeside(t)
	tokyo, a := h.connected("tokyo")
	oslo, b := h.connected("oslo")
	eventually(t, "all is compared", func() bool { return h.quiet(tokyo) && h.quiet(oslo) })
	if n := h.SendOn(1, "10.0.0.2:6444", func(cluster string) bool { return cluster == "oslo" }); n != 1 {
		t.Fatalf("%d agents are asked", n)
	}
	<-b.closed
	if !b.see(func() bool { return b.frames["Move"] == 1 && b.refused == nil }) {
		t.Errorf("the one that the other hub is first for is told %v, and refused with %v", b.frames, b.refused)
	}
	b.connect() // it does not reach the other hub, and is let be for a while
	eventually(t, "it is back", func() bool { return h.quiet(oslo) })
	if n := h.SendOn(5, "10.0.0.2:6444", func(string) bool { return true }); n != 1 {
		t.Errorf("%d agents are asked, with the one that came back", n)
	}
	<-a.closed
	movable := func(at time.Time) bool { return slices.Contains(h.sessions.movable(at), h.sessions.of(oslo)) }
	if movable(time.Now()) || !movable(time.Now().Add(askAgain)) {
		t.Error("who came back is asked at once, or never again")
	}
	if n := len(h.sessions.asked); n > 0 {
		t.Errorf("%d agents are remembered that were asked long ago", n)
	}
}

func TestAnAgentWithSomethingInHandIsNotSentOn(t *testing.T) {
	h, _ := newBeside(t)
	uid, a := h.connected("tokyo")
	eventually(t, "all is compared", func() bool { return h.quiet(uid) })
	a.report("b1", atoll.RowStatus{Generation: 3, Content: "c", State: atoll.RowReady, Applied: true})
	s := h.sessions.of(uid)
	eventually(t, "the report waits for its row", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.early) == 1
	})
	if n := h.SendOn(1, "10.0.0.2:6444", func(string) bool { return true }); n != 0 {
		t.Errorf("%d agents are asked", n)
	}
}
