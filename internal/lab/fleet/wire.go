package fleet

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// wire is a TCP connection that can be cut, or fall silent.
type wire struct {
	net.Conn
	readable syscall.RawConn // nil for a shaped one
	silent   atomic.Bool
	pinged   atomic.Bool
}

func newWire(tcp *net.TCPConn, shape bool) *wire {
	if shape {
		return &wire{Conn: newShaped(tcp)}
	}
	w := &wire{Conn: tcp}
	w.readable, _ = tcp.SyscallConn() // without it nothing is awaited
	return w
}

// await something to read, or an end. It does no more than a read would, and needs
// less of the stack: a fleet of goroutines waits here.
func (w *wire) await() {
	if w.readable != nil {
		_ = w.readable.Read(there) // the read that follows tells what is wrong
	}
}

// there tells whether a read of the file would not have to wait.
func there(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if !errors.Is(err, syscall.EINTR) {
			return !errors.Is(err, syscall.EAGAIN)
		}
	}
}

// Read gives nothing while the wire is silent, until it is closed.
func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if !w.silent.Load() || errors.Is(err, net.ErrClosed) {
			return n, err
		}
		if err != nil {
			return 0, net.ErrClosed
		}
	}
}

// Write loses what is written while the wire is silent.
func (w *wire) Write(p []byte) (int, error) {
	if w.silent.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// cut the wire with a reset.
func (w *wire) cut() {
	tcp, ok := w.Conn.(*net.TCPConn)
	if s, shaped := w.Conn.(*shaped); shaped {
		tcp, ok = s.Conn.(*net.TCPConn)
	}
	if ok {
		_ = tcp.SetLinger(0) // else it is closed kindly
	}
	_ = w.Conn.Close()
}
