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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"atoll.dev/atoll/internal/pace"
)

// PanicReporter reports panics.
type PanicReporter interface {
	// ReportPanic gets the value of a panic while a frame was handled, during the panic. The
	// connection ends by it.
	ReportPanic(value any)
}

// ServerOptions configure a Server. Functions can be nil where their comment describes it.
type ServerOptions struct {
	// Inline reports whether a method, by its full name, runs in the goroutine of its connection. Its
	// handler must receive until the call is over. nil: no method does.
	Inline func(method string) bool
	// MessageMost is the largest message that is accepted, in bytes.
	MessageMost int
	// MessageMostOf returns the largest message for a method, by its full name. nil: MessageMost.
	MessageMostOf func(method string) int
	// Window is the receive window of a connection and of each of its streams.
	Window int
	// WindowOf returns the window to which calls of a method, by its full name, and their connection
	// grow when data arrives. nil, or less than Window: Window.
	WindowOf func(method string) int
	// Spare is the number of bytes by which the windows of all calls together can exceed Window. Calls
	// stay at Window when none are left.
	Spare int64
	// LargeMessages is how many messages that are larger than the window of their call are received at
	// a time, over all connections; 0: any number. Further ones wait, and each must be complete within
	// LargeTimeout from its turn on, so that no peer keeps the turns.
	LargeMessages int
	LargeTimeout  time.Duration
	// Streams is the number of concurrent streams of one connection.
	Streams int
	// FieldsMost is the largest size of a request's header fields, as HTTP/2 counts it.
	FieldsMost int
	// PingAfter is the silence after which the peer is pinged. The connection is closed when no answer
	// comes within PingTimeout.
	PingAfter, PingTimeout time.Duration
	// PingsApart is the smallest interval between the peer's pings.
	PingsApart time.Duration
	// Panics gets the panics while frames were handled. nil: they are not reported.
	Panics PanicReporter
	// WriteTimeout is how long a write can block before the connection is closed.
	WriteTimeout time.Duration
}

// method is a registered method.
type method struct {
	name            string
	inline          bool
	window          int
	maxMessageBytes int // bytes of a message
	impl            any
	unary           grpc.MethodHandler
	stream          grpc.StreamHandler
}

// Server serves gRPC. NewServer makes one.
type Server struct {
	options     ServerOptions
	baseContext context.Context // parent of all calls' contexts; it has values and no deadline

	methods map[string]*method
	spare   atomic.Int64 // bytes that are left of ServerOptions.Spare
	large   largeMessages

	mu           sync.Mutex
	conns        map[*serverConn]struct{}
	stopped      bool
	running      sync.WaitGroup // connections and handlers
	keepalive    keepaliveTicker
	closeLimiter *pace.Limiter
}

var errStopped = errors.New("the server is stopping")

// NewServer returns a server that must be stopped. Calls see the values of ctx, but not its
// cancellation.
func NewServer(ctx context.Context, o ServerOptions) *Server {
	s := &Server{options: o, baseContext: context.WithoutCancel(ctx), methods: map[string]*method{}, conns: map[*serverConn]struct{}{}}
	s.spare.Store(o.Spare)
	s.large.most, s.large.timeout = o.LargeMessages, o.LargeTimeout
	s.closeLimiter = pace.ClosesPerCore.Times(runtime.GOMAXPROCS(0)).NewLimiter()
	s.keepalive.stop = make(chan struct{})
	s.running.Go(s.runKeepalive)
	return s
}

// RegisterService registers a service. All services are registered before the first connection.
func (s *Server) RegisterService(d *grpc.ServiceDesc, impl any) {
	add := func(name string, m method) {
		m.name, m.impl = "/"+d.ServiceName+"/"+name, impl
		m.inline = s.options.Inline != nil && s.options.Inline(m.name)
		if m.window = s.options.Window; s.options.WindowOf != nil {
			m.window = max(m.window, s.options.WindowOf(m.name))
		}
		if m.maxMessageBytes = s.options.MessageMost; s.options.MessageMostOf != nil {
			m.maxMessageBytes = s.options.MessageMostOf(m.name)
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

// reserveSpareWindow reserves bytes of the spare window. It returns false when too few are left.
func (s *Server) reserveSpareWindow(bytes int64) bool {
	if s.spare.Add(-bytes) >= 0 {
		return true
	}
	s.spare.Add(bytes)
	return false
}

// unservedText returns the error text for a method that is not registered.
func (s *Server) unservedText(name string) string {
	service := name[:strings.LastIndexByte(name, '/')+1]
	for known := range s.methods {
		if strings.HasPrefix(known, service) {
			return "unknown method " + name
		}
	}
	return "unknown service " + strings.Trim(service, "/")
}

// Serve serves a connection until it ends, and closes it. A deadline on the connection limits
// how long the handshake takes.
func (s *Server) Serve(nc net.Conn, info credentials.AuthInfo) {
	c := newConn(s, nc, info)
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		_ = nc.Close() // nothing was written to it
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// Stop ends all connections. It returns when all handlers and connections have ended.
func (s *Server) Stop() {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	for c := range s.conns {
		c.fail(errStopped)
	}
	s.mu.Unlock()
	if first {
		close(s.keepalive.stop)
	}
	s.running.Wait()
}

// withPeer returns a context with the connection's peer, for its calls.
func withPeer(ctx context.Context, nc net.Conn, info credentials.AuthInfo) context.Context {
	return peer.NewContext(ctx, &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(), AuthInfo: info})
}

// FindCallCancel returns the function that frees the handler of a call from waiting for the other
// end. It is nil for a call of another server than Server and one with WithCallCancel.
func FindCallCancel(ctx context.Context) context.CancelFunc {
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(*streamTransport); ok {
		return (*serverStream)(s).abortCall
	}
	end, _ := ctx.Value(callCancelKey{}).(context.CancelFunc)
	return end
}
