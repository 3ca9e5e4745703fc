package delivery

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/tunnel"
)

// TestTunnelMessagesAreBounded: an agent does not have the hub hold for a tunnel what a
// session's frame may be.
func TestTunnelMessagesAreBounded(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	a := h.newAgent(id, "one")
	a.dialled = func(id string) {
		stream, err := pb.NewTunnelClient(a.conn).Open(metadata.AppendToOutgoingContext(t.Context(), session.DialKey, id))
		if err == nil {
			err = stream.Send(wrapperspb.Bytes(make([]byte, 8<<20)))
		}
		if err != nil {
			t.Logf("the agent gets %v", err)
		}
	}
	a.connectSession()
	testwait.UntilTrue(t, "the session begins", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	conn, err := h.DialCluster(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(testwait.HangLimit))
	if n, err := conn.Read(make([]byte, tunnel.PieceMost+1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a tunnel with a piece that is larger than the window: %d bytes and %v", n, err)
	}
	if h.sessions.getByUID(uid) == nil {
		t.Error("its session is over")
	}
}

// A request for a tunnel that is given up before the agent got it is dropped.
func TestAbandonedTunnelRequestsAreDropped(t *testing.T) {
	s := &agentSession{senderRunning: true, ended: make(chan struct{})}
	s.tunnels.supported = true
	g := &Gateway{sessions: &sessionTable{byUID: map[string]*agentSession{"tokyo": s}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10_000 {
		if _, err := g.DialCluster(ctx, "tokyo"); err == nil {
			t.Fatal("a tunnel came")
		}
	}
	if n := len(s.queue.dials); n > 0 || s.tunnels.hasAny() {
		t.Errorf("%d requests are queued although their callers have gone", n)
	}
}

// Nothing of a tunnel is kept after its end, whether it was requested or not.
func TestUnusedTunnelsAreForgotten(t *testing.T) {
	h, a, uid := newTunnelledHub(t, func(c net.Conn) { echoBytes(c) })
	round := func() {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 25 {
					if conn, err := h.DialCluster(t.Context(), uid); err != nil {
						t.Error(err)
					} else {
						_, _ = conn.Write([]byte("x"))
						_, _ = conn.Read(make([]byte, 1))
						conn.Close()
					}
					if _, pump, err := a.openTunnel("made-up"); err == nil {
						_ = pump()
					}
				}
			})
		}
		all.Wait()
		testwait.UntilTrue(t, "all tunnels are forgotten", func() bool {
			s := h.sessions.getByUID(uid)
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.tunnels.hasAny()
		})
	}
	round()
	before := runtime.NumGoroutine()
	for range 4 {
		round()
	}
	testwait.UntilTrue(t, "no goroutine is left of them", func() bool { return runtime.NumGoroutine() <= before+10 })
}

// An agent that keeps opening tunnels without requests is disconnected. Other agents are
// not.
func TestFloodOfUnrequestedTunnels(t *testing.T) {
	h, a, _ := newTunnelledHub(t, echoBytes)
	otherUID, otherID := h.createCluster("oslo")
	other := h.newAgent(otherID, "other")
	other.connectSession()
	testwait.UntilTrue(t, "the other session begins", func() bool { return other.checkLocked(func() bool { return other.welcome != nil }) })
	opened := 0
	for ; opened < 3000 && !isClosed(a.closed); opened++ {
		if _, pump, err := a.openTunnel("made-up"); err == nil {
			_ = pump() // it is refused
		}
	}
	if opened == 3000 {
		t.Error("it may go on for ever")
	}
	if h.sessions.getByUID(otherUID) == nil {
		t.Error("another agent is cut off too")
	}
	a.stop()
	a.conn.Close()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
