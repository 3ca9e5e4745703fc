package delivery

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/tunnel"
)

// reservedFiles of the process are not for agents: the store, which ends the process when
// it cannot open a file, and calls of users need them.
const reservedFiles = 1000

// maxConnections returns the largest number of a process that may have so many open files.
func maxConnections(files uint64) int64 {
	return int64(files - min(reservedFiles, files/2))
}

// limitedListener bounds the open connections of a listener. Connections beyond the limit
// are closed at once: their agents dial again later, or dial another hub. It is safe for
// concurrent use.
type limitedListener struct {
	net.Listener
	limit int64
	// openCount is shared with the metrics.
	openCount *atomic.Int64
	// onFull is called for each connection that is refused.
	onFull func(most int64)
}

// limitConnections bounds the listener's connections by the process's limit of open files.
func (g *Gateway) limitConnections(l net.Listener) *limitedListener {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		g.options.Logger.Warn("cannot read the limit of open files; agents' connections are not limited", "err", err)
		files.Cur = 1 << 40
	}
	return &limitedListener{Listener: l, limit: maxConnections(files.Cur), openCount: &g.metrics.connections, onFull: newConnectionRefusalWarner(g.options.Logger, g.metrics)}
}

// newConnectionRefusalWarner returns a function that counts refused connections and logs a warning now
// and then.
func newConnectionRefusalWarner(log *slog.Logger, m *metrics) func(int64) {
	warnings := pace.FullWarnings.NewLimiter()
	return func(most int64) {
		m.refused.WithLabelValues("connection", "Full").Inc()
		if warnings.TakeToken(time.Now()) {
			log.Warn("connections are refused: as many are open as this process's limit of open files allows; "+
				"run another hub on the same etcd, or let clusters check in less often", "open", most)
		}
	}
}

// Accept returns the next connection within the limit.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.openCount.Add(1) <= l.limit {
			tunnel.LimitUnsent(raw)
			return &limitedConn{trackedConn: &trackedConn{Conn: raw, onClose: sync.OnceFunc(l.releaseConn)}}, nil
		}
		l.openCount.Add(-1)
		raw.Close()
		l.onFull(l.limit)
	}
}

func (l *limitedListener) releaseConn() { l.openCount.Add(-1) }

// limitedConn is a connection that the gRPC server may hand over. The gRPC server sets
// deadlines even after it has done so; they are ignored then.
type limitedConn struct {
	*trackedConn
	handedOver   bool
	viaWebSocket bool // by a WebSocket
}

// Transports of agents' connections: mutual TLS with this hub, directly or through a TCP
// proxy, or the same TLS within a WebSocket.
const (
	TransportTLS       = "TLS"
	TransportWebSocket = "WebSocket"
)

// transportName returns the transport of the connection.
func (g *limitedConn) transportName() string {
	if g.viaWebSocket {
		return TransportWebSocket
	}
	return TransportTLS
}

// SetDeadline does nothing once the connection is handed over.
func (g *limitedConn) SetDeadline(t time.Time) error {
	if g.handedOver {
		return nil
	}
	return g.trackedConn.SetDeadline(t)
}

// trackedConn is a connection that records when its last bytes came.
type trackedConn struct {
	net.Conn
	lastReadNanos atomic.Int64 // Unix nanoseconds
	onClose       func()
}

func (l *trackedConn) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.lastReadNanos.Store(time.Now().UnixNano())
	}
	return n, err
}

// Close releases the place of the connection.
func (l *trackedConn) Close() error {
	err := l.Conn.Close()
	l.onClose()
	return err
}

// lastRead returns when the last bytes came, or when the connection was made.
func (l *trackedConn) lastRead() time.Time { return time.Unix(0, l.lastReadNanos.Load()) }
