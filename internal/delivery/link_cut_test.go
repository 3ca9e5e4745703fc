package delivery

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"atoll.dev/atoll/internal/testwait"
)

// TestLinksAreCutUnderTunnels: in the middle of what they carry both ways, of an upgraded
// connection as of a body. Its user gets an error, and nothing of it is left.
func TestLinksAreCutUnderTunnels(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	var mu sync.Mutex
	var link []net.Conn
	cuttable := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.addr)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			link = append(link, c)
		}
		return c, err
	})
	var agents sync.WaitGroup
	round := func() {
		a := h.newAgent(id, "one")
		a.by = []grpc.DialOption{cuttable}
		a.dialled = func(id string) {
			agents.Go(func() {
				if conn, pump, err := a.openTunnel(id); err == nil {
					agents.Go(func() { writeForever(conn) })
					agents.Go(func() { _, _ = io.Copy(io.Discard, conn) })
					_ = pump() // it is cut off
				}
			})
		}
		a.connectSession()
		testwait.UntilTrue(t, "the session begins", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
		var users, reading sync.WaitGroup
		for range 20 {
			conn, err := h.DialCluster(t.Context(), uid)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(testwait.HangLimit))
			users.Go(func() { writeForever(conn) })
			reading.Add(1)
			users.Go(func() {
				_, err := io.ReadFull(conn, make([]byte, 100<<10))
				reading.Done()
				if err != nil {
					t.Errorf("before the cut: %v", err)
				}
				if _, err := io.Copy(io.Discard, conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the reader gets %v", err)
				}
				conn.Close()
			})
		}
		reading.Wait()
		mu.Lock()
		for _, c := range link {
			_ = c.(*net.TCPConn).SetLinger(0) // as a machine that is gone
			c.Close()
		}
		link = nil
		mu.Unlock()
		users.Wait()
		a.stop()
		a.conn.Close()
		agents.Wait()
		testwait.UntilTrue(t, "the hub has seen it", func() bool { return h.sessions.getByUID(uid) == nil && h.metrics.connections.Load() == 0 })
	}
	round()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for range 4 {
		round()
	}
	testwait.UntilTrue(t, "nothing is left", func() bool { return runtime.NumGoroutine() <= goroutines+3 && openFiles(t) <= files+3 })
}
