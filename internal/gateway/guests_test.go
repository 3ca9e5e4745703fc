package gateway

import (
	"errors"
	"io"
	"net"
	"testing"
)

// rooms counts what is turned away.
type rooms struct {
	guests
	turned int
}

func newRooms(t *testing.T, most int64) *rooms {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &rooms{guests: guests{Listener: l, most: most, open: &newMetrics(nil).connections}}
	r.full = func(int64) { r.turned++ }
	return r
}

// visit dials; nobody has let the visitor in yet.
func (r *rooms) visit(t *testing.T) net.Conn {
	conn, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rooms) accept(t *testing.T) net.Conn {
	conn, err := r.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestNoMoreComeThanThereAreFiles(t *testing.T) {
	r := newRooms(t, 2)
	r.visit(t)
	first := r.accept(t)
	r.visit(t)
	second := r.accept(t)
	// The third finds no room, the fourth comes after somebody left.
	third := r.visit(t)
	accepted := make(chan net.Conn)
	go func() {
		conn, err := r.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the third read %v; want that it is turned away", err)
	}
	first.Close()
	first.Close() // twice is one that left
	fourth := r.visit(t)
	if conn := <-accepted; conn.RemoteAddr().String() != fourth.LocalAddr().String() {
		t.Errorf("%s came in; want %s", conn.RemoteAddr(), fourth.LocalAddr())
	}
	if r.turned != 1 || r.open.Load() != 2 {
		t.Errorf("%d were turned away, %d are in; want 1 and 2", r.turned, r.open.Load())
	}
	second.Close()
	if open := r.open.Load(); open != 1 {
		t.Errorf("%d are in; want 1", open)
	}
}

func TestFilesAreLeftForOthers(t *testing.T) {
	for files, want := range map[uint64]int64{20000: 19000, 1 << 20: 1<<20 - 1000, 1024: 512, 2000: 1000} {
		if got := connectionsOf(files); got != want {
			t.Errorf("%d connections where %d files may be open; want %d", got, files, want)
		}
	}
}
