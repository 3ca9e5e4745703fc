package delivery

import (
	"context"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/tunnel"
)

// slowLink to the hub: bytes a second each way, with as little in flight as routers keep.
func slowLink(t testing.TB, h *testHub, bytes int) grpc.DialOption {
	t.Helper()
	const buffer = 32 << 10
	small := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer) })
	}
	l, err := (&net.ListenConfig{Control: small}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(dst, src net.Conn) {
		defer dst.Close()
		defer src.Close()
		limit := rate.NewLimiter(rate.Limit(bytes), 8<<10)
		b := make([]byte, 4<<10)
		for {
			n, err := src.Read(b)
			if n > 0 {
				_ = limit.WaitN(t.Context(), n)
				if _, err := dst.Write(b[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := (&net.Dialer{Control: small}).DialContext(t.Context(), "tcp", h.addr)
			if err != nil {
				c.Close()
				return
			}
			_ = c.(*net.TCPConn).SetWriteBuffer(buffer)
			_ = to.(*net.TCPConn).SetWriteBuffer(buffer)
			go pass(to, c)
			go pass(c, to)
		}
	}()
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", l.Addr().String())
		if err == nil {
			tunnel.LimitUnsent(conn)
		}
		return conn, err
	})
}

// agentDialOptions has a connection of the windows and buffers that agents' have.
func agentDialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithReadBufferSize(8 << 10), grpc.WithWriteBufferSize(33 << 10), grpc.WithSharedWriteBuffer(true),
		grpc.WithStaticStreamWindowSize(256 << 10), grpc.WithStaticConnWindowSize(512 << 10),
	}
}

// BenchmarkOrdersDuringTunnelTraffic returns how long an order takes to an agent whose link
// carries 20 Mbit/s, of which tunnels take all that they can.
func BenchmarkOrdersDuringTunnelTraffic(b *testing.B) {
	for _, c := range []struct {
		what    string
		tunnels int
		down    bool
	}{
		{"beside nothing", 0, true}, {"beside a body down", 1, true}, {"beside 50 bodies down", 50, true},
		{"beside a body up", 1, false}, {"beside 50 bodies up", 50, false},
	} {
		b.Run(c.what, func(b *testing.B) {
			h := newTestHub(b)
			uid, id := h.createCluster("tokyo")
			a := h.newAgent(id, "one")
			a.by = append(agentDialOptions(), slowLink(b, h, 20_000_000/8))
			a.serveTunnels(func(c net.Conn) {
				defer c.Close()
				first := make([]byte, 1)
				if _, err := io.ReadFull(c, first); err != nil {
					return
				}
				if first[0] == 'd' {
					_, _ = io.Copy(io.Discard, c)
					return
				}
				writeForever(c)
			})
			a.connectSession()
			testwait.UntilTrue(b, "the session begins", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
			for range c.tunnels {
				conn, err := h.DialCluster(b.Context(), uid)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				if c.down {
					_, _ = conn.Write([]byte("d"))
					go writeForever(conn)
				} else {
					_, _ = conn.Write([]byte("u"))
					go func() { _, _ = io.Copy(io.Discard, conn) }()
				}
			}
			var down, up []time.Duration
			generation := int64(0)
			from := time.Now()
			for time.Since(from) < time.Second { // until the link is full
				<-time.After(10 * time.Millisecond)
			}
			for b.Loop() {
				generation++
				began := time.Now()
				h.rows.setRows("web", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", generation)})
				testwait.UntilTrue(b, "the order passes", a.holdsManifest("web", "r1", generation))
				down = append(down, time.Since(began))
				began = time.Now()
				a.reportReady("web")
				testwait.UntilTrue(b, "its report passes", func() bool {
					row, ok := h.rows.Get("web", "tokyo")
					return ok && row.Status != nil && row.Status.Generation == generation
				})
				up = append(up, time.Since(began))
			}
			for what, all := range map[string][]time.Duration{"order": down, "report": up} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "ms-"+what+"-p50")
				b.ReportMetric(float64(all[len(all)-1].Milliseconds()), "ms-"+what+"-most")
			}
		})
	}
}

// writeForever writes bytes until the other end stops reading.
func writeForever(c net.Conn) {
	chunk := make([]byte, tunnel.PieceMost)
	for {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}
