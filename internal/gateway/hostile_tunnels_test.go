package gateway

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/tunnel"
)

// TestAPieceOfATunnelIsSmall: an agent does not have the hub hold for a tunnel what a
// session's frame may be.
func TestAPieceOfATunnelIsSmall(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("tokyo")
	a := h.agent(id, "one")
	a.dialled = func(id string) {
		stream, err := pb.NewTunnelClient(a.conn).Open(metadata.AppendToOutgoingContext(t.Context(), session.DialKey, id))
		if err == nil {
			err = stream.Send(wrapperspb.Bytes(make([]byte, 8<<20)))
		}
		if err != nil {
			t.Logf("the agent is told %v", err)
		}
	}
	a.connect()
	eventually(t, "the session begins", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	conn, err := h.Dial(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := conn.Read(make([]byte, tunnel.PieceMost+1)); err == nil {
		t.Errorf("%d bytes of a piece that is larger than the window were taken", n)
	}
	if h.sessions.of(uid) == nil {
		t.Error("its session is over")
	}
}

// TestAnAgentThatReadsNothingIsAskedNoMoreThanIsWanted: who stops waiting for a tunnel
// leaves nothing behind, although the agent was not asked yet.
func TestAnAgentThatReadsNothingIsAskedNoMoreThanIsWanted(t *testing.T) {
	s := &stream{sending: true, ended: make(chan struct{})}
	s.tunnels.can = true
	g := &Gateway{sessions: &sessions{byUID: map[string]*stream{"tokyo": s}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10_000 {
		if _, err := g.Dial(ctx, "tokyo"); err == nil {
			t.Fatal("a tunnel came")
		}
	}
	if n := len(s.queue.dials); n > 0 || s.tunnels.used() {
		t.Errorf("%d are to be asked for that nobody waits for", n)
	}
}

// TestTunnelsComeAndGo: nothing of them is left, neither of those that are used nor of
// those that nobody asked for.
func TestTunnelsComeAndGo(t *testing.T) {
	h, a, uid := tunnelled(t, func(c net.Conn) { echo(c) })
	round := func() {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 25 {
					if conn, err := h.Dial(t.Context(), uid); err != nil {
						t.Error(err)
					} else {
						_, _ = conn.Write([]byte("x"))
						_, _ = conn.Read(make([]byte, 1))
						conn.Close()
					}
					if _, pump, err := a.open("made-up"); err == nil {
						_ = pump()
					}
				}
			})
		}
		all.Wait()
		eventually(t, "all tunnels are forgotten", func() bool {
			s := h.sessions.of(uid)
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.tunnels.used()
		})
	}
	round()
	before := runtime.NumGoroutine()
	for range 4 {
		round()
	}
	eventually(t, "no goroutine is left of them", func() bool { return runtime.NumGoroutine() <= before+10 })
}

// TestAnAgentThatFloodsOpens: one that goes on to open tunnels that nobody asked for is cut
// off, and others are not.
func TestAnAgentThatFloodsOpens(t *testing.T) {
	h, a, _ := tunnelled(t, echo)
	otherUID, otherID := h.cluster("oslo")
	other := h.agent(otherID, "other")
	other.connect()
	eventually(t, "the other session begins", func() bool { return other.see(func() bool { return other.welcome != nil }) })
	opened := 0
	for ; opened < 3000 && !isOver(a.closed); opened++ {
		if _, pump, err := a.open("made-up"); err == nil {
			_ = pump() // it is refused
		}
	}
	if opened == 3000 {
		t.Error("it may go on for ever")
	}
	if h.sessions.of(otherUID) == nil {
		t.Error("another agent is cut off too")
	}
	a.stop()
	a.conn.Close()
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
