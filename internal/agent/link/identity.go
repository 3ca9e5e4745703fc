package link

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// identity is the agent's key and certificate for its hub.
type identity struct {
	store.Identity
	key  crypto.Signer
	cert *x509.Certificate // nil before the first acceptance
	// issuedAt is when the certificate did, by this end's clock, which may differ from the
	// hub's; of one that was stored before this process began, the hub's word counts.
	issuedAt time.Time
	// unsaved: the member has not taken the certificate yet.
	unsaved bool
	// accepted: the hub has accepted the key once, so that it needs no token.
	accepted bool
}

// isValidAt reports whether the certificate is valid at that time.
func (id *identity) isValidAt(now time.Time) bool {
	return id.cert != nil && len(id.HubCAPEM) > 0 && now.Before(id.certificateEnd())
}

// certificateEnd returns the time when the certificate ends, by the agent's clock.
func (id *identity) certificateEnd() time.Time {
	return id.issuedAt.Add(trust.CertificateLifetime(id.cert))
}

// renewAt is when the certificate is to be renewed, by this end's clock.
func (id *identity) renewAt() time.Time { return id.issuedAt.Add(trust.RenewAfter(id.cert)) }

// loadOrGenerateIdentity returns the stored identity for this hub, or makes a key and stores it.
func (l *HubLink) loadOrGenerateIdentity(ctx context.Context) (*identity, error) {
	stored, err := l.o.Store.LoadIdentity(ctx)
	if err != nil {
		return nil, err
	}
	if stored != nil && !l.isForThisHub(stored) && stored.Before != nil && l.isForThisHub(stored.Before) {
		l.o.Log.Info("the hub is the one of before again; the key for the other one, which never accepted it, is given up", "hub", l.o.Hub, "other", stored.Hub)
		stored = stored.Before
		if err := l.o.Store.PutIdentity(ctx, *stored); err != nil {
			return nil, err
		}
	}
	if stored != nil && l.isForThisHub(stored) {
		stored.Hub, stored.CAHash = l.o.Hub, l.o.CAHash
		if stored.ClusterName != "" && stored.ClusterName != l.o.Name {
			l.o.Log.Warn("the hub has let this member in under another name, which it keeps until the hub has no Cluster of it any more; for the new one, take the former out of the hub first: atoll remove",
				"cluster", stored.ClusterName, "name", l.o.Name)
		}
		return parseIdentity(*stored)
	}
	if stored != nil {
		l.o.Log.Warn("the stored identity is for another hub and is replaced once this one accepts the agent; what that hub placed here is kept. If this is the same hub, its CA hash is mistyped",
			"hub", stored.Hub, "cluster", stored.ClusterName, "caHash", stored.CAHash, "given", l.o.CAHash)
	}
	return l.generateIdentity(ctx, stored)
}

// generateIdentity makes a key for this hub and stores it. stored is for another hub; nil without one.
func (l *HubLink) generateIdentity(ctx context.Context, stored *store.Identity) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the agent's key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the agent's key: %w", err)
	}
	id := &identity{key: key, Identity: store.Identity{
		KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		Hub:    l.o.Hub, CAHash: l.o.CAHash,
	}}
	if stored != nil {
		id.Former = cmp.Or(stored.ClusterUID, stored.Former)
		if id.Before = stored; len(stored.CertificatePEM) == 0 && stored.Before != nil {
			id.Before = stored.Before // nothing came of the one in between
		}
	}
	return id, l.o.Store.PutIdentity(ctx, id.Identity)
}

// isForThisHub reports whether an identity is for this hub, also where the hub has changed its CA since
// and announced the new one.
func (l *HubLink) isForThisHub(id *store.Identity) bool {
	return id.CAHash == l.o.CAHash || slices.Contains(l.o.FormerCAHashes, id.CAHash) || trust.PEMHasKeyHash(id.HubCAPEM, l.o.CAHash)
}

func parseIdentity(stored store.Identity) (*identity, error) {
	id := &identity{Identity: stored}
	block, _ := pem.Decode(stored.KeyPEM)
	if block == nil {
		return nil, errors.New("the stored key of the agent is damaged: delete Secret atoll-agent-identity in the member to join again")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the stored key of the agent: %w", err)
	}
	id.key = key.(crypto.Signer)
	if len(stored.CertificatePEM) > 0 {
		if id.cert, err = leafCertificate(stored.CertificatePEM); err != nil {
			return nil, fmt.Errorf("read the stored certificate of the agent: %w", err)
		}
		id.accepted, id.issuedAt = true, trust.IssuedAt(id.cert)
	}
	return id, nil
}

func leafCertificate(certPEM []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, errors.New("it is no PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// acceptCertificate verifies and stores a certificate that the hub issued for the agent's key. Nothing is stored
// with which no session could begin.
func (l *HubLink) acceptCertificate(ctx context.Context, certPEM, hubCA []byte) error {
	cert, err := leafCertificate(certPEM)
	if err != nil {
		return fmt.Errorf("read the certificate that the hub gave: %w", err)
	}
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(l.id.key.Public()) {
		return errors.New("the hub gave a certificate for another key")
	}
	if pair, err := tls.X509KeyPair(certPEM, l.id.KeyPEM); err != nil || !cert.Equal(pair.Leaf) {
		return fmt.Errorf("the hub gave a certificate by which no session can begin: %v", err)
	}
	if len(hubCA) > 0 {
		if _, err := trust.PoolFromPEM(hubCA); err != nil {
			return err
		}
	}
	l.mu.Lock()
	if len(hubCA) > 0 {
		l.id.HubCAPEM = hubCA
	}
	l.id.CertificatePEM, l.id.cert, l.id.accepted = certPEM, cert, true
	l.id.issuedAt, l.id.unsaved = time.Now().Round(0), true
	l.mu.Unlock()
	l.ticket.DropTicket()
	l.o.Metrics.certificate.Set(float64(cert.NotAfter.Unix()))
	return l.storeIdentity(ctx)
}

// storeIdentity stores an identity that the member has not taken yet. An unreachable member costs
// nothing: the certificate serves from memory, and a restarted agent still has the key, by which
// the hub identifies it.
func (l *HubLink) storeIdentity(ctx context.Context) error {
	l.mu.Lock()
	id, unsaved := l.id.Identity, l.id.unsaved
	l.mu.Unlock()
	if !unsaved {
		return nil
	}
	if err := l.o.Store.PutIdentity(ctx, id); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id.unsaved = false
	return nil
}

// notifyAdmittedIfStored reports that the hub has let the agent in, unless the member has not taken the
// identity yet.
func (l *HubLink) notifyAdmittedIfStored() {
	l.mu.Lock()
	stored := !l.id.unsaved
	l.mu.Unlock()
	if stored && l.o.Admitted != nil {
		l.o.Admitted()
	}
}

// joinUntilAccepted requests a certificate until the hub issues one. It returns an error only
// when ctx ends or the member's store fails.
func (l *HubLink) joinUntilAccepted(ctx context.Context) error {
	wait, told := &backoff{}, ""
	for {
		reply, err := l.requestJoin(ctx)
		d := 500 * time.Millisecond
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			if reply.GetState() == "Accepted" {
				return l.acceptReply(ctx, reply)
			}
			if told != reply.GetMessage() {
				told = reply.GetMessage()
				l.o.Log.Info("waiting to be accepted by the hub", "hub", l.currentHub(), "cluster", l.o.Name, "message", told)
			}
			wait.reset()
		case l.id.accepted && status.Code(err) == codes.PermissionDenied && l.hasNewToken():
			l.o.Log.Info("the hub refuses this agent's key; joining by the new token", "hub", l.currentHub())
			l.id.accepted = false
			continue
		default:
			if d = wait.next(session.CheckInSchedule{}); l.logJoinRefusal(err) {
				d = l.o.RefusedPause
			} else {
				if told != err.Error() {
					told = err.Error()
					l.o.Log.Warn("cannot join; trying on", "hub", l.currentHub(), "err", err)
				}
				l.switchToNextHub()
			}
		}
		if !pause.WaitFor(ctx, d) {
			return ctx.Err()
		}
	}
}

// acceptReply stores the certificate and the name that the hub issues.
func (l *HubLink) acceptReply(ctx context.Context, reply *pb.JoinReply) error {
	l.id.ClusterUID, l.id.ClusterName, l.id.Before = reply.GetClusterUid(), reply.GetClusterName(), nil
	if l.id.Former == l.id.ClusterUID {
		l.id.Former = "" // the same hub, by another CA
	}
	if !l.id.accepted {
		l.id.TokenID = tokenID(l.o.Token)
	}
	if err := l.acceptCertificate(ctx, reply.GetCertificate(), reply.GetHubCa()); err != nil {
		return err
	}
	l.o.Log.Info("joined", "hub", l.currentHub(), "cluster", l.id.ClusterName, "uid", l.id.ClusterUID)
	return nil
}

// logJoinRefusal logs that the hub refuses the cluster; false: err is no refusal.
func (l *HubLink) logJoinRefusal(err error) bool {
	code := status.Code(err)
	refused := slices.Contains([]codes.Code{codes.PermissionDenied, codes.AlreadyExists, codes.InvalidArgument}, code)
	if refused {
		l.o.Log.Error("the hub refuses to let this cluster in", "hub", l.currentHub(), "cluster", l.o.Name,
			"reason", code, "message", status.Convert(err).Message(), "nextTry", l.o.RefusedPause)
	}
	return refused
}

// requestJoin sends one join request to the hub.
func (l *HubLink) requestJoin(ctx context.Context) (*pb.JoinReply, error) {
	host, _, err := net.SplitHostPort(l.currentHub())
	if err != nil {
		return nil, fmt.Errorf("the hub's address %q is not HOST:PORT: %w", l.currentHub(), err)
	}
	config, err := trust.PinnedTLSConfig(host, l.o.CAHash, func(ca []byte) { l.storeHubCA(ca) })
	if err != nil {
		return nil, err
	}
	conn, err := l.dialHub(config)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	csr, err := trust.NewCertificateRequest(l.id.key, l.o.Name)
	if err != nil {
		return nil, err
	}
	token := l.o.Token
	if l.id.accepted {
		token = ""
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	reply, err := pb.NewRegistrationClient(conn).Join(ctx, &pb.JoinRequest{
		Token: token, Name: l.o.Name, Csr: csr, AgentVersion: l.o.Version,
	})
	l.currentRoute().switchRouteOnForeignHTTP(err)
	if err == nil {
		err = session.CheckLimits(reply)
	}
	return reply, err
}

// storeHubCA stores the CA that the pin accepted, for hubs that do not send
// theirs.
func (l *HubLink) storeHubCA(ca []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.id.HubCAPEM) == 0 {
		l.id.HubCAPEM = ca
	}
}

// joinTimeout is above the minute that the hub lets a call wait.
const joinTimeout = 90 * time.Second

const (
	// readBuffer is there as long as the connection is.
	readBuffer = 8 << 10
	// writeBuffer is there while something is written: two frames, and their heads, of
	// what goes through a tunnel.
	writeBuffer = 33 << 10
	// maxAnswerHeader bounds the header and the trailer of each answer of the hub. A call keeps them until its end,
	// and a hub has many calls.
	maxAnswerHeader = 16 << 10
	// tunnelWindow is how much may come of a tunnel, and twice as much of all together,
	// before it is read. It is fixed: finding the best one costs pings.
	tunnelWindow = 256 << 10
)

// connectTimeout of TCP and TLS together.
const connectTimeout = 20 * time.Second

// dialHub makes a connection with small buffers that finds half-open links by itself.
func (l *HubLink) dialHub(config *tls.Config) (*grpc.ClientConn, error) {
	w := l.currentRoute()
	conn, err := grpc.NewClient("passthrough:///"+l.currentHub(),
		grpc.WithTransportCredentials(routeCredentials{credentials.NewTLS(config), w}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: session.KeepaliveAgentTime, Timeout: session.KeepaliveAgentTimeout, PermitWithoutStream: true,
		}),
		grpc.WithContextDialer(w.dialRoute),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithReadBufferSize(readBuffer), grpc.WithWriteBufferSize(writeBuffer), grpc.WithSharedWriteBuffer(true),
		grpc.WithStaticStreamWindowSize(tunnelWindow), grpc.WithStaticConnWindowSize(2*tunnelWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(session.MaxFrameBytes), grpc.MaxCallSendMsgSize(session.MaxFrameBytes)),
		grpc.WithMaxHeaderListSize(maxAnswerHeader), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("dial the hub at %s: %w", l.currentHub(), err)
	}
	return conn, nil
}

// sessionTLS shows our certificate and trusts the hub's CAs.
func (l *HubLink) sessionTLS() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(l.currentHub())
	if err != nil {
		return nil, fmt.Errorf("the hub's address %q is not HOST:PORT: %w", l.currentHub(), err)
	}
	pair, err := tls.X509KeyPair(l.id.CertificatePEM, l.id.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("the agent's stored certificate: %w", err)
	}
	roots, err := trust.PoolFromPEM(l.id.HubCAPEM)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: roots, Certificates: []tls.Certificate{pair},
		ClientSessionCache: l.ticket.CacheForHub(l.currentHub()),
	}, nil
}
