package delivery

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/tunnel"
)

// serveTunnels makes the agent open each requested tunnel, and serve it.
func (a *testAgent) serveTunnels(serve func(net.Conn)) {
	a.dialled = func(id string) {
		conn, pump, err := a.openTunnel(id)
		if err != nil {
			a.h.t.Errorf("open a tunnel: %v", err)
			return
		}
		go serve(conn)
		_ = pump() // serve gets the error
	}
}

// openTunnel a tunnel under an id.
func (a *testAgent) openTunnel(id string) (net.Conn, func() error, error) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(a.h.t.Context(), session.DialKey, id))
	stream, err := a.share.OpenStream(func(o ...grpc.CallOption) (tunnel.ClientStream, error) {
		return pb.NewTunnelClient(a.conn).Open(ctx, o...)
	})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	conn := tunnel.New(stream, cancel, "hub")
	return conn, func() error { defer cancel(); return conn.PumpMessages() }, nil
}

func echoBytes(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// newTunnelledHub is a hub with one agent that serves tunnels.
func newTunnelledHub(t *testing.T, serve func(net.Conn), adjust ...func(*Options)) (h *testHub, a *testAgent, uid string) {
	h = newTestHub(t, adjust...)
	uid, id := h.createCluster("tokyo")
	a = h.newAgent(id, "one")
	a.serveTunnels(serve)
	a.connectSession()
	testwait.UntilTrue(t, "the session begins", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	return h, a, uid
}

func TestTunnelsCarryBothWaysAtOnce(t *testing.T) {
	h, _, uid := newTunnelledHub(t, echoBytes)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			conn, err := h.DialCluster(t.Context(), uid)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			sent := make([]byte, 2<<20)
			_, _ = rand.Read(sent)
			go func() { _, _ = conn.Write(sent) }()
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("what came back differs: %v", err)
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

// Bytes for a tunnel that is not read are held back at the agent. The agent's reports and
// other tunnels continue.
func TestUnreadTunnelBlocksNothingElse(t *testing.T) {
	var sent sync.Map
	h, a, uid := newTunnelledHub(t, func(c net.Conn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err != nil || first[0] == 'e' {
			echoBytes(c)
			return
		}
		total := 0
		for {
			n, err := c.Write(make([]byte, 64<<10))
			if total += n; err != nil {
				return
			}
			sent.Store("total", total)
		}
	})
	stuck, err := h.DialCluster(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if _, err := stuck.Write([]byte("f")); err != nil {
		t.Fatal(err)
	}
	h.rows.setRows("web", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "an order passes", a.holdsManifest("web", "r1", 1))
	a.reportReady("web")
	testwait.UntilTrue(t, "its report passes", func() bool {
		row, ok := h.rows.Get("web", "tokyo")
		return ok && row.Status != nil && row.Status.Applied
	})
	other, err := h.DialCluster(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Write([]byte("echo")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 3)); err != nil {
		t.Fatalf("another tunnel: %v", err)
	}
	if total, _ := sent.Load("total"); total != nil && total.(int) > 4*tunnelBytes {
		t.Errorf("the agent sent %d bytes that are not read; the hub's window is %d", total, tunnelBytes)
	}
}

func TestTunnelsEndWithTheSession(t *testing.T) {
	for what, end := range map[string]func(*testHub, *testAgent){
		"the agent goes": func(_ *testHub, a *testAgent) { a.stop(); _ = a.conn.Close() },
		"the cluster is denied": func(h *testHub, _ *testAgent) {
			c, _ := h.clusters.Get("tokyo")
			c = c.DeepCopy()
			c.Spec.Accepted = false
			if err := h.client.Update(h.t.Context(), c); err != nil {
				h.t.Fatal(err)
			}
		},
		"another agent takes over": func(h *testHub, a *testAgent) {
			h.newAgent(a.id, "two").connectSession()
		},
	} {
		t.Run(what, func(t *testing.T) {
			h, a, uid := newTunnelledHub(t, echoBytes)
			conn, err := h.DialCluster(t.Context(), uid)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			end(h, a)
			_ = conn.SetReadDeadline(time.Now().Add(testwait.HangLimit))
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the tunnel lives: %v", err)
			}
		})
	}
}

// Idle tunnels are closed for both ends, and no others.
func TestIdleTunnelsAreClosed(t *testing.T) {
	const idle = 2 * time.Second
	ended := make(chan time.Time, 2)
	h, _, uid := newTunnelledHub(t, func(c net.Conn) { echoBytes(c); ended <- time.Now() }, func(o *Options) { o.TunnelIdle = idle })
	quiet, err := h.DialCluster(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	began := time.Now()
	busy, err := h.DialCluster(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	said, again := make([]byte, 1), time.NewTicker(idle/20)
	defer again.Stop()
	var closed time.Time
	for closed.IsZero() {
		select {
		case closed = <-ended:
		case <-again.C:
		}
		if _, err := busy.Write(said); err != nil {
			t.Fatalf("a tunnel on which something is said is closed after %s: %v", time.Since(began), err)
		}
		if _, err := io.ReadFull(busy, said); err != nil {
			t.Fatalf("a tunnel on which something is said is closed after %s: %v", time.Since(began), err)
		}
		if time.Since(began) > time.Minute {
			t.Fatal("a tunnel on which nothing is said stays open")
		}
	}
	if took := closed.Sub(began); took < idle*9/10 {
		t.Errorf("a tunnel is closed after %s, on which nothing may be said for %s", took, idle)
	}
	_ = quiet.SetReadDeadline(time.Now().Add(testwait.HangLimit))
	if _, err := quiet.Read(said); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the hub it is open: %v", err)
	}
	testwait.UntilTrue(t, "it is forgotten", func() bool {
		s := h.sessions.getByUID(uid)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.tunnels.openConns) == 1
	})
}

func TestErrorsOfTunnelRequests(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	if _, err := h.DialCluster(t.Context(), uid); status.Code(err) != codes.NotFound {
		t.Errorf("of a cluster that is away: %v", err)
	}
	a := h.newAgent(id, "old")
	a.core = session.NewAgent(session.AgentOptions{Version: "old", Instance: "old", Object: a.storedObject}, session.Memory{})
	a.connectSession()
	testwait.UntilTrue(t, "the session begins", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	if _, err := h.DialCluster(t.Context(), uid); status.Code(err) != codes.Unimplemented {
		t.Errorf("of an agent that knows none: %v", err)
	}
	a.cutStream()

	// One that is asked and does nothing.
	b := h.newAgent(id, "slow")
	b.connectSession()
	testwait.UntilTrue(t, "the session begins", func() bool { return b.checkLocked(func() bool { return b.welcome != nil }) })
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range maxTunnels {
		waiting.Go(func() {
			if _, err := h.DialCluster(ctx, uid); !errors.Is(err, context.Canceled) {
				t.Errorf("of one that waits until it is not wanted: %v", err)
			}
		})
	}
	testwait.UntilTrue(t, "the agent is asked", func() bool { return b.checkLocked(func() bool { return b.frames["Dial"] == maxTunnels }) })
	if _, err := h.DialCluster(t.Context(), uid); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("of an agent with many requests: %v", err)
	}
	cancel()
	waiting.Wait()
	if s := h.sessions.getByUID(uid); s == nil || s.tunnels.hasAny() {
		t.Error("requests without callers are kept")
	}
}

func TestUnrequestedTunnelsAreRefused(t *testing.T) {
	h, a, uid := newTunnelledHub(t, echoBytes)
	_, otherID := h.createCluster("oslo")
	other := h.newAgent(otherID, "other")
	ids := make(chan string, 1)
	a.dialled = func(id string) { ids <- id }
	other.connectSession()
	testwait.UntilTrue(t, "the other session begins", func() bool { return other.checkLocked(func() bool { return other.welcome != nil }) })

	refused := func(what string, by *testAgent, id string) {
		t.Helper()
		_, pump, err := by.openTunnel(id)
		if err == nil {
			err = pump()
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("an id that was made up", a, "made-up")
	refused("no id", a, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := h.DialCluster(ctx, uid); err == nil {
			c.Close()
			t.Error("a tunnel came")
		}
	}()
	id := <-ids
	refused("another agent's", other, id)
	cancel()
	<-done
	refused("one that is not waited for any more", a, id)
}
