package h2

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// ServerOptions of a Server. Those that say what nil means may be left out.
type ServerOptions struct {
	// Inline tells by its full name of a method whose handler may have the goroutine
	// of its connection; such a handler receives until the call is over. nil: none.
	Inline func(method string) bool
	// MessageMost bounds what is received, in bytes.
	MessageMost int
	// MessageMostOf bounds it for calls of a method, by its full name; nil: MessageMost.
	MessageMostOf func(method string) int
	// Window of a connection and of each of its streams: what the peer may send before
	// it is read.
	Window int
	// WindowOf lets calls of a method, by its full name, have a larger one, and with them
	// their connection, when so much comes of them. nil, and less than Window: Window.
	WindowOf func(method string) int
	// Spare is by how much, in bytes, the windows of all calls of all connections together
	// may be larger than Window. Calls for which nothing is left stay at Window.
	Spare int64
	// Streams at a time of one connection.
	Streams int
	// FieldsMost bounds the header fields of a request, as HTTP/2 counts them.
	FieldsMost int
	// PingAfter so much silence; PingTimeout after that the connection is given up.
	PingAfter, PingTimeout time.Duration
	// PingsApart is how far apart the peer's pings must be.
	PingsApart time.Duration
	// WriteTimeout is how long a write may take that the peer does not take in.
	WriteTimeout time.Duration
}

// method that is served.
type method struct {
	name   string
	inline bool
	window int
	most   int // bytes of a message
	impl   any
	unary  grpc.MethodHandler
	stream grpc.StreamHandler
}

// Server serves gRPC. Make it with NewServer.
type Server struct {
	o    ServerOptions
	base context.Context // of all calls; it gives values only

	methods map[string]*method
	spare   atomic.Int64 // what is left of it

	mu      sync.Mutex
	conns   map[*conn]struct{}
	stopped bool
	served  sync.WaitGroup // connections and handlers
	wheel   wheel
	// ends paces how connections are cleared away that their peers have left: where a
	// link goes that many came by, all of them would run at once, and whatever else the
	// process does would wait for its turn among them.
	ends *rate.Limiter
}

// endsPerCore a second may be cleared away when many end at once, endsAtOnce of them
// without waiting. One takes some hundred microseconds.
const (
	endsPerCore = 2000
	endsAtOnce  = 100
)

var errStopped = errors.New("the server stops")

// NewServer gives a server that is to be stopped. Of ctx calls see the values, not the end.
func NewServer(ctx context.Context, o ServerOptions) *Server {
	s := &Server{o: o, base: context.WithoutCancel(ctx), methods: map[string]*method{}, conns: map[*conn]struct{}{}}
	s.spare.Store(o.Spare)
	s.ends = rate.NewLimiter(rate.Limit(endsPerCore*runtime.GOMAXPROCS(0)), endsAtOnce)
	s.wheel.stop = make(chan struct{})
	s.served.Go(s.turn)
	return s
}

// RegisterService serves a service. All are registered before the first connection.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	add := func(name string, m method) {
		m.name, m.impl = "/"+d.ServiceName+"/"+name, impl
		m.inline = s.o.Inline != nil && s.o.Inline(m.name)
		if m.window = s.o.Window; s.o.WindowOf != nil {
			m.window = max(m.window, s.o.WindowOf(m.name))
		}
		if m.most = s.o.MessageMost; s.o.MessageMostOf != nil {
			m.most = s.o.MessageMostOf(m.name)
		}
		s.methods[m.name] = &m
	}
	for _, m := range d.Methods {
		add(m.MethodName, method{unary: m.Handler})
	}
	for _, m := range d.Streams {
		add(m.StreamName, method{stream: m.Handler})
	}
}

// spend some of what is to spare; false where there is not enough.
func (s *Server) spend(bytes int64) bool {
	if s.spare.Add(-bytes) >= 0 {
		return true
	}
	s.spare.Add(bytes)
	return false
}

// missing says what is not served of a method's name.
func (s *Server) missing(name string) string {
	service := name[:strings.LastIndexByte(name, '/')+1]
	for known := range s.methods {
		if strings.HasPrefix(known, service) {
			return "unknown method " + name
		}
	}
	return "unknown service " + strings.Trim(service, "/")
}

// Serve a connection until it is over, and close it. A deadline that it has bounds how
// long the peer may take to greet.
func (s *Server) Serve(nc net.Conn, info credentials.AuthInfo) {
	c := newConn(s, nc, info)
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		_ = nc.Close() // nothing was said on it
		return
	}
	s.conns[c] = struct{}{}
	s.served.Add(1)
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.served.Done()
}

// Stop ends all connections, and returns when nothing of the server is left.
func (s *Server) Stop() {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	for c := range s.conns {
		c.fail(errStopped)
	}
	s.mu.Unlock()
	if first {
		close(s.wheel.stop)
	}
	s.served.Wait()
}

// callerOf a connection, for its calls.
func callerOf(ctx context.Context, nc net.Conn, info credentials.AuthInfo) context.Context {
	return peer.NewContext(ctx, &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(), AuthInfo: info})
}

// HangUp gives what frees the handler of a call from waiting for the other end; nil for
// a call that no Server of this package serves.
func HangUp(ctx context.Context) context.CancelFunc {
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(*transport); ok {
		return (*stream)(s).hangUp
	}
	return nil
}
