package fleet

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// cuttableConn is a TCP connection that can be cut or made silent.
type cuttableConn struct {
	net.Conn
	readable syscall.RawConn // nil for a delayedConn
	isSilent atomic.Bool
	pingSent atomic.Bool
}

func newCuttableConn(tcp *net.TCPConn, shape bool) *cuttableConn {
	if shape {
		return &cuttableConn{Conn: newDelayedConn(tcp)}
	}
	w := &cuttableConn{Conn: tcp}
	w.readable, _ = tcp.SyscallConn() // without it, awaitReadable returns at once
	return w
}

// awaitReadable waits until the connection is readable or ends. It waits like a read with a
// smaller stack, because the goroutines of a whole fleet wait here.
func (w *cuttableConn) awaitReadable() {
	if w.readable != nil {
		_ = w.readable.Read(isReadable) // the following read returns the error
	}
}

// isReadable reports whether a read of the file returns without waiting.
func isReadable(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if !errors.Is(err, syscall.EINTR) {
			return !errors.Is(err, syscall.EAGAIN)
		}
	}
}

// Read blocks while the connection is silent, until it is closed.
func (w *cuttableConn) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if !w.isSilent.Load() || errors.Is(err, net.ErrClosed) {
			return n, err
		}
		if err != nil {
			return 0, net.ErrClosed
		}
	}
}

// Write discards its data while the connection is silent.
func (w *cuttableConn) Write(p []byte) (int, error) {
	if w.isSilent.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// cutWithReset closes the connection with a TCP reset.
func (w *cuttableConn) cutWithReset() {
	tcp, ok := w.Conn.(*net.TCPConn)
	if s, shaped := w.Conn.(*delayedConn); shaped {
		tcp, ok = s.Conn.(*net.TCPConn)
	}
	if ok {
		_ = tcp.SetLinger(0) // otherwise the connection closes without a reset
	}
	_ = w.Conn.Close()
}
