package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/trust"
)

// How a fleet connects
//
// A handshake costs a core most of a millisecond. When a hub restarts, all its agents dial
// at once, and API calls of users would wait behind thousands of handshakes. Therefore
// handshakes start at a rate that leaves most of the machine free (pace.HandshakesPerCore).
// A few at once never wait. Agents that show a valid ticket go first, and the networks of the
// others take turns. A connection that would wait longer than queueLimit is closed before its
// handshake starts. Its agent dials again after a backoff.

const (
	// resumptionRefund is the part of a full handshake that a resumed one saves the hub.
	// BenchmarkHandshake measures it.
	resumptionRefund = 0.35
	// queueLimit is how long a connection waits for its handshake at most. Agents wait for 20
	// s.
	queueLimit = 15 * time.Second
	// maxSilent is how many connections may be open that have not sent the first record of a
	// handshake. Each costs a goroutine and no cryptography.
	maxSilent = 4000
	// handshakesPerCore is how many handshakes may have begun and not ended, for each core: those
	// of 8 s. Each holds some 30 KB.
	handshakesPerCore = 2000
)

// tlsAcceptor does the TLS handshakes of all connections, in the order of its queue.
// Agents go to the server of agents, HTTP/1.1 to the server of WebSockets, everything else to the
// gRPC server. It keeps only the identity of a connection. It is safe for concurrent use.
type tlsAcceptor struct {
	trust      func() *Trust
	queue      *fairness.ConnectionQueue
	serveAgent func(net.Conn, credentials.AuthInfo)
	serveHTTP  func(net.Conn)
	// strangers are callers without a certificate.
	strangers *uncertifiedConnServer

	silent     *fairness.ConnectionPlaces // of connections that have sent nothing yet
	handshakes *fairness.ConnectionPlaces // of connections that have had their turn

	state atomic.Pointer[tlsState]
}

// tlsState is the TLS configuration of one Trust. Its tickets are not valid under another.
type tlsState struct {
	trust  *Trust
	config *tls.Config
}

func (g *Gateway) newTLSAcceptor(agents func(net.Conn, credentials.AuthInfo), http func(net.Conn), strangers *uncertifiedConnServer) *tlsAcceptor {
	return &tlsAcceptor{
		trust: g.options.Trust, queue: fairness.NewQueue(pace.HandshakesPerCore.Times(runtime.GOMAXPROCS(0)), queueLimit),
		silent: fairness.NewPlaces(maxSilent), handshakes: fairness.NewPlaces(handshakesPerCore * runtime.GOMAXPROCS(0)),
		serveAgent: agents, serveHTTP: http, strangers: strangers,
	}
}

// currentState returns the TLS configuration of the present Trust.
func (d *tlsAcceptor) currentState() *tlsState {
	was, t := d.state.Load(), d.trust()
	if was != nil && was.trust == t {
		return was
	}
	e := &tlsState{trust: t, config: &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{t.Serving},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    t.AgentCAs,
		NextProtos:   []string{"h2", "http/1.1"},
	}}
	enableResumption(e.config)
	balancers := t.balancerConfig()
	e.config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, "h2") {
			return nil, nil // the configuration above
		}
		return balancers, nil
	}
	if !d.state.CompareAndSwap(was, e) {
		return d.currentState() // one configuration makes all tickets
	}
	return e
}

// balancerConfig is the TLS configuration for clients that do not speak HTTP/2. Many load
// balancers support only TLS 1.2 towards their backends (Envoy, and nginx before 1.23.4).
// The connections that they carry use TLS 1.3 themselves. No client certificate is
// requested.
func (t *Trust) balancerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{t.Serving},
		NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
	}
}

// peerAuth is the identity of the peer of a connection.
type peerAuth struct {
	credentials.CommonAuthInfo
	identity            // zero unless the certificate is an agent's
	verified bool       // a certificate of the agents' CA was shown
	subject  *pkix.Name // of a certificate that is not an agent's
	rawConn  *trackedConn
	tlsConn  *tls.Conn // of an agent
	// certificate of an agent, and the transport of its connection.
	certificate certificateInfo
	transport   string
}

// Subject returns the subject of the certificate of a peer that is not an agent; nil where none was shown.
func (v *peerAuth) Subject() *pkix.Name { return v.subject }

// AuthType returns the name of the protocol.
func (*peerAuth) AuthType() string { return "tls" }

// awaitHandshakeTurn waits until the connection begins its handshake, and then for its turn.
func (d *tlsAcceptor) awaitHandshakeTurn(from *limitedConn, network string) (*helloConn, *tlsState, error) {
	release := d.silent.Take(network, func() { from.Close() })
	begun, err := readHello(from.trackedConn)
	release()
	if err != nil {
		return nil, nil, err
	}
	entry := d.currentState()
	return begun, entry, d.queue.Wait(network, holdsValidTicket(begun.head, entry.config))
}

// ServerHandshake waits for the first record of the handshake, then for the connection's turn, and
// does the handshake. The connection of an agent is then served by another goroutine, whose stack
// no handshake has grown.
func (d *tlsAcceptor) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	from := raw.(*limitedConn)
	network := fairness.NetworkOf(raw.RemoteAddr())
	begun, entry, err := d.awaitHandshakeTurn(from, network)
	if err != nil {
		raw.Close()
		return nil, nil, err
	}
	conn, err := d.performHandshake(begun, entry, network)
	if err != nil {
		raw.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return nil, nil, d.handOverHTTP(conn, from)
	}
	if state.DidResume {
		d.queue.ReturnUnusedTurn(resumptionRefund)
	}
	v := newPeerAuth(state, from.trackedConn)
	if !v.verified {
		from.handedOver = true
		return nil, nil, d.strangers.serveConn(conn, v)
	}
	if v.uid == "" {
		return conn, v, nil
	}
	v.tlsConn, v.certificate, v.transport = conn, entry.trust.certificateInfoOf(state), from.transportName()
	from.handedOver = true
	go d.serveAgent(conn, v)
	return nil, nil, credentials.ErrConnDispatched
}

// performHandshake does the handshake of a connection that has its turn.
func (d *tlsAcceptor) performHandshake(begun *helloConn, entry *tlsState, network string) (*tls.Conn, error) {
	release := d.handshakes.Take(network, func() { begun.Close() })
	defer release()
	if err := begun.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, fmt.Errorf("bound the handshake: %w", err)
	}
	begun.lastReadNanos.Store(time.Now().UnixNano())
	conn := tls.Server(begun, entry.config)
	return conn, conn.Handshake()
}

// handOverHTTP passes a connection without HTTP/2 to the HTTP server: that of a load
// balancer. A connection within a WebSocket is refused.
func (d *tlsAcceptor) handOverHTTP(conn *tls.Conn, from *limitedConn) error {
	if from.viaWebSocket {
		conn.Close()
		return errors.New("the other end of a WebSocket does not speak HTTP/2")
	}
	if err := from.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return fmt.Errorf("after the handshake: %w", err)
	}
	from.handedOver = true
	d.serveHTTP(conn)
	return credentials.ErrConnDispatched
}

func newPeerAuth(state tls.ConnectionState, l *trackedConn) *peerAuth {
	v := &peerAuth{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, rawConn: l}
	if len(state.VerifiedChains) == 0 {
		return v
	}
	v.verified = true
	if v.identity = identityOf(state); v.uid == "" {
		v.subject = &state.VerifiedChains[0][0].Subject
	}
	return v
}

// certificateInfoOf returns what is known of the certificate of an agent.
func (t *Trust) certificateInfoOf(state tls.ConnectionState) certificateInfo {
	chain := state.VerifiedChains[0]
	generation, edition := t.SignedBy(chain[len(chain)-1]), 0
	if generation == t.Generation {
		edition = t.Edition // as far as this end can see
	}
	return newCertificateInfo(chain[0], generation, edition)
}

// identityOf returns the identity of the agent at the other end; zero if the peer is not
// an agent.
func identityOf(state tls.ConnectionState) identity {
	if len(state.VerifiedChains) == 0 {
		return identity{}
	}
	cert := state.VerifiedChains[0][0]
	uid, ok := strings.CutPrefix(cert.Subject.CommonName, atoll.UserClusterPrefix)
	if !ok || !slices.Contains(cert.Subject.Organization, atoll.GroupAgents) {
		return identity{}
	}
	return identity{uid: uid, keyHash: trust.CertificateKeyHash(cert)}
}

// ClientHandshake always fails: the gateway does not dial.
func (*tlsAcceptor) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the gateway does not dial")
}

// Info describes the protocol.
func (*tlsAcceptor) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns the same tlsAcceptor, so that all handshakes share one limiter.
func (d *tlsAcceptor) Clone() credentials.TransportCredentials { return d }

// OverrideServerName does nothing: servers have no use for it.
func (*tlsAcceptor) OverrideServerName(string) error { return nil }
