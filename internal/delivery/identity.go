package delivery

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/internal/tunnel"
)

const (
	// dialTimeout bounds the TLS and HTTP/2 handshakes once they start.
	dialTimeout = 20 * time.Second
	// windowBytes is how much an agent may send before the hub reads it. It is fixed: to
	// measure the best size costs pings, and frames of agents are small.
	windowBytes = 64 << 10
	// tunnelBytes is the same for a tunnel with much traffic, as long as all tunnels together
	// use at most tunnelSpareBytes more than their windows.
	tunnelBytes      = 256 << 10
	tunnelSpareBytes = 64 << 20
	// largeFrames is how many frames of agents over windowBytes the hub receives at a time: together
	// 256 MiB. Each must be complete within largeFrameTimeout, which is 9 kB a second.
	largeFrames       = 256
	largeFrameTimeout = 2 * time.Minute
	// writeBuffer is shared by all streams that write at the moment.
	writeBuffer = 4 << 10
	// maxStreams of one agent's connection at a time: its session, and tunnels.
	maxStreams = 1 + maxTunnels
	// maxHeaderBytes bounds the header fields of a call.
	maxHeaderBytes = 16 << 10
	// writeTimeout is how long an agent may read nothing of what is written.
	writeTimeout = 20 * time.Second
)

// agentServer serves the connections of agents.
type agentServer interface {
	grpc.ServiceRegistrar
	// Serve serves a connection of an agent, and closes it.
	Serve(net.Conn, credentials.AuthInfo)
	Stop()
}

// newServers returns the servers of one port. Agents' connections, which are many and quiet, go
// to a server that costs little while they are idle. Callers without a certificate, joining agents
// among them, go to the uncertifiedConnServer, and other hubs to the gRPC server. TLS requires no client
// certificate, since Registration has none; Connect does. Connections without HTTP/2 go to the load
// balancers' server. Reads are not buffered, because TLS records are.
func (g *Gateway) newServers(balancers *webSocketServer, strangers *uncertifiedConnServer) (agents agentServer, others *grpc.Server) {
	agents = g.newAgentServer()
	others = grpc.NewServer(
		grpc.Creds(g.newTLSAcceptor(agents.Serve, balancers.httpConns.HandOverConn, strangers)),
		grpc.InTapHandle(h2.WithCallCancel),
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
		if g.options.HA.Peers != nil {
			g.options.HA.Peers.Register(s)
		}
	}
	return agents, others
}

// newAgentServer returns the server of agents' connections.
func (g *Gateway) newAgentServer() agentServer {
	o := agentServerOptions()
	o.Panics = framePanics{g}
	if g.options.AgentServer == AgentServerGRPC {
		return h2.NewGRPCServer(o, h2.GRPCLimits{})
	}
	return h2.NewServer(g.lifetime, o)
}

// agentServerOptions are the bounds of agents' connections.
func agentServerOptions() h2.ServerOptions {
	return h2.ServerOptions{
		Inline:      func(method string) bool { return method == pb.Session_Connect_FullMethodName },
		MessageMost: session.MaxAgentFrameBytes,
		Window:      windowBytes,
		WindowOf: func(method string) int {
			if method == pb.Tunnel_Open_FullMethodName {
				return tunnelBytes
			}
			return windowBytes
		},
		Spare:         tunnelSpareBytes,
		LargeMessages: largeFrames, LargeTimeout: largeFrameTimeout,
		MessageMostOf: func(method string) int {
			if method == pb.Tunnel_Open_FullMethodName {
				return 2 * tunnel.PieceMost // with what protobuf adds
			}
			return session.MaxAgentFrameBytes
		},
		Streams:    maxStreams,
		FieldsMost: maxHeaderBytes,
		PingAfter:  session.KeepaliveHubTime, PingTimeout: session.KeepaliveHubTimeout,
		PingsApart:   session.KeepaliveMinTime,
		WriteTimeout: writeTimeout,
	}
}

// identity is the content of a verified certificate.
type identity struct {
	uid     string
	keyHash string
}

// identifyPeer returns the identity of the caller of a stream.
func identifyPeer(ctx context.Context) (identity, error) {
	info, ok := peerAuthFrom(ctx)
	switch {
	case !ok || !info.verified:
		return identity{}, errors.New("the agent showed no certificate of this hub's agent CA; join first")
	case info.uid == "":
		return identity{}, errors.New("the certificate is not an agent's")
	}
	return info.identity, nil
}

// peerAuthFrom returns the identity of the peer of a call.
func peerAuthFrom(ctx context.Context) (*peerAuth, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	v, ok := p.AuthInfo.(*peerAuth)
	return v, ok
}

// lastReadFrom returns when the last bytes came on the connection of a call.
func lastReadFrom(ctx context.Context) time.Time {
	if v, ok := peerAuthFrom(ctx); ok {
		return v.rawConn.lastRead()
	}
	return time.Now()
}

// peerAddress returns the address of the caller, for logs.
func peerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return "unknown"
}

// admitIdentity checks an identity against the present state of its Cluster.
func (g *Gateway) admitIdentity(id identity) (*v1alpha1.Cluster, *pb.Refused) {
	c, ok := g.options.Clusters.GetByUID(id.uid)
	if !ok {
		return nil, &pb.Refused{
			Reason:  string(atoll.ReasonUnknown),
			Message: "this cluster was removed from the hub, and what runs in it stays as it is; uninstall the agent, or let it join again with a new token",
		}
	}
	if !c.Spec.Accepted {
		return nil, &pb.Refused{Reason: string(atoll.ReasonNotAccepted), Message: "the hub does not accept this cluster; on the hub run: atoll accept " + c.Name}
	}
	key, known := trust.OpenKeyHash(g.options.HubKey, c.Name, c.Annotations[handshake.AnnotationAgentKey])
	if !known {
		return nil, &pb.Refused{
			Reason:  string(atoll.ReasonNotAccepted),
			Message: "the annotation " + handshake.AnnotationAgentKey + " of cluster " + c.Name + " is missing, or not of this hub, so that no agent is known to be its: join the cluster again with a new token, and accept it",
		}
	}
	if key != id.keyHash {
		return nil, &pb.Refused{Reason: string(atoll.ReasonReplaced), Message: "another agent was accepted for cluster " + c.Name + "; stop this one"}
	}
	return c, nil
}
