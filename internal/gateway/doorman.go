package gateway

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
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

// How a fleet comes in
//
// A handshake costs a core most of a millisecond. When a hub comes back all its agents
// dial at once, and people's calls would wait behind thousands of handshakes. So
// handshakes begin at a rate that leaves most of the machine to others, in the order
// in which agents came; a few at once never wait. Who would wait for longer than
// queueLimit is turned away before anything was done for him, and comes back after
// his backoff.

const (
	// handshakesPerCore and second that may begin while many wait.
	handshakesPerCore = 250
	// resumedSpares is the part of a full handshake's work that one by a ticket does not
	// cost the hub, as BenchmarkHandshake tells.
	resumedSpares = 0.35
	// handshakesAtOnce may begin without waiting.
	handshakesAtOnce = 100
	// queueLimit is how long a connection waits for its handshake at most. Agents
	// wait for 20 s.
	queueLimit = 15 * time.Second
)

// errBusy turns a connection away.
var errBusy = errors.New("too many connections wait for their handshake")

// doorman does TLS for all who come, at the pace that turnstile allows. It keeps of a
// connection only who it is. Agents are shown to the server that is theirs, who speaks
// HTTP/1.1 to that of WebSockets, everybody else to gRPC's own. It is safe for concurrent
// use.
type doorman struct {
	trust  func() *Trust
	turns  *turnstile
	agents func(net.Conn, credentials.AuthInfo)
	http   func(net.Conn)

	entry atomic.Pointer[entry]
}

// entry is how TLS is done under one Trust. Its tickets are worth nothing under another.
type entry struct {
	trust  *Trust
	config *tls.Config
}

func (g *Gateway) doorman(agents func(net.Conn, credentials.AuthInfo), http func(net.Conn)) *doorman {
	return &doorman{trust: g.o.Trust, turns: newTurnstile(handshakesPerCore*runtime.GOMAXPROCS(0), handshakesAtOnce), agents: agents, http: http}
}

// now is how TLS is done at the moment.
func (d *doorman) now() *entry {
	was, t := d.entry.Load(), d.trust()
	if was != nil && was.trust == t {
		return was
	}
	e := &entry{trust: t, config: &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{t.Serving},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    t.AgentCAs,
		NextProtos:   []string{"h2", "http/1.1"},
	}}
	resumable(e.config)
	balancers := t.balancers()
	e.config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, "h2") {
			return nil, nil // as above
		}
		return balancers, nil
	}
	if !d.entry.CompareAndSwap(was, e) {
		return d.now() // so that there is one that makes tickets
	}
	return e
}

// balancers are whom TLS is done with so who do not speak HTTP/2. Many of them know, or are
// set to, no newer TLS than 1.2 towards what is behind them (Envoy, and nginx before 1.23.4);
// what they carry is TLS 1.3 by itself. They are asked for no certificate.
func (t *Trust) balancers() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{t.Serving},
		NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
	}
}

// visitor is who is at the other end of a connection.
type visitor struct {
	credentials.CommonAuthInfo
	identity            // zero unless the certificate is an agent's
	verified bool       // a certificate of the agents' CA was shown
	subject  *pkix.Name // of that certificate, where it is not an agent's
	line     *line
	conn     *tls.Conn // of an agent
	// certificate that an agent came by, and how its connection comes.
	certificate certified
	carriage    string
}

// Subject of the certificate of who is no agent; nil where none was shown.
func (v *visitor) Subject() *pkix.Name { return v.subject }

// AuthType names the protocol.
func (*visitor) AuthType() string { return "tls" }

// ServerHandshake waits for its turn and does TLS. An agent's connection is served
// elsewhere from then on, by a goroutine whose stack no handshake has grown.
func (d *doorman) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	wait, ok := d.turns.take(time.Now())
	if !ok {
		raw.Close()
		return nil, nil, errBusy
	}
	if wait > 0 {
		<-time.After(wait)
	}
	from := raw.(*guest)
	if err := from.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, nil, fmt.Errorf("bound the handshake: %w", err)
	}
	from.last.Store(time.Now().UnixNano())
	entry := d.now()
	conn := tls.Server(from.line, entry.config)
	if err := conn.Handshake(); err != nil {
		conn.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return nil, nil, d.visit(conn, from)
	}
	if state.DidResume {
		d.turns.refund(resumedSpares)
	}
	v := visitorOf(state, from.line)
	if v.uid == "" {
		return conn, v, nil
	}
	v.conn, v.certificate, v.carriage = conn, entry.trust.certified(state), from.carriage()
	from.gone = true
	go d.agents(conn, v)
	return nil, nil, credentials.ErrConnDispatched
}

// visit of who does not speak HTTP/2: a balancer, as long as it comes by no WebSocket
// itself.
func (d *doorman) visit(conn *tls.Conn, from *guest) error {
	if from.carried {
		conn.Close()
		return errors.New("the other end of a WebSocket does not speak HTTP/2")
	}
	if err := from.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return fmt.Errorf("after the handshake: %w", err)
	}
	from.gone = true
	d.http(conn)
	return credentials.ErrConnDispatched
}

func visitorOf(state tls.ConnectionState, l *line) *visitor {
	v := &visitor{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, line: l}
	if len(state.VerifiedChains) == 0 {
		return v
	}
	v.verified = true
	if v.identity = identityOf(state); v.uid == "" {
		v.subject = &state.VerifiedChains[0][0].Subject
	}
	return v
}

// certified is what is known of the certificate by which an agent has come.
func (t *Trust) certified(state tls.ConnectionState) certified {
	chain := state.VerifiedChains[0]
	generation, edition := t.SignedBy(chain[len(chain)-1]), 0
	if generation == t.Generation {
		edition = t.Edition // as far as this end can tell
	}
	return certifiedBy(chain[0], generation, edition)
}

// identityOf the agent at the other end; zero where no agent is.
func identityOf(state tls.ConnectionState) identity {
	if len(state.VerifiedChains) == 0 {
		return identity{}
	}
	cert := state.VerifiedChains[0][0]
	uid, ok := strings.CutPrefix(cert.Subject.CommonName, atoll.UserClusterPrefix)
	if !ok || !slices.Contains(cert.Subject.Organization, atoll.GroupAgents) {
		return identity{}
	}
	return identity{uid: uid, keyHash: trust.CertificateHash(cert)}
}

// ClientHandshake is not this end's.
func (*doorman) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the gateway dials nobody")
}

// Info about the protocol.
func (*doorman) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone gives the same doorman, so that there is one pace.
func (d *doorman) Clone() credentials.TransportCredentials { return d }

// OverrideServerName is a client's.
func (*doorman) OverrideServerName(string) error { return nil }

// turnstile lets a number through per second, in order, after a number at once. It is
// safe for concurrent use.
type turnstile struct {
	each  time.Duration
	burst time.Duration // in time: how far behind the clock it may fall

	mu   sync.Mutex
	next time.Time // when the next one may pass
}

func newTurnstile(perSecond, atOnce int) *turnstile {
	each := time.Second / time.Duration(perSecond)
	return &turnstile{each: each, burst: time.Duration(atOnce) * each}
}

// take a turn: after wait; ok is false where the queue is too long.
func (t *turnstile) take(now time.Time) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := now.Add(-t.burst); t.next.Before(first) {
		t.next = first
	}
	if wait = t.next.Sub(now); wait > queueLimit {
		return 0, false
	}
	t.next = t.next.Add(t.each)
	return max(wait, 0), true
}

// refund a part of a turn that was taken and has cost so much less.
func (t *turnstile) refund(part float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = t.next.Add(-time.Duration(part * float64(t.each)))
}
