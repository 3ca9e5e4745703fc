package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"atoll.dev/atoll/internal/agent/apply"
	"atoll.dev/atoll/internal/agent/inventory"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
)

// member is a member's store and engine in memory. An applied object becomes Ready on the test's
// command.
type member struct {
	mu       sync.Mutex
	identity store.Identity
	seq      int64
	// full refuses to store, and hasMemory reports that this would work now.
	full      atomic.Pointer[store.MemoryFullError]
	hasMemory atomic.Bool
	held      map[string]atoll.Manifest
	ready     map[string]bool
	changed   func(string)
}

func (m *member) LoadIdentity(context.Context) (*store.Identity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.identity
	return &id, nil
}

func (m *member) PutIdentity(_ context.Context, id store.Identity) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity = id
	return nil
}

func (m *member) PutReports(context.Context, store.Reports) error { return nil }

func (m *member) NextSequence(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	return m.seq, nil
}

func (m *member) UpsertManifest(_ context.Context, order atoll.Manifest, _ store.Position) error {
	if full := m.full.Load(); full != nil {
		return full
	}
	m.mu.Lock()
	m.held[order.Bundle] = order
	m.mu.Unlock()
	m.changed(order.Bundle)
	return nil
}

func (m *member) HasMemory(*store.MemoryFullError) bool                            { return m.hasMemory.Load() }
func (m *member) ForgetRemovedBundle(context.Context, string, time.Time) error     { return nil }
func (m *member) ObjectByHash(string) (json.RawMessage, bool)                      { return nil, false }
func (m *member) CarriedOut(string) []atoll.Tombstone                              { return nil }
func (m *member) ReceivedManifests() []apply.ReceivedManifest                      { return nil }
func (m *member) IsWantedAgain(string, *atoll.Tombstone) bool                      { return false }
func (m *member) ReleaseAll(context.Context, bool, func(string)) ([]string, error) { return nil, nil }

func (m *member) StatusOf(bundle string, _ *atoll.RowStatus, _ time.Time) (atoll.RowStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	order, held := m.held[bundle]
	s := atoll.RowStatus{Generation: order.Generation, Content: order.Content, State: atoll.RowProgressing}
	if m.ready[bundle] {
		s.State = atoll.RowReady
	}
	return s, held
}

func (m *member) becomesReady(bundle string) {
	m.mu.Lock()
	m.ready[bundle] = true
	m.mu.Unlock()
	m.changed(bundle)
}

// begun is when a session began, and when the agent had said that it would; that is
// in 1970 for the first one.
type begun struct {
	at, said time.Time
	resumed  bool // by a ticket
}

// hub speaks the hub's end by the real core.
type hub struct {
	pb.UnimplementedSessionServer
	t        *testing.T
	sign     func(public any, lifetime time.Duration) []byte
	lifetime time.Duration
	next     func() time.Time // check-in that the agent announces

	mu       sync.Mutex
	every    uint32
	rows     map[string]atoll.Manifest
	statuses map[string]atoll.RowStatus
	begun    []begun
	ended    int
	renewed  int
	// The living session.
	tell              func(*pb.FromHub) error
	inventoried, idle bool
}

func (h *hub) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	hello, err := rpc.Recv()
	if err != nil {
		return err
	}
	h.mu.Lock()
	who, _ := peer.FromContext(rpc.Context())
	h.begun = append(h.begun, begun{time.Now(), h.next(), who.AuthInfo.(credentials.TLSInfo).State.DidResume})
	h.tell, h.inventoried, h.idle = rpc.Send, false, false
	_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{ClusterName: "shop", ClusterUid: "uid", CheckInSeconds: h.every}}})
	var wants []session.Entry
	for bundle, m := range h.rows {
		want := session.Entry{Bundle: bundle, Generation: m.Generation}
		if st, ok := h.statuses[bundle]; ok {
			want.Content, want.Status = m.Content, session.StatusHash(st)
		}
		wants = append(wants, want)
	}
	core, out := session.NewHubSession(hello.GetHello(), wants, false)
	h.handleOutput(rpc, core, out)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.ended++
		h.tell = nil
		h.mu.Unlock()
	}()
	for {
		f, err := rpc.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.handleOutput(rpc, core, core.HandleFrame(f))
		h.mu.Unlock()
	}
}

func (h *hub) handleOutput(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub], core *session.HubSession, out session.HubOutput) {
	for _, f := range out.Frames {
		_ = rpc.Send(f)
	}
	for _, o := range out.Orders {
		m := h.rows[o.Bundle]
		body, _ := session.NewPayload(m).Encode(nil)
		_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: o.Bundle, Generation: m.Generation, Manifest: body}}})
	}
	for _, r := range out.Reports {
		var s atoll.RowStatus
		if json.Unmarshal(r.GetStatus(), &s) == nil {
			h.statuses[r.GetBundle()] = s
		}
		_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: r.GetBundle(), Seq: r.GetSeq()}}})
	}
	if out.Renew != nil {
		if request, err := trust.ParseCertificateRequest(out.Renew.GetCsr()); err == nil {
			h.renewed++
			_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Renewed{Renewed: &pb.Renewed{Certificate: h.sign(request.Public, h.lifetime)}}})
		}
	}
	if h.inventoried = h.inventoried || out.Inventory != nil; h.inventoried && core.IsSynced() && !h.idle && h.every > 0 {
		h.idle = true
		_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: h.every}}})
	}
}

func (h *hub) orderBundle(bundle string, generation int64) {
	m := atoll.Manifest{Bundle: bundle, Generation: generation}
	m.Content = atoll.HashJSON([]any{bundle, generation})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows[bundle] = m
	delete(h.statuses, bundle)
}

func (h *hub) waitUntil(what string, cond func() bool) {
	h.t.Helper()
	testwait.UntilTrue(h.t, what, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return cond()
	})
}

func (h *hub) hasState(bundle string) func() bool {
	return func() bool { return h.statuses[bundle].State == atoll.RowReady }
}

// newAuthority of a hub that is its own CA.
func newAuthority(t *testing.T) (ca *x509.Certificate, key *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return ca, key
}

// signCertificate certificate of an agent's key, in PEM.
func signCertificate(t *testing.T, ca *x509.Certificate, caKey *ecdsa.PrivateKey, public any, from, to time.Time) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, public, caKey)
	if err != nil {
		t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func signedPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// age of the certificates of the hub of these tests.
const age = 30 * time.Second

// newLinkedMember starts a hub and an agent that has joined it, whose certificate lives on for that
// long.
func newLinkedMember(t *testing.T, every uint32, lifetime time.Duration) (*hub, *member, *Metrics) {
	t.Helper()
	ca, caKey := newAuthority(t)
	h := &hub{t: t, every: every, lifetime: time.Hour, rows: map[string]atoll.Manifest{}, statuses: map[string]atoll.RowStatus{}}
	h.sign = func(public any, lifetime time.Duration) []byte {
		return signCertificate(t, ca, caKey, public, time.Now().Add(-trust.Backdated-age), time.Now().Add(lifetime))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{ca.Raw}, PrivateKey: caKey}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})))
	pb.RegisterSessionServer(server, h)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	_, key := newAuthority(t)
	m := &member{held: map[string]atoll.Manifest{}, ready: map[string]bool{}, identity: store.Identity{
		KeyPEM: keyPEM(t, key), CertificatePEM: h.sign(key.Public(), lifetime),
		HubCAPEM: signedPEM(ca), CAHash: trust.CertificateKeyHash(ca), ClusterUID: "uid", ClusterName: "shop",
	}}
	metrics := NewMetrics(prometheus.NewRegistry())
	h.next = func() time.Time { return time.UnixMilli(int64(testutil.ToFloat64(metrics.next) * 1000)) }
	l := New(Options{
		Hub: listener.Addr().String(), CAHash: trust.CertificateKeyHash(ca), Name: "shop", Version: "test", Store: m,
		Inventory: func() inventory.Snapshot { return inventory.Snapshot{Version: "v1.36.3", Answers: true} }, Metrics: metrics, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, store.StoredContents{})
	m.changed = l.BundleStatusChanged
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, m, m) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h, m, metrics
}

// Sessions come at the agent's turns, when it said that they would, and end by
// themselves; orders are taken over at the next one.
func TestCheckIns(t *testing.T) {
	t.Parallel()
	const every = 2 * time.Second
	h, m, _ := newLinkedMember(t, uint32(every/time.Second), time.Hour)
	m.ready["web"] = true
	h.orderBundle("web", 1)
	first := 0
	h.waitUntil("delivered, reported, and over", func() bool {
		first = len(h.begun)
		return h.hasState("web")() && h.ended == first
	})
	// The first that follows is early if the agent did not learn that its report came.
	h.waitUntil("four more", func() bool { return h.ended >= first+4 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := 1; i < len(h.begun); i++ {
		if b := h.begun[i]; b.at.Before(b.said) || !b.resumed {
			t.Errorf("a session began at %s, its turn was at %s; resumed is %t", b.at, b.said, b.resumed)
		}
		if i < first+2 {
			continue
		}
		// A slow machine misses turns; those that it keeps are whole intervals apart,
		// moved by a twentieth at most.
		apart := h.begun[i].said.Sub(h.begun[i-1].said)
		if off := (apart - apart.Round(every)).Abs(); apart < every/2 || off > every/20 {
			t.Errorf("%s between turns every %s", apart, every)
		}
	}
}

// A row that becomes healthy after its session is reported at an early check-in.
func TestATurnBringsTheCheckInForward(t *testing.T) {
	t.Parallel()
	const every = 10 * time.Second
	h, m, _ := newLinkedMember(t, uint32(every/time.Second), time.Hour)
	h.orderBundle("web", 1) // before the first session, or at the next
	var sessions int
	var regular time.Time
	h.waitUntil("delivered, and the next check-in is a while away", func() bool {
		sessions, regular = len(h.begun), h.next()
		return h.statuses["web"].State == atoll.RowProgressing && h.ended == sessions && time.Until(regular) > every*3/5
	})
	m.becomesReady("web")
	h.waitUntil("reported", h.hasState("web"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.begun[len(h.begun)-1]; len(h.begun) != sessions+1 || !last.said.Before(regular) {
		t.Errorf("%d sessions more, the last said to be at %s, the next regular one at %s", len(h.begun)-sessions, last.said, regular)
	}
}

// A certificate that would be due before the next check-in is renewed at this one.
func TestCheckInsRenewInTime(t *testing.T) {
	t.Parallel()
	h, m, _ := newLinkedMember(t, 3600, 80*time.Minute)
	before := m.identity.CertificatePEM
	h.waitUntil("renewed and over", func() bool { return h.renewed == 1 && h.ended == 1 })
	if after, err := m.LoadIdentity(t.Context()); err != nil || string(after.CertificatePEM) == string(before) {
		t.Errorf("the certificate is not kept: %v", err)
	}
}

// One that would not last until the next check-in is not renewed: at that one the agent asks
// by its key.
func TestACertificateThatDoesNotLastIsNotRenewed(t *testing.T) {
	t.Parallel()
	h, _, _ := newLinkedMember(t, 3600, 10*time.Minute)
	h.waitUntil("over", func() bool { return h.ended == 1 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewed != 0 {
		t.Errorf("%d renewals", h.renewed)
	}
}

// A session by a ticket would speak for the certificate before.
func TestARenewedCertificateIsShown(t *testing.T) {
	t.Parallel()
	// The first certificate is due before the second check-in; the one after it is not.
	h, _, _ := newLinkedMember(t, 2, 25*time.Second)
	h.waitUntil("renewed at the first, and two more", func() bool { return h.ended >= 3 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewed != 1 || h.begun[1].resumed || !h.begun[2].resumed {
		t.Errorf("%d renewals; resumed: %+v", h.renewed, h.begun)
	}
}

// An agent whose hub changes its mind comes back to its stream, and leaves it again.
func TestConnectionsChange(t *testing.T) {
	t.Parallel()
	h, _, metrics := newLinkedMember(t, 0, time.Hour)
	h.waitUntil("linked", func() bool { return h.tell != nil })
	h.mu.Lock()
	h.every = 1
	err := h.tell(&pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: 1}}})
	h.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	h.waitUntil("three check-ins", func() bool { return h.ended >= 3 })
	h.mu.Lock()
	h.every = 0
	h.mu.Unlock()
	h.waitUntil("a stream that stays", func() bool { return h.tell != nil && time.Since(h.begun[len(h.begun)-1].at) > 3*time.Second })
	if testutil.ToFloat64(metrics.next) != 0 {
		t.Error("a next check-in is announced")
	}
}
