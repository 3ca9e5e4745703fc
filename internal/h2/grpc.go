package h2

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
)

// grpcWriteBuffer is shared by all streams that write at the moment.
const grpcWriteBuffer = 4 << 10

// GRPCServer serves connections as Server does, by the server of grpc-go. It runs in place of
// Server where an operator prefers the library to the memory that Server saves.
//
// It keeps the bounds of ServerOptions, with these differences. MessageMost and Window hold for all
// methods, because grpc-go has no bound for a method, and LargeMessages is not kept. Streams of a
// connection have equal priority.
// Each connection has four goroutines, and the ends of many connections are not paced. It is safe
// for concurrent use.
type GRPCServer struct {
	server       *grpc.Server
	writeTimeout time.Duration
	conns        chan net.Conn
	stopped      chan struct{}
	begin, end   sync.Once
}

// GRPCLimits bound the time of calls and connections of a GRPCServer. Zero: no bound.
type GRPCLimits struct {
	// Call is how long a call may take, from its header fields on.
	Call time.Duration
	// Idle is how long a connection may be without a call, and Age how long it may be open. Calls
	// that still run then have AgeGrace to end.
	Idle, Age, AgeGrace time.Duration
}

// tapCall makes FindCallCancel work for a call, and ends a call that takes too long.
func (l GRPCLimits) tapCall(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, err := WithCallCancel(ctx, info)
	if l.Call > 0 {
		timer := time.AfterFunc(l.Call, FindCallCancel(ctx))
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return ctx, err
}

// NewGRPCServer returns a server that must be stopped.
func NewGRPCServer(o ServerOptions, l GRPCLimits) *GRPCServer {
	return &GRPCServer{
		writeTimeout: o.WriteTimeout, conns: make(chan net.Conn), stopped: make(chan struct{}),
		server: grpc.NewServer(
			grpc.Creds(authenticatedPeerCredentials{}),
			grpc.InTapHandle(l.tapCall),
			grpc.KeepaliveParams(keepalive.ServerParameters{
				Time: o.PingAfter, Timeout: o.PingTimeout, MaxConnectionIdle: l.Idle, MaxConnectionAge: l.Age, MaxConnectionAgeGrace: l.AgeGrace,
			}),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.PingsApart, PermitWithoutStream: true}),
			grpc.ReadBufferSize(0), // TLS buffers its records
			grpc.WriteBufferSize(grpcWriteBuffer),
			grpc.SharedWriteBuffer(true),
			grpc.StaticStreamWindowSize(int32(o.Window)),
			grpc.StaticConnWindowSize(int32(o.Window)),
			grpc.MaxRecvMsgSize(o.MessageMost),
			grpc.MaxConcurrentStreams(uint32(o.Streams)),
			grpc.MaxHeaderListSize(uint32(o.FieldsMost)),
			grpc.ConnectionTimeout(o.WriteTimeout),
			grpc.WaitForHandlers(true),
		),
	}
}

// RegisterService serves a service. All are registered before the first connection.
func (s *GRPCServer) RegisterService(d *grpc.ServiceDesc, impl any) {
	s.server.RegisterService(d, impl)
}

// Serve hands a connection to grpc-go, which closes it. info is the identity of the peer.
func (s *GRPCServer) Serve(nc net.Conn, info credentials.AuthInfo) {
	s.begin.Do(func() {
		go func() { _ = s.server.Serve(connListener{s}) }() // it ends by Stop alone
	})
	select {
	case s.conns <- &authenticatedConn{Conn: nc, info: info, writeTimeout: s.writeTimeout}:
	case <-s.stopped:
		_ = nc.Close() // nothing was sent on it
	}
}

// Stop ends all connections, and returns when no handler runs any more.
func (s *GRPCServer) Stop() {
	s.end.Do(func() { close(s.stopped) })
	s.server.Stop()
}

// connListener accepts the connections that Serve hands over.
type connListener struct{ *GRPCServer }

// Accept implements net.Listener.
func (l connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.stopped:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Stop ends Accept.
func (l connListener) Close() error { return nil }

// Addr implements net.Listener.
func (l connListener) Addr() net.Addr { return &net.UnixAddr{Name: "agents", Net: "inprocess"} }

// authenticatedConn is a connection whose peer is known already. Each write has a deadline.
type authenticatedConn struct {
	net.Conn
	info         credentials.AuthInfo
	writeTimeout time.Duration
}

// Write implements net.Conn.
func (c *authenticatedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// authenticatedPeerCredentials are the credentials of connections whose handshake is done.
type authenticatedPeerCredentials struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (authenticatedPeerCredentials) ServerHandshake(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nc, nc.(*authenticatedConn).info, nil
}

// ClientHandshake always fails.
func (authenticatedPeerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("this server does not dial")
}

// Info implements credentials.TransportCredentials.
func (authenticatedPeerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{}
}

// Clone implements credentials.TransportCredentials.
func (k authenticatedPeerCredentials) Clone() credentials.TransportCredentials { return k }

// OverrideServerName implements credentials.TransportCredentials.
func (authenticatedPeerCredentials) OverrideServerName(string) error { return nil }

type callCancelKey struct{}

// WithCallCancel is a tap handle that makes FindCallCancel work for the calls of a grpc.Server.
func WithCallCancel(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, callCancelKey{}, cancel), nil
}
