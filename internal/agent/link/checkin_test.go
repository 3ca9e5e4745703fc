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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/internal/agent/apply"
	"atoll.dev/atoll/internal/agent/inventory"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// member is a member's store and engine in memory. What it applies becomes Ready when
// the test says so.
type member struct {
	mu       sync.Mutex
	identity store.Identity
	seq      int64
	held     map[string]atoll.Manifest
	ready    map[string]bool
	changed  func(string)
}

func (m *member) Identity(context.Context) (*store.Identity, error) {
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

func (m *member) Seq(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	return m.seq, nil
}

func (m *member) Upsert(_ context.Context, order atoll.Manifest, _ store.Position) error {
	m.mu.Lock()
	m.held[order.Bundle] = order
	m.mu.Unlock()
	m.changed(order.Bundle)
	return nil
}

func (m *member) Forget(context.Context, string, time.Time) error { return nil }
func (m *member) Object(string) (json.RawMessage, bool)           { return nil, false }
func (m *member) CarriedOut(string) []atoll.Tombstone             { return nil }
func (m *member) Held() []apply.Held                              { return nil }
func (m *member) Holds(string, *atoll.Tombstone) bool             { return false }

func (m *member) Status(bundle string, _ *atoll.RowStatus, _ time.Time) (atoll.RowStatus, bool) {
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

// hub speaks the hub's end by the real core.
type hub struct {
	pb.UnimplementedSessionServer
	t        *testing.T
	sign     func(public any, lifetime time.Duration) []byte
	lifetime time.Duration

	mu       sync.Mutex
	every    uint32
	rows     map[string]atoll.Manifest
	statuses map[string]atoll.RowStatus
	begun    []time.Time
	ended    int
	renewed  int
	// Of the living session.
	tell              func(*pb.FromHub) error
	inventoried, idle bool
}

func (h *hub) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	hello, err := rpc.Recv()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.begun = append(h.begun, time.Now())
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
	core, out := session.NewHub(hello.GetHello(), wants, false)
	h.take(rpc, core, out)
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
		h.take(rpc, core, core.Frame(f))
		h.mu.Unlock()
	}
}

func (h *hub) take(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub], core *session.Hub, out session.HubOutput) {
	for _, f := range out.Frames {
		_ = rpc.Send(f)
	}
	for _, o := range out.Orders {
		m := h.rows[o.Bundle]
		body, _ := session.NewParcel(m).Encode(nil)
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
		if request, err := trust.ParseRequest(out.Renew.GetCsr()); err == nil {
			h.renewed++
			_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Renewed{Renewed: &pb.Renewed{Certificate: h.sign(request.Public, h.lifetime)}}})
		}
	}
	if h.inventoried = h.inventoried || out.Inventory != nil; h.inventoried && core.Synced() && !h.idle && h.every > 0 {
		h.idle = true
		_ = rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: h.every}}})
	}
}

func (h *hub) want(bundle string, generation int64) {
	m := atoll.Manifest{Bundle: bundle, Generation: generation}
	m.Content = atoll.HashJSON([]any{bundle, generation})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows[bundle] = m
	delete(h.statuses, bundle)
}

func (h *hub) eventually(what string, cond func() bool) {
	h.t.Helper()
	err := wait.PollUntilContextTimeout(h.t.Context(), 10*time.Millisecond, 15*time.Second, true, func(context.Context) (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return cond(), nil
	})
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
}

func (h *hub) state(bundle string) func() bool {
	return func() bool { return h.statuses[bundle].State == atoll.RowReady }
}

// keys of a hub that is its own CA.
func keys(t *testing.T) (ca *x509.Certificate, key *ecdsa.PrivateKey) {
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

// linked starts a hub and an agent that has joined it.
func linked(t *testing.T, every uint32, lifetime time.Duration) (*hub, *member, *Metrics) {
	t.Helper()
	ca, caKey := keys(t)
	h := &hub{t: t, every: every, lifetime: time.Hour, rows: map[string]atoll.Manifest{}, statuses: map[string]atoll.RowStatus{}}
	h.sign = func(public any, lifetime time.Duration) []byte {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, ca, public, caKey)
		if err != nil {
			t.Error(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
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

	_, key := keys(t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{held: map[string]atoll.Manifest{}, ready: map[string]bool{}, identity: store.Identity{
		KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), CertificatePEM: h.sign(key.Public(), lifetime),
		HubCAPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), CAHash: trust.CertificateHash(ca), ClusterUID: "uid", ClusterName: "shop",
	}}
	metrics := NewMetrics(prometheus.NewRegistry())
	l := New(Options{
		Hub: listener.Addr().String(), CAHash: trust.CertificateHash(ca), Name: "shop", Version: "test", Store: m,
		Inventory: func() inventory.Snapshot { return inventory.Snapshot{Answers: true} }, Metrics: metrics, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}, store.Contents{})
	m.changed = l.Changed
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, m) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h, m, metrics
}

// Sessions come every interval and end by themselves, and orders are taken over at the
// next one.
func TestCheckIns(t *testing.T) {
	t.Parallel()
	h, m, metrics := linked(t, 2, time.Hour)
	h.eventually("a session begins when the agent said that it would", func() bool {
		said := testutil.ToFloat64(metrics.next)
		for _, began := range h.begun[min(1, len(h.begun)):] {
			if late := float64(began.UnixMilli())/1000 - said; late > -0.01 && late < 0.5 {
				return true
			}
		}
		return false
	})
	m.ready["web"] = true
	h.want("web", 1)
	h.eventually("delivered and reported", h.state("web"))
	h.eventually("its session ends", func() bool { return h.ended == len(h.begun) })
	h.eventually("three more", func() bool { return h.ended >= 5 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := 2; i < len(h.begun); i++ {
		if d := h.begun[i].Sub(h.begun[i-1]); d < 1500*time.Millisecond || d > 3500*time.Millisecond {
			t.Errorf("%s between check-ins every 2s", d)
		}
	}
}

// What becomes healthy after its session is told at an early check-in.
func TestATurnBringsTheCheckInForward(t *testing.T) {
	t.Parallel()
	h, m, _ := linked(t, 10, time.Hour)
	h.want("web", 1) // before the first session, or at the next
	h.eventually("delivered", func() bool { return h.statuses["web"].State == atoll.RowProgressing })
	h.eventually("its session ends, though it is not healthy", func() bool { return h.ended == len(h.begun) })
	h.mu.Lock()
	sessions := len(h.begun)
	h.mu.Unlock()
	m.becomesReady("web")
	h.eventually("reported", h.state("web"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.begun[len(h.begun)-1]; len(h.begun) != sessions+1 || time.Since(last) > 2*time.Second {
		t.Errorf("%d sessions more, the last %s ago", len(h.begun)-sessions, time.Since(last))
	}
}

// A certificate that would be due before the next check-in is renewed at this one.
func TestCheckInsRenewInTime(t *testing.T) {
	t.Parallel()
	h, m, _ := linked(t, 3600, 80*time.Minute)
	before := m.identity.CertificatePEM
	h.eventually("renewed and over", func() bool { return h.renewed == 1 && h.ended == 1 })
	if after, err := m.Identity(t.Context()); err != nil || string(after.CertificatePEM) == string(before) {
		t.Errorf("the certificate is not kept: %v", err)
	}
}

// An agent whose hub changes its mind comes back to its stream, and leaves it again.
func TestConnectionsChange(t *testing.T) {
	t.Parallel()
	h, _, metrics := linked(t, 0, time.Hour)
	h.eventually("linked", func() bool { return h.tell != nil })
	h.mu.Lock()
	h.every = 1
	err := h.tell(&pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: 1}}})
	h.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	h.eventually("three check-ins", func() bool { return h.ended == 3 })
	h.mu.Lock()
	h.every = 0
	h.mu.Unlock()
	h.eventually("a stream that stays", func() bool { return h.tell != nil && time.Since(h.begun[len(h.begun)-1]) > 3*time.Second })
	if testutil.ToFloat64(metrics.next) != 0 {
		t.Error("a next check-in is announced")
	}
}
