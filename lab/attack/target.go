package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/fleet"
)

// attacker names everything that attacks create in the hub.
const attacker = "attacker"

const (
	tokenLifetime = time.Hour
	joinTimeout   = time.Minute
)

// Target is a hub that is attacked, with an administrator's access to it. It is safe for
// concurrent use.
type Target struct {
	config  *rest.Config
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	gateway string // HOST:PORT
	caHash  string

	// name of the attacker's namespace, and the prefix of its Cluster's name.
	name string

	mu          sync.Mutex
	certificate *tls.Certificate // of the attacker's Cluster, once it has joined
	clusterName string
}

// withAttackerName returns the same hub for an attacker with a Cluster and a namespace of its own.
func (t *Target) withAttackerName(name string) *Target {
	return &Target{config: t.config, kube: t.kube, dynamic: t.dynamic, gateway: t.gateway, caHash: t.caHash, name: attacker + "-" + name}
}

// OpenTarget reads from the hub of a kubeconfig where its gateway is.
func OpenTarget(ctx context.Context, kubeconfig string) (*Target, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the hub: %w", err)
	}
	config.QPS = -1
	t := &Target{config: config, name: attacker}
	if t.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	if t.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	addresses, caHash, err := lab.ReadGateway(ctx, t.kube)
	if err != nil {
		return nil, fmt.Errorf("read the address of the hub's gateway: %w", err)
	}
	t.gateway, t.caHash = addresses[0], caHash
	return t, nil
}

// tlsConfig returns the TLS settings of a peer of the gateway, without a client certificate.
func (t *Target) tlsConfig() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(t.gateway)
	if err != nil {
		return nil, fmt.Errorf("the gateway's address %q is not HOST:PORT: %w", t.gateway, err)
	}
	config, err := trust.PinnedTLSConfig(host, t.caHash, nil)
	if err != nil {
		return nil, err
	}
	config.NextProtos = []string{"h2"}
	return config, nil
}

// dialGateway returns a gRPC connection to the gateway. The certificate may be nil.
func (t *Target) dialGateway(certificate *tls.Certificate) (*grpc.ClientConn, error) {
	config, err := t.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
		dialer.LocalAddr = fleet.LoopbackSource(net.ParseIP(config.ServerName), agentSource)
	}
	return grpc.NewClient("passthrough:///"+t.gateway, grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(session.MaxFrameBytes)))
}

// agentSource is the source address of the attacker's Cluster on this machine. It is in another
// network than the strangers', as a cluster is.
var agentSource = net.IPv4(127, 32, 0, 1)

// ensureAgentIdentity returns the certificate of the attacker's Cluster, which joins at the first call.
func (t *Target) ensureAgentIdentity(ctx context.Context) (*tls.Certificate, string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.certificate != nil {
		return t.certificate, t.clusterName, nil
	}
	name := fmt.Sprintf("%s-%x", t.name, time.Now().UnixMilli()&0xffffff)
	admin := handshake.Admin{Hub: t.dynamic}
	token, err := admin.CreateToken(ctx, handshake.TokenSpec{
		Lifetime: tokenLifetime, Uses: 1, NamePattern: name, AutoAccept: true, Set: attacker,
	}, time.Now())
	if err != nil {
		return nil, "", fmt.Errorf("create a join token: %w", err)
	}
	key, csr, err := newKeyRequest(name)
	if err != nil {
		return nil, "", err
	}
	reply, err := t.sendJoin(ctx, &pb.JoinRequest{
		Token: token.RevealSecret(), Name: name, Csr: csr, AgentVersion: atoll.Version,
	}, grpc.WaitForReady(true))
	if err != nil {
		return nil, "", fmt.Errorf("join as %s: %w", name, err)
	}
	certificate := &tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode(reply.GetCertificate()); block != nil; block, rest = pem.Decode(rest) {
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	if len(certificate.Certificate) == 0 {
		return nil, "", fmt.Errorf("join as %s: the hub answers %s without a certificate: %s", name, reply.GetState(), reply.GetMessage())
	}
	t.certificate, t.clusterName = certificate, reply.GetClusterName()
	return t.certificate, t.clusterName, nil
}

// newKeyRequest returns a new key, and the certificate request for it.
func newKeyRequest(name string) (key *ecdsa.PrivateKey, csr []byte, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	csr, err = trust.NewCertificateRequest(key, name)
	return key, csr, err
}

// sendJoin sends one Join on a connection of its own.
func (t *Target) sendJoin(ctx context.Context, request *pb.JoinRequest, options ...grpc.CallOption) (*pb.JoinReply, error) {
	conn, err := t.dialGateway(nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	return pb.NewRegistrationClient(conn).Join(ctx, request, options...)
}
