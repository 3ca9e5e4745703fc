package gateway

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/internal/tunnel"
)

const (
	// dialTimeout bounds TLS and HTTP/2 handshakes, from when their turn comes.
	dialTimeout = 20 * time.Second
	// windowBytes is how much an agent may send before the hub reads it. It is fixed:
	// finding the best one costs pings, and frames up are small.
	windowBytes = 64 << 10
	// tunnelBytes is the same of one tunnel of which more comes, as long as all of them
	// together have no more than tunnelSpare beyond what others have.
	tunnelBytes = 256 << 10
	tunnelSpare = 64 << 20
	// writeBuffer is shared by all streams that write at the moment.
	writeBuffer = 4 << 10
	// streamsMost of one agent's connection at a time: its session, and tunnels.
	streamsMost = 1 + tunnelsMost
	// fieldsMost bounds the header fields of a call, in bytes.
	fieldsMost = 16 << 10
	// writeTimeout is how long an agent may take in nothing of what is written.
	writeTimeout = 20 * time.Second
)

// servers makes the two servers of one port: agents' connections, which are many and
// quiet, are carried by the one that costs little while nothing happens; all others, and
// whoever joins, by gRPC's own. Client certificates are optional for TLS, since
// Registration has none; Connect demands one. Who does not speak HTTP/2 is shown to
// balancers. Reads are not buffered, since TLS records
// are.
func (g *Gateway) servers(balancers *websockets) (agents *h2.Server, others *grpc.Server) {
	agents = g.agentServer()
	others = grpc.NewServer(
		grpc.Creds(g.doorman(agents.Serve, balancers.came.Take)),
		grpc.InTapHandle(withHangUp),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: session.KeepaliveHubTime, Timeout: session.KeepaliveHubTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: session.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.ReadBufferSize(0),
		grpc.WriteBufferSize(writeBuffer),
		grpc.SharedWriteBuffer(true),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(windowBytes),
		grpc.MaxRecvMsgSize(session.MaxFrameBytes),
		grpc.ConnectionTimeout(queueLimit+dialTimeout),
	)
	for _, s := range []grpc.ServiceRegistrar{agents, others} {
		pb.RegisterSessionServer(s, g)
		pb.RegisterRegistrationServer(s, g)
		pb.RegisterTunnelServer(s, g)
		if g.o.Several.Register != nil {
			g.o.Several.Register(s)
		}
	}
	return agents, others
}

// agentServer carries agents' connections.
func (g *Gateway) agentServer() *h2.Server {
	return h2.NewServer(g.running, h2.ServerOptions{
		Inline:      func(method string) bool { return method == pb.Session_Connect_FullMethodName },
		MessageMost: session.MaxFrameBytes,
		Window:      windowBytes,
		WindowOf: func(method string) int {
			if method == pb.Tunnel_Open_FullMethodName {
				return tunnelBytes
			}
			return windowBytes
		},
		Spare: tunnelSpare,
		MessageMostOf: func(method string) int {
			if method == pb.Tunnel_Open_FullMethodName {
				return 2 * tunnel.PieceMost // with what protobuf adds
			}
			return session.MaxFrameBytes
		},
		Streams:    streamsMost,
		FieldsMost: fieldsMost,
		PingAfter:  session.KeepaliveHubTime, PingTimeout: session.KeepaliveHubTimeout,
		PingsApart:   session.KeepaliveMinTime,
		WriteTimeout: writeTimeout,
	})
}

type hangUpKey struct{}

// withHangUp lets the handler of a call be freed from waiting for the other end.
func withHangUp(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, hangUpKey{}, cancel), nil
}

// hangUp of a call.
func hangUp(ctx context.Context) context.CancelFunc {
	if end := h2.HangUp(ctx); end != nil {
		return end
	}
	return ctx.Value(hangUpKey{}).(context.CancelFunc)
}

// identity is what a verified certificate says.
type identity struct {
	uid     string
	keyHash string
}

// identify the caller of a stream.
func identify(ctx context.Context) (identity, error) {
	info, ok := visitorIn(ctx)
	switch {
	case !ok || !info.verified:
		return identity{}, errors.New("the agent showed no certificate of this hub's agent CA; join first")
	case info.uid == "":
		return identity{}, errors.New("the certificate is not an agent's")
	}
	return info.identity, nil
}

// visitorIn the context of a call.
func visitorIn(ctx context.Context) (*visitor, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	v, ok := p.AuthInfo.(*visitor)
	return v, ok
}

// heard is when the connection of a call gave something last.
func heard(ctx context.Context) time.Time {
	if v, ok := visitorIn(ctx); ok {
		return v.line.heard()
	}
	return time.Now()
}

// address of the caller, for logs.
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return "unknown"
}

// admit checks an identity against its Cluster as it is now.
func (g *Gateway) admit(id identity) (*v1alpha1.Cluster, *pb.Refused) {
	c, ok := g.o.Clusters.ByUID(id.uid)
	if !ok {
		return nil, &pb.Refused{
			Reason:  "Unknown",
			Message: "this cluster was removed from the hub, and what runs in it stays as it is; uninstall the agent, or let it join anew with a new token",
		}
	}
	if !c.Spec.Accepted {
		return nil, &pb.Refused{Reason: "NotAccepted", Message: "the hub does not accept this cluster; on the hub run: atoll accept " + c.Name}
	}
	if key, ok := trust.OpenKey(g.o.HubKey, c.Name, c.Annotations[handshake.AnnotationAgentKey]); ok && key != id.keyHash {
		return nil, &pb.Refused{Reason: "Replaced", Message: "another agent was accepted for cluster " + c.Name + "; stop this one"}
	}
	return c, nil
}
