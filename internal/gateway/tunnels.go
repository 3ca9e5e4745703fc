package gateway

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

	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/tunnel"
)

const (
	// tunnelsMost of one cluster at a time, with those that are asked for.
	tunnelsMost = 1000
	// tunnelTimeout is how long an agent may take to open one.
	tunnelTimeout = 10 * time.Second
)

// Why no tunnel to a cluster can be had. They are statuses, so that one hub can tell
// another.
var (
	errAway      = status.Error(codes.NotFound, "the cluster's agent has no stream to the hub")
	errNoTunnels = status.Error(codes.Unimplemented, "the cluster's agent is of a version that opens no tunnels; update it")
	errCrowded   = status.Error(codes.ResourceExhausted, "as many connections to the cluster are open as there may be; try again later")
	errLate      = status.Error(codes.DeadlineExceeded, "the cluster's agent did not open a connection in time")
)

// tunnels of one session; its stream's lock guards them. The zero value has none.
type tunnels struct {
	can     bool // set before the session can be found
	waiting map[string]chan<- *tunnel.Conn
	open    map[*tunnel.Conn]struct{}
}

// used tells whether a tunnel is open or about to be.
func (t *tunnels) used() bool { return len(t.waiting)+len(t.open) > 0 }

// end them: the session is over.
func (t *tunnels) end() {
	for c := range t.open {
		_ = c.Close() // it gives no error
	}
	t.waiting = nil
}

// Dial gives a connection to the agent of a cluster, on which it serves the member's API
// as HTTP. It is the caller's to close, and ends with the agent's session. Errors are gRPC
// statuses: NotFound where the agent has no stream here, Unimplemented where it is too old,
// ResourceExhausted, DeadlineExceeded; or the context's.
func (g *Gateway) Dial(ctx context.Context, uid string) (net.Conn, error) {
	s := g.sessions.of(uid)
	if s == nil {
		return nil, errAway
	}
	id, came := rand.Text(), make(chan *tunnel.Conn, 1)
	if err := s.dial(id, came); err != nil {
		return nil, err
	}
	late := time.NewTimer(tunnelTimeout)
	defer late.Stop()
	var err error
	select {
	case c := <-came:
		return c, nil
	case <-s.ended:
		err = errAway
	case <-late.C:
		err = errLate
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
	case c := <-came: // it came at the last moment
		_ = c.Close() // it gives no error
	default:
	}
	return nil, err
}

// dial asks the agent for a tunnel, which is handed to came.
func (s *stream) dial(id string, came chan<- *tunnel.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := &s.tunnels; {
	case s.done:
		return errAway
	case !t.can:
		return errNoTunnels
	case len(t.waiting)+len(t.open) >= tunnelsMost:
		return errCrowded
	}
	put(&s.tunnels.waiting, id, came)
	s.queue.dials = append(s.queue.dials, id)
	s.poke()
	return nil
}

// Open takes a tunnel that was asked for, and lasts as long as it.
func (g *Gateway) Open(rpc grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	id, err := identify(rpc.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	conn := tunnel.New(rpc, hangUp(rpc.Context()), id.uid)
	s := g.sessions.of(id.uid)
	if s == nil || !s.answered(rpc.Context(), id, conn, g.o.TunnelIdle) {
		return status.Error(codes.PermissionDenied, "nobody asked for this tunnel")
	}
	defer func() {
		_ = conn.Close() // it gives no error
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tunnels.open, conn)
	}()
	return conn.Pump()
}

// answered hands a tunnel to who asked for it, to be closed once nothing is said on it for so
// long; false where nobody did.
func (s *stream) answered(ctx context.Context, from identity, conn *tunnel.Conn, idle time.Duration) bool {
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
	put(&s.tunnels.open, conn, struct{}{})
	came <- conn // there is room for it
	return true
}
