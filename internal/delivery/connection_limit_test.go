package delivery

import (
	"errors"
	"io"
	"net"
	"testing"
)

// countingListener counts refused connections.
type countingListener struct {
	limitedListener
	turned int
}

func newCountingListener(t *testing.T, most int64) *countingListener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &countingListener{limitedListener: limitedListener{Listener: l, limit: most, openCount: &newMetrics(nil).connections}}
	r.onFull = func(int64) { r.turned++ }
	return r
}

// dialListener dials. The connection is not accepted yet.
func (r *countingListener) dialListener(t *testing.T) net.Conn {
	conn, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *countingListener) acceptConn(t *testing.T) net.Conn {
	conn, err := r.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestConnectionsAreBoundedByFiles(t *testing.T) {
	r := newCountingListener(t, 2)
	r.dialListener(t)
	first := r.acceptConn(t)
	r.dialListener(t)
	second := r.acceptConn(t)
	// The third is over the limit, the fourth comes after another was closed.
	third := r.dialListener(t)
	accepted := make(chan net.Conn)
	go func() {
		conn, err := r.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the third read %v; want that it is refused", err)
	}
	if open := r.openCount.Load(); open != 2 {
		t.Fatalf("%d are open after the third is refused; want 2", open)
	}
	first.Close()
	first.Close() // a second Close does not count
	fourth := r.dialListener(t)
	if conn := <-accepted; conn.RemoteAddr().String() != fourth.LocalAddr().String() {
		t.Errorf("%s came in; want %s", conn.RemoteAddr(), fourth.LocalAddr())
	}
	if r.turned != 1 || r.openCount.Load() != 2 {
		t.Errorf("%d were refused, %d are open; want 1 and 2", r.turned, r.openCount.Load())
	}
	second.Close()
	if open := r.openCount.Load(); open != 1 {
		t.Errorf("%d are in; want 1", open)
	}
}

func TestFilesAreReserved(t *testing.T) {
	for files, want := range map[uint64]int64{20000: 19000, 1 << 20: 1<<20 - 1000, 1024: 512, 2000: 1000} {
		if got := maxConnections(files); got != want {
			t.Errorf("%d connections where %d files may be open; want %d", got, files, want)
		}
	}
}
