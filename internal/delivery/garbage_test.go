package delivery

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"
	"golang.org/x/net/http2"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/tunnel/websocket"
)

// garbagePeers are the kinds of garbage that connections send.
func garbagePeers(h *testHub) map[string]func(c net.Conn) {
	hello := func(c net.Conn, config *tls.Config) *tls.Conn {
		config.InsecureSkipVerify = true
		return tls.Client(c, config)
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		_, _ = rand.Read(b)
		return b
	}
	upgraded := func(c net.Conn, then func(*gorilla.Conn)) {
		d := gorilla.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, NetDialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
		if ws, _, err := d.Dial("wss://"+h.addr+websocket.Path, nil); err == nil {
			then(ws)
		}
	}
	return map[string]func(c net.Conn){
		"nothing":       func(net.Conn) {},
		"random bytes":  func(c net.Conn) { _, _ = c.Write(random(1000)) },
		"HTTP":          func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: hub\r\n\r\n") },
		"half a hello":  func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}) },
		"a hello alone": func(c net.Conn) { _ = hello(halfOpenConn{c}, &tls.Config{}).Handshake() },
		"no HTTP/2": func(c net.Conn) {
			_, _ = hello(c, &tls.Config{NextProtos: []string{"h2"}}).Write(random(1000))
		},
		"HTTP/2 and no more": func(c net.Conn) {
			_, _ = io.WriteString(hello(c, &tls.Config{NextProtos: []string{"h2"}}), http2.ClientPreface)
		},
		"half a request": func(c net.Conn) {
			_, _ = io.WriteString(hello(c, &tls.Config{NextProtos: []string{"http/1.1"}}), "GET / HTTP/1.1\r\nHost: h")
		},
		"a request with a body without end": func(c net.Conn) {
			_, _ = io.WriteString(hello(c, &tls.Config{}), "POST "+websocket.Path+" HTTP/1.1\r\nHost: hub\r\nContent-Length: 1000000\r\n\r\nx")
		},
		"a WebSocket of garbage": func(c net.Conn) {
			upgraded(c, func(ws *gorilla.Conn) { _ = ws.WriteMessage(gorilla.BinaryMessage, random(1000)) })
		},
		"a WebSocket that is broken": func(c net.Conn) {
			upgraded(c, func(ws *gorilla.Conn) { _, _ = ws.NetConn().Write(random(1000)) })
		},
		"a WebSocket of nothing": func(c net.Conn) { upgraded(c, func(*gorilla.Conn) {}) },
	}
}

// halfOpenConn is a connection by which only the first that is written goes, and nothing comes.
type halfOpenConn struct{ net.Conn }

func (halfOpenConn) Read([]byte) (int, error) { return 0, io.EOF }

func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the system does not tell which files are open")
	}
	return len(all)
}

// openStayingConns opens connections of garbage that stay open.
func openStayingConns(t *testing.T, h *testHub) (stays []net.Conn) {
	t.Helper()
	for what, send := range garbagePeers(h) {
		for range 10 {
			c, err := net.Dial("tcp", h.addr)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			stays = append(stays, c)
			_ = c.SetDeadline(time.Now().Add(queueLimit))
			send(c)
		}
	}
	return stays
}

// connectAgents and going are so many; done is closed when they are through.
func connectAgents(t *testing.T, h *testHub, total int) (done chan struct{}) {
	var all sync.WaitGroup
	each := total / len(garbagePeers(h)) / 20
	for range 20 {
		for what, send := range garbagePeers(h) {
			all.Go(func() {
				for range each {
					c, err := net.Dial("tcp", h.addr)
					if err != nil {
						t.Errorf("%s: %v", what, err)
						return
					}
					_ = c.SetDeadline(time.Now().Add(queueLimit))
					send(c)
					c.Close()
				}
			})
		}
	}
	done = make(chan struct{})
	go func() { all.Wait(); close(done) }()
	return done
}

// Ten thousand connections of garbage leave nothing behind, whether their peers close them
// or not. A connected agent is not affected.
func TestGarbageConnectionsLeaveNothingBehind(t *testing.T) {
	total := 10_000
	if testing.Short() {
		total = 600
	}
	h, a, uid := newTunnelledHub(t, echoBytes)
	// Work that is done once is not counted.
	for what, send := range garbagePeers(h) {
		c, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_ = c.SetDeadline(time.Now().Add(queueLimit))
		send(c)
		c.Close()
	}
	testwait.UntilTrue(t, "only the agent is connected", func() bool { return h.metrics.connections.Load() == 1 })
	runtime.GC()
	goroutines, files, heap := runtime.NumGoroutine(), openFiles(t), currentResources().heap

	stays := openStayingConns(t, h)
	done := connectAgents(t, h, total)
	var took []time.Duration
	for generation := int64(1); ; generation++ {
		began := time.Now()
		h.rows.setRows("web", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", generation)})
		testwait.UntilTrue(t, "an order passes", a.holdsManifest("web", "r1", generation))
		took = append(took, time.Since(began))
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	// The longest are those for which the machine had no time.
	slices.Sort(took)
	t.Logf("%d orders passed at the same time, half of them within %v, all within %v", len(took), took[len(took)/2], took[len(took)-1])
	if half := took[len(took)/2]; half > 5*time.Second {
		t.Errorf("half of the orders took more than %v", half)
	}
	for _, c := range stays {
		_ = c.SetDeadline(time.Now().Add(testwait.HangLimit))
		if _, err := io.Copy(io.Discard, c); err != nil && os.IsTimeout(err) {
			t.Errorf("the hub keeps a connection of garbage")
		}
		c.Close()
	}
	testwait.UntilTrue(t, "only the agent is connected", func() bool { return h.metrics.connections.Load() == 1 && h.metrics.websockets.Load() == 0 })
	left := func() string {
		return fmt.Sprintf("%d goroutines, from %d; %d files, from %d; %d KiB, from %d", runtime.NumGoroutine(), goroutines, openFiles(t), files, currentResources().heap>>10, heap>>10)
	}
	last := ""
	testwait.UntilTrue(t, "nothing is left", func() bool {
		last = left()
		return runtime.NumGoroutine() <= goroutines+5 && openFiles(t) <= files+5 && currentResources().heap < heap+4<<20
	})
	t.Log(last)
	if conn, err := h.DialCluster(t.Context(), uid); err != nil {
		t.Errorf("the agent that was there: %v", err)
	} else {
		conn.Close()
	}
}
