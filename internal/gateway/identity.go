package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

const (
	// streamBuffer of each direction: small, since most streams are idle.
	streamBuffer = 4 << 10
	// dialTimeout bounds TLS and HTTP/2 handshakes.
	dialTimeout = 20 * time.Second
)

// server makes the gRPC server. Client certificates are optional for TLS, since
// Registration has none; Connect demands one.
func (g *Gateway) server() *grpc.Server {
	s := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{g.o.Serving},
			ClientAuth:   tls.VerifyClientCertIfGiven,
			ClientCAs:    g.o.AgentCAs,
		})),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: session.KeepaliveHubTime, Timeout: session.KeepaliveHubTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: session.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.ReadBufferSize(streamBuffer),
		grpc.WriteBufferSize(streamBuffer),
		grpc.SharedWriteBuffer(true),
		grpc.MaxRecvMsgSize(session.MaxFrameBytes),
		grpc.ConnectionTimeout(dialTimeout),
	)
	pb.RegisterSessionServer(s, g)
	pb.RegisterRegistrationServer(s, g)
	return s
}

// identity is what a verified certificate says.
type identity struct {
	uid     string
	keyHash string
}

// identify the caller of a stream.
func identify(ctx context.Context) (identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return identity{}, errors.New("the connection has no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return identity{}, errors.New("the agent showed no certificate of this hub's agent CA; join first")
	}
	cert := info.State.VerifiedChains[0][0]
	uid, ok := strings.CutPrefix(cert.Subject.CommonName, atoll.UserClusterPrefix)
	if !ok || uid == "" || !slices.Contains(cert.Subject.Organization, atoll.GroupAgents) {
		return identity{}, errors.New("the certificate is not an agent's")
	}
	return identity{uid: uid, keyHash: trust.CertificateHash(cert)}, nil
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
			Message: "the hub has no Cluster of this identity; if it was removed on purpose, uninstall the agent or join anew",
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
