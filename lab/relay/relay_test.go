package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
)

// silenceWindow is how long a test listens to be convinced that nothing comes. A
// longer one finds more, a shorter one never makes a sound relay fail.
const silenceWindow = 150 * time.Millisecond

// waitLimit bounds everything that should happen.
const waitLimit = testwait.HangLimit

// farEnd is the target of a link: it hands its side of every connection out.
type farEnd struct {
	listener net.Listener
	arrived  chan net.Conn
}

func newFar(t *testing.T) *farEnd {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &farEnd{listener: listener, arrived: make(chan net.Conn, 16)}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			f.arrived <- c
		}
	}()
	return f
}

func newTestLink(t *testing.T, target string) *Link {
	t.Helper()
	l, err := OpenLink(t.Context(), "127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// openPair opens a connection through the link and returns both ends.
func openPair(t *testing.T, l *Link, f *farEnd) (near, there net.Conn) {
	t.Helper()
	near, err := net.Dial("tcp", l.ListenAddress())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	select {
	case there = <-f.arrived:
	case <-time.After(waitLimit):
		t.Fatal("the connection did not reach the target")
	}
	t.Cleanup(func() { there.Close() })
	return near, there
}

// expectWord sends a word from one end and expects it at the other.
func expectWord(t *testing.T, from, to net.Conn, word string) {
	t.Helper()
	if _, err := from.Write([]byte(word)); err != nil {
		t.Fatalf("write: %v", err)
	}
	got := make([]byte, len(word))
	_ = to.SetReadDeadline(time.Now().Add(waitLimit))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != word {
		t.Fatalf("read %q, %v; want %q", got, err, word)
	}
}

// expectSilence expects that c receives neither a byte nor an end.
func expectSilence(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(silenceWindow))
	n, err := c.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func expectReset(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(waitLimit))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v; want a reset", err)
	}
}

func mustSet(t *testing.T, l *Link, mode Mode) {
	t.Helper()
	if err := l.SetMode(t.Context(), mode); err != nil {
		t.Fatal(err)
	}
}

func TestUpPassesBytesAndEnds(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "ping")
	expectWord(t, there, near, strings.Repeat("pong", 100_000))

	if err := near.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = there.SetReadDeadline(time.Now().Add(waitLimit))
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("read: %v; want the end of the stream", err)
	}
	expectWord(t, there, near, "still this way")
	if got := l.ReadStatus(); got != (Status{Mode: Up, Connections: 1}) {
		t.Fatalf("status %+v", got)
	}
}

func TestUpResetsWhenTargetRefuses(t *testing.T) {
	f := newFar(t)
	f.listener.Close()
	l := newTestLink(t, f.listener.Addr().String())
	near, err := net.Dial("tcp", l.ListenAddress())
	if errors.Is(err, syscall.ECONNRESET) {
		return // it came before dial returned
	}
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	expectReset(t, near)
}

func TestCutResetsAndRefusesUntilHealed(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "ping")

	mustSet(t, l, Cut)
	expectReset(t, near)
	expectReset(t, there)
	if _, err := net.Dial("tcp", l.ListenAddress()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v; want refusal", err)
	}

	mustSet(t, l, Up)
	near, there = openPair(t, l, f)
	expectWord(t, near, there, "again")
}

func TestHalfOpenSwallowsBothWays(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "ping")

	mustSet(t, l, HalfOpen)
	for range 3 {
		for _, end := range []net.Conn{near, there} {
			if _, err := end.Write([]byte("lost")); err != nil {
				t.Fatalf("write on a half-open link: %v", err)
			}
		}
	}
	expectSilence(t, near)
	expectSilence(t, there)

	mustSet(t, l, Up)
	expectReset(t, near)
	expectReset(t, there)
	near, there = openPair(t, l, f)
	expectWord(t, near, there, "again")
}

func TestHalfOpenTakesNewConnectionsIntoNothing(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	mustSet(t, l, HalfOpen)
	near, err := net.Dial("tcp", l.ListenAddress())
	if err != nil {
		t.Fatalf("dial a half-open link: %v", err)
	}
	defer near.Close()
	if _, err := near.Write([]byte("hello?")); err != nil {
		t.Fatal(err)
	}
	expectSilence(t, near)
	select {
	case <-f.arrived:
		t.Fatal("the connection reached the target")
	default:
	}
	mustSet(t, l, Up)
	expectReset(t, near)
}

func TestHalfOpenKeepsConnectionsWithoutLoss(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "ping")
	mustSet(t, l, HalfOpen)
	expectSilence(t, near)
	mustSet(t, l, Up)
	expectWord(t, near, there, "goes on")
}

func TestHalfOpenHidesTheEndOfAStream(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "ping")
	mustSet(t, l, HalfOpen)
	near.Close()
	expectSilence(t, there)
	mustSet(t, l, Up)
	expectReset(t, there)
}

func TestHalfOpenThenCut(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "ping")
	mustSet(t, l, HalfOpen)
	mustSet(t, l, Cut)
	expectReset(t, near)
	expectReset(t, there)
}

func TestUnknownModeIsRefused(t *testing.T) {
	f := newFar(t)
	l := newTestLink(t, f.listener.Addr().String())
	if err := l.SetMode(t.Context(), "Sideways"); err == nil || !strings.Contains(err.Error(), "HalfOpen") {
		t.Fatalf("error %v; want one that lists the modes", err)
	}
	near, there := openPair(t, l, f)
	expectWord(t, near, there, "unharmed")
}

func TestRelayTakesOrdersAndRemembersThem(t *testing.T) {
	// Longer than a socket's name may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := newFar(t)
	first := newTestLink(t, f.listener.Addr().String())
	address := first.ListenAddress()
	first.Close()
	specs := []Spec{{Name: "member1", Listen: address, Target: f.listener.Addr().String()}}
	client := LinkClient{Dir: dir}

	if _, err := client.ReadStatus(t.Context()); err == nil || !strings.Contains(err.Error(), "is the lab up?") {
		t.Fatalf("error %v without a relay; want a hint", err)
	}
	stop := serveRelay(t, dir, specs)
	near, there := openPair(t, first, f)
	expectWord(t, near, there, "ping")
	if err := client.SetMode(t.Context(), "member1", Cut); err != nil {
		t.Fatal(err)
	}
	expectReset(t, near)
	if err := client.SetMode(t.Context(), "missing", Cut); err == nil || !strings.Contains(err.Error(), `no link "missing"`) {
		t.Fatalf("error %v for an unknown link", err)
	}
	stop()

	serveRelay(t, dir, specs)
	status, err := client.ReadStatus(t.Context())
	if err != nil || status["member1"].Mode != Cut {
		t.Fatalf("after a restart: %+v, %v; want Cut", status, err)
	}
	if err := client.SetMode(t.Context(), "member1", Up); err != nil {
		t.Fatal(err)
	}
	near, there = openPair(t, first, f)
	expectWord(t, near, there, "again")
}

// serveRelay runs a relay until the test ends or the returned function is called.
func serveRelay(t *testing.T, dir string, specs []Spec) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeLinks(ctx, dir, specs) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("relay ended with %v", err)
		}
	}
	t.Cleanup(stop)
	deadline := time.Now().Add(waitLimit)
	for {
		if _, err := (LinkClient{Dir: dir}).ReadStatus(t.Context()); err == nil {
			return stop
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			t.Fatalf("relay ended with %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
