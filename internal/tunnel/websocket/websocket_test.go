package websocket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	gorilla "github.com/gorilla/websocket"

	"atoll.dev/atoll/internal/testwait"
)

func dialServer(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// startServer gives both ends of a WebSocket.
func startServer(t *testing.T) (agent, hub net.Conn, address string) {
	t.Helper()
	came := make(chan net.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := UpgradeRequest(w, r); err == nil {
			came <- conn
		}
	}))
	t.Cleanup(server.Close)
	address = server.Listener.Addr().String()
	agent, err := WebSocketDialer{Dial: dialServer, Plain: true}.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	hub = <-came
	t.Cleanup(func() { agent.Close(); hub.Close() })
	return agent, hub, address
}

func TestBytesPassBothWays(t *testing.T) {
	agent, hub, _ := startServer(t)
	go func() { _, _ = io.Copy(hub, hub) }()
	sent := make([]byte, 3<<20)
	_, _ = rand.Read(sent)
	go func() { _, _ = agent.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(agent, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("what came back differs: %v", err)
	}
}

// TestAReadMayBeBrokenOff: and goes on where it was, as the agents' server needs it.
func TestAReadMayBeBrokenOff(t *testing.T) {
	agent, hub, _ := startServer(t)
	_ = hub.SetReadDeadline(time.Unix(1, 0))
	if _, err := hub.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after its deadline: %v", err)
	}
	_ = hub.SetReadDeadline(time.Time{})
	if _, err := agent.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := hub.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestEitherEndEndsIt(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		agent, hub, _ := startServer(t)
		agent.Close()
		if _, err := hub.Read(make([]byte, 1)); err == nil {
			t.Fatal("the other end goes on")
		}
		agent, hub, _ = startServer(t)
		hub.Close()
		if _, err := agent.Read(make([]byte, 1)); err == nil {
			t.Fatal("the other end goes on")
		}
	}
	// Servers of HTTP have two each, which go when the test ends.
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+40+10; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, from %d", runtime.NumGoroutine(), before)
		}
	}
}

// TestWhatNoAgentSends ends the connection.
func TestWhatNoAgentSends(t *testing.T) {
	for what, send := range map[string]func(*gorilla.Conn) error{
		"a text": func(ws *gorilla.Conn) error { return ws.WriteMessage(gorilla.TextMessage, []byte("hello")) },
		"too large a piece": func(ws *gorilla.Conn) error {
			return ws.WriteMessage(gorilla.BinaryMessage, make([]byte, 4*messageMost))
		},
		"garbage": func(ws *gorilla.Conn) error {
			_, err := ws.NetConn().Write(bytes.Repeat([]byte("\xff"), 1000))
			return err
		},
		"what is not masked": func(ws *gorilla.Conn) error {
			_, err := ws.NetConn().Write([]byte{0x82, 1, 'x'})
			return err
		},
	} {
		came := make(chan net.Conn, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if conn, err := UpgradeRequest(w, r); err == nil {
				came <- conn
			}
		}))
		ws, _, err := gorilla.DefaultDialer.Dial("ws://"+server.Listener.Addr().String()+Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(ws); err != nil {
			t.Logf("%s: %v", what, err)
		}
		hub := <-came
		_ = hub.SetReadDeadline(time.Now().Add(testwait.HangLimit))
		if n, err := io.Copy(io.Discard, hub); errors.Is(err, os.ErrDeadlineExceeded) || n > 4*messageMost {
			t.Errorf("%s: %d bytes were taken, and %v", what, n, err)
		}
		// The reader gets its error before the connection is closed for the writer.
		testwait.UntilTrue(t, what+": the connection is closed", func() bool {
			_, err := hub.Write([]byte("x"))
			return err != nil
		})
		ws.Close()
		server.Close()
	}
}

// A proxy that answers without an end is cut off, before the agent has no memory left.
func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	sent := make(chan int, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			sent <- 0
			return
		}
		defer conn.Close()
		total, line := 0, []byte("HTTP/1.1 101 Switching Protocols\r\nX-Long: ")
		for err == nil && total < 1<<30 {
			var n int
			n, err = conn.Write(line)
			total, line = total+n, bytes.Repeat([]byte("x"), 64<<10)
		}
		sent <- total
	}()
	_, err = WebSocketDialer{Dial: dialServer, Plain: true}.Open(t.Context(), listener.Addr().String())
	if !errors.Is(err, errLongAnswer) {
		t.Errorf("the answer ends with %v", err)
	}
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes of the answer were taken", n)
	}
}
