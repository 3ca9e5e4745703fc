package delivery

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/tunnel"
)

const (
	// maxTunnels of one cluster at a time, requested ones included.
	maxTunnels = 1000
	// tunnelTimeout is how long an agent may take to open one.
	tunnelTimeout = 10 * time.Second
)

// Errors of DialCluster. They are gRPC statuses, so that hubs can pass them on.
var (
	errDisconnected   = status.Error(codes.NotFound, "the cluster's agent has no stream to the hub")
	errNoTunnels      = status.Error(codes.Unimplemented, "the cluster's agent is of a version that opens no tunnels; update it")
	errTooManyTunnels = status.Error(codes.ResourceExhausted, "the maximum of connections to the cluster is open; try again later")
	errTunnelTimeout  = status.Error(codes.DeadlineExceeded, "the cluster's agent did not open a connection in time")
)

// tunnels of one session. The lock of the session guards them. The zero value has none.
type tunnels struct {
	supported bool // set before the session can be found
	waiting   map[string]chan<- *tunnel.Conn
	openConns map[*tunnel.Conn]struct{}
}

// hasAny reports whether a tunnel is open or requested.
func (t *tunnels) hasAny() bool { return len(t.waiting)+len(t.openConns) > 0 }

// closeAll closes the tunnels of a session that is over.
func (t *tunnels) closeAll() {
	for c := range t.openConns {
		_ = c.Close() // never fails
	}
	t.waiting = nil
}

// DialCluster returns a connection to the agent of a cluster, on which the agent serves
// the member's API as HTTP. The caller must close it. It ends with the agent's session.
// Errors are those of ctx or gRPC statuses: NotFound where the agent has no stream here,
// Unimplemented where it is too old, ResourceExhausted, DeadlineExceeded.
func (g *Gateway) DialCluster(ctx context.Context, uid string) (net.Conn, error) {
	s := g.sessions.getByUID(uid)
	if s == nil {
		return nil, errDisconnected
	}
	id, came := rand.Text(), make(chan *tunnel.Conn, 1)
	if err := s.requestTunnel(id, came); err != nil {
		return nil, err
	}
	late := time.NewTimer(tunnelTimeout)
	defer late.Stop()
	var err error
	select {
	case c := <-came:
		return c, nil
	case <-s.ended:
		err = errDisconnected
	case <-late.C:
		err = errTunnelTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	delete(s.tunnels.waiting, id)
	if i := slices.Index(s.queue.dials, id); i >= 0 {
		s.queue.dials = slices.Delete(s.queue.dials, i, i+1)
	}
	s.mu.Unlock()
	select {
	case c := <-came: // it came after the timeout
		_ = c.Close() // it gives no error
	default:
	}
	return nil, err
}

// requestTunnel requests a tunnel from the agent, which is sent to came.
func (s *agentSession) requestTunnel(id string, came chan<- *tunnel.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := &s.tunnels; {
	case s.done:
		return errDisconnected
	case !t.supported:
		return errNoTunnels
	case len(t.waiting)+len(t.openConns) >= maxTunnels:
		return errTooManyTunnels
	}
	put(&s.tunnels.waiting, id, came)
	s.queue.dials = append(s.queue.dials, id)
	s.wakeSender()
	return nil
}

// Open serves a tunnel that was requested, until the tunnel ends.
func (g *Gateway) Open(rpc grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	return g.serveContainingPanics(func() error { return g.serveTunnel(rpc) })
}

// serveTunnel serves a tunnel that was requested, until the tunnel ends.
func (g *Gateway) serveTunnel(rpc grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	id, err := identifyPeer(rpc.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	conn := tunnel.New(rpc, h2.FindCallCancel(rpc.Context()), id.uid)
	s := g.sessions.getByUID(id.uid)
	if s == nil || !s.acceptTunnel(rpc.Context(), id, conn, g.options.TunnelIdle) {
		return status.Error(codes.PermissionDenied, "this tunnel was not requested")
	}
	defer func() {
		_ = conn.Close() // it gives no error
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tunnels.openConns, conn)
	}()
	return conn.PumpMessages()
}

// acceptTunnel passes a tunnel to its requester. The tunnel is closed once it was idle for
// that time. It returns false where no tunnel was requested.
func (s *agentSession) acceptTunnel(ctx context.Context, from identity, conn *tunnel.Conn, idle time.Duration) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	ids := md.Get(session.DialKey)
	if len(ids) != 1 || from != s.id {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	came, waits := s.tunnels.waiting[ids[0]]
	if !waits || s.done {
		return false
	}
	conn.CloseWhenIdle(idle)
	delete(s.tunnels.waiting, ids[0])
	put(&s.tunnels.openConns, conn, struct{}{})
	came <- conn // does not block: the channel has a place for it
	return true
}
