package delivery

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/tunnel"
)

var serverAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}

func newKeyPair(t testing.TB, certPEM []byte, key *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var keyPEM bytes.Buffer
	if err := pem.Encode(&keyPEM, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}); err != nil {
		t.Fatal(err)
	}
	p, err := tls.X509KeyPair(certPEM, keyPEM.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testAgent speaks the real protocol with the real core, and stores in memory.
type testAgent struct {
	h   *testHub
	id  tls.Certificate
	key crypto.Signer
	// tickets for TLS resumption; nil: none are kept.
	tickets tls.ClientSessionCache
	resumed atomic.Bool // the last handshake was by a ticket
	roots   []byte      // CAs in PEM by which it verifies the hub; nil: the first one

	by    []grpc.DialOption // how the hub is dialled
	older bool              // it reads no listed assessments
	// dialled gets the id of a requested tunnel; conn is the connection of the session.
	dialled func(id string)
	conn    *grpc.ClientConn
	share   tunnel.SendBudget // of its tunnels

	mu      sync.Mutex
	core    *session.Agent
	stored  map[string]atoll.Manifest
	objects map[string]json.RawMessage
	frames  map[string]int  // by kind, since the last connect
	bytes   int             // of Upserts and Objects, since the last connect
	timed   map[string]bool // bundles whose last Upsert requested a timing
	refused *pb.Refused
	leave   *pb.Leave
	welcome *pb.Welcome
	renewed *pb.Renewed
	sendAPI bool
	stop    context.CancelFunc
	stream  pb.Session_ConnectClient
	closed  chan struct{}
	err     error
}

func (h *testHub) newAgent(id tls.Certificate, instance string) *testAgent {
	a := &testAgent{h: h, id: id, stored: map[string]atoll.Manifest{}, objects: map[string]json.RawMessage{}}
	a.key = id.PrivateKey.(crypto.Signer)
	a.core = session.NewAgent(session.AgentOptions{Version: "test", Instance: instance, Object: a.storedObject, Tunnels: true, Leaves: true}, session.Memory{})
	return a
}

func (a *testAgent) storedObject(_, hash string) (json.RawMessage, bool) {
	o, ok := a.objects[hash]
	return o, ok
}

// connectSession opens a session and serves it in the background.
func (a *testAgent) connectSession() {
	a.h.t.Helper()
	roots := a.h.keys.ClusterCA.CertPool()
	if a.roots != nil {
		var err error
		if roots, err = trust.PoolFromPEM(a.roots); err != nil {
			a.h.t.Fatal(err)
		}
	}
	conn := a.h.dialHub(&tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: roots, Certificates: []tls.Certificate{a.id},
		ClientSessionCache: a.tickets,
		VerifyConnection: func(s tls.ConnectionState) error {
			a.resumed.Store(s.DidResume)
			return nil
		},
	}, a.by...)
	ctx, cancel := context.WithCancel(a.h.t.Context())
	stream, err := pb.NewSessionClient(conn).Connect(ctx)
	if err != nil {
		a.h.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop, a.stream, a.closed, a.conn = cancel, stream, make(chan struct{}), conn
	a.frames, a.bytes, a.refused, a.leave, a.welcome, a.err = map[string]int{}, 0, nil, nil, nil, nil
	hello := a.core.BeginSession()
	hello.GetHello().ListsAssessments = !a.older
	if err := stream.Send(hello); err != nil {
		a.h.t.Logf("send Hello: %v", err)
	}
	go a.runSession(stream, a.closed)
}

// cutStream ends the stream and waits for its end.
func (a *testAgent) cutStream() {
	a.stop()
	<-a.closed
}

func (a *testAgent) runSession(stream pb.Session_ConnectClient, closed chan struct{}) {
	defer close(closed)
	for {
		f, err := stream.Recv()
		if err != nil {
			a.mu.Lock()
			a.err = err
			a.mu.Unlock()
			return
		}
		a.mu.Lock()
		a.countFrame(f)
		a.applyOutput(stream, a.core.HandleFrame(f))
		a.mu.Unlock()
	}
}

func (a *testAgent) countFrame(f *pb.FromHub) {
	a.frames[fmt.Sprintf("%T", f.GetFrame())[len("*sessionpb.FromHub_"):]]++
	a.bytes += len(f.GetUpsert().GetManifest())
	if u := f.GetUpsert(); u != nil {
		put(&a.timed, u.GetBundle(), u.GetTiming())
	}
	for _, o := range f.GetObjects().GetObjects() {
		a.bytes += len(o)
	}
}

// queueOutput carries out an output. The caller holds the lock.
func (a *testAgent) applyOutput(stream pb.Session_ConnectClient, out session.AgentOutput) {
	if out.Refused != nil {
		a.refused = out.Refused
	}
	if out.Leave != nil {
		a.leave = out.Leave
	}
	if out.Welcome != nil {
		a.welcome = out.Welcome
	}
	if out.Renewed != nil {
		a.renewed = out.Renewed
	}
	if out.Dial != nil && a.dialled != nil {
		go a.dialled(out.Dial.GetId())
	}
	a.sendAPI = a.sendAPI || out.SendAPIs
	for _, err := range out.Rejected {
		a.h.t.Errorf("the agent rejected a frame: %v", err)
	}
	a.send(stream, out.Frames)
	for _, m := range out.Store {
		a.stored[m.Bundle] = m
		for _, i := range m.Items {
			a.objects[i.Hash] = i.Object
		}
		a.send(stream, a.core.ManifestStored(m.Bundle, m.Generation, m.Content).Frames)
		if m.Remove {
			a.send(stream, a.core.ReportStatus(m.Bundle, atoll.RowStatus{Generation: m.Generation, Content: m.Content, State: atoll.RowRemoved}, 0).Frames)
		}
	}
	for bundle := range out.Forget {
		delete(a.stored, bundle)
	}
}

func (a *testAgent) send(stream pb.Session_ConnectClient, frames []*pb.FromAgent) {
	for _, f := range frames {
		if err := stream.Send(f); err != nil {
			return // Recv has the error
		}
	}
}

// reportStatus sends a status to the hub.
func (a *testAgent) reportStatus(bundle string, s atoll.RowStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(a.stream, a.core.ReportStatus(bundle, s, 0).Frames)
}

// reportReady reports that the stored manifest is ready.
func (a *testAgent) reportReady(bundle string) {
	a.mu.Lock()
	m := a.stored[bundle]
	a.mu.Unlock()
	a.reportStatus(bundle, atoll.RowStatus{Generation: m.Generation, Content: m.Content, State: atoll.RowReady, Applied: true, Total: int32(len(m.Items)), Ready: int32(len(m.Items))})
}

// checkLocked calls fn under the agent's lock.
func (a *testAgent) checkLocked(fn func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fn()
}

// receivedBytes is how many bytes of manifests and objects came since the last connect.
func (a *testAgent) receivedBytes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes
}

// holdsManifest returns a check that the agent stored that content at that generation.
func (a *testAgent) holdsManifest(bundle, content string, generation int64) func() bool {
	return func() bool {
		return a.checkLocked(func() bool {
			m, ok := a.stored[bundle]
			return ok && m.Content == content && m.Generation == generation
		})
	}
}

// csrSigner makes certificate requests with a key.
type csrSigner struct{ crypto.Signer }

func (s csrSigner) createCSR(t *testing.T) []byte {
	t.Helper()
	der, err := trust.NewCertificateRequest(s.Signer, "renew")
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// privateKeyOf returns the key of a certificate.
func privateKeyOf(id tls.Certificate) *ecdsa.PrivateKey { return id.PrivateKey.(*ecdsa.PrivateKey) }
