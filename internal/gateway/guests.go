package gateway

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"atoll.dev/atoll/internal/tunnel"
)

const (
	// filesForOthers of the process are not for agents: the store, which ends the process
	// when it cannot open one, and people's calls.
	filesForOthers = 1000
	// fullEvery is how often it is said that the hub is full.
	fullEvery = time.Minute
)

// connectionsOf a process that may have so many open files.
func connectionsOf(files uint64) int64 {
	return int64(files - min(filesForOthers, files/2))
}

// guests are the connections of a listener, for the doorman. When as many are open as
// there may be, further ones are closed at once: agents come back later, or go to another
// hub. It is safe for concurrent use.
type guests struct {
	net.Listener
	most int64
	// open is shared with the metrics.
	open *atomic.Int64
	// full is called for each that is turned away.
	full func(most int64)
}

// guests of the listener: as many as the process's open files leave.
func (g *Gateway) guests(l net.Listener) *guests {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		g.o.Logger.Warn("cannot tell how many files may be open; agents' connections are not limited", "err", err)
		files.Cur = 1 << 40
	}
	return &guests{Listener: l, most: connectionsOf(files.Cur), open: &g.metrics.connections, full: sayFull(g.o.Logger, g.metrics)}
}

// sayFull counts who is turned away, and says now and then that it happens.
func sayFull(log *slog.Logger, m *metrics) func(int64) {
	say := rate.Sometimes{Interval: fullEvery}
	return func(most int64) {
		m.refused.WithLabelValues("connection", "Full").Inc()
		say.Do(func() {
			log.Warn("connections are turned away: as many are open as this process's limit of open files leaves; "+
				"run another hub on the same etcd, or let clusters check in more seldom", "open", most)
		})
	}
}

// Accept a connection that there is room for.
func (l *guests) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			tunnel.Prompt(raw)
			return &guest{line: &line{Conn: raw, closed: sync.OnceFunc(l.left)}}, nil
		}
		l.open.Add(-1)
		raw.Close()
		l.full(l.most)
	}
}

func (l *guests) left() { l.open.Add(-1) }

// guest is a connection that gRPC's own server may have to let go of: it sets deadlines
// even then.
type guest struct {
	*line
	gone    bool
	carried bool // by a WebSocket
}

// How agents' connections come, as people see it: by mutual TLS with this hub, at its own
// port or through something that passes TCP on, or the same within a WebSocket.
const (
	CarriageTLS       = "TLS"
	CarriageWebSocket = "WebSocket"
)

// carriage of the connection.
func (g *guest) carriage() string {
	if g.carried {
		return CarriageWebSocket
	}
	return CarriageTLS
}

// SetDeadline of a connection that is not an agent's.
func (g *guest) SetDeadline(t time.Time) error {
	if g.gone {
		return nil
	}
	return g.line.SetDeadline(t)
}

// line is a connection that knows when it gave something last.
type line struct {
	net.Conn
	last   atomic.Int64 // Unix nanoseconds
	closed func()
}

func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.last.Store(time.Now().UnixNano())
	}
	return n, err
}

// Close makes room for another.
func (l *line) Close() error {
	err := l.Conn.Close()
	l.closed()
	return err
}

// heard is when the connection gave something last, or was made.
func (l *line) heard() time.Time { return time.Unix(0, l.last.Load()) }
