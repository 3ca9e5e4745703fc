package tunnel

import (
	"net"
	"sync"
)

// Listener passes the connections that others hand over to a server. Make it with NewListener.
// It is safe for concurrent use.
type Listener struct {
	name   addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewListener returns a listener; name is that of its address.
func NewListener(name string) *Listener {
	return &Listener{name: addr(name), conns: make(chan net.Conn), closed: make(chan struct{})}
}

// HandOverConn takes a connection, which is the server's from then on; it waits until the server
// takes it. After the server's end it is closed.
func (l *Listener) HandOverConn(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		_ = conn.Close() // no server
	}
}

// Accept accepts a connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Take.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr names the listener.
func (l *Listener) Addr() net.Addr { return l.name }
