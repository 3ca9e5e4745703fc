package agent

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// testHub speaks the hub's end of the protocol by the real core, and keeps its
// rows in memory.
type testHub struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	t        *testing.T
	address  string
	caHash   string
	ca       *x509.Certificate
	agents   *x509.Certificate
	agentKey crypto.Signer
	serving  tls.Certificate
	server   *grpc.Server
	lifetime time.Duration

	mu        sync.Mutex
	joins     int
	token     string     // of the last Join
	refuse    codes.Code // for Join
	rows      map[string]atoll.Manifest
	statuses  map[string]atoll.RowStatus
	stored    map[string]int64
	orders    int // Upserts sent
	reports   int
	inventory *pb.Inventory
	sessions  int
	renewed   int
	live      *hubStream
	position  int64
}

type hubStream struct {
	core *session.HubSession
	rpc  grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]
	end  context.CancelFunc
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCA(t *testing.T, name string) (*x509.Certificate, crypto.Signer) {
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return ca, key
}

func newTestHub(t *testing.T) *testHub {
	h := &testHub{
		t: t, rows: map[string]atoll.Manifest{}, statuses: map[string]atoll.RowStatus{}, stored: map[string]int64{}, lifetime: time.Hour,
	}
	ca, caKey := newCA(t, "hub")
	agents, agentsKey := newCA(t, "agents")
	h.ca, h.caHash, h.agents, h.agentKey = ca, trust.CertificateKeyHash(ca), agents, agentsKey
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	h.serving = tls.Certificate{Certificate: [][]byte{der, ca.Raw}, PrivateKey: key}
	h.startListening("127.0.0.1:0")
	t.Cleanup(func() { h.server.Stop() })
	return h
}

func (h *testHub) startListening(address string) {
	h.t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(h.agents)
	h.address = listener.Addr().String()
	h.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{h.serving}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
	})), grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: session.KeepaliveMinTime, PermitWithoutStream: true}))
	pb.RegisterSessionServer(h.server, h)
	pb.RegisterRegistrationServer(h.server, h)
	go func() { _ = h.server.Serve(listener) }()
}

// goOffline takes the hub away; up brings it back at the same address.
func (h *testHub) goOffline() { h.server.Stop() }
func (h *testHub) goOnline()  { h.startListening(h.address) }

func (h *testHub) signCertificate(der []byte) ([]byte, error) {
	request, err := trust.ParseCertificateRequest(der)
	if err != nil {
		return nil, err
	}
	signed, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: atoll.UserClusterPrefix + "uid-1", Organization: []string{atoll.GroupAgents}},
		NotBefore:    time.Now().Add(-time.Minute), NotAfter: time.Now().Add(h.lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, h.agents, request.Public, h.agentKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), err
}

func (h *testHub) Join(_ context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joins++
	h.token = r.GetToken()
	switch {
	case h.refuse != codes.OK:
		return nil, status.Error(h.refuse, "refused by the test")
	case h.joins == 1:
		return &pb.JoinReply{State: "Pending", Message: "atoll accept " + r.GetName()}, nil
	}
	cert, err := h.signCertificate(r.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &pb.JoinReply{
		State: "Accepted", Certificate: cert, ClusterUid: "uid-1", ClusterName: r.GetName(),
		HubCa: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.ca.Raw}),
	}, nil
}

func (h *testHub) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	hello, err := rpc.Recv()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(rpc.Context())
	defer end()
	h.mu.Lock()
	h.sessions++
	h.position++
	s := &hubStream{rpc: rpc, end: end}
	h.live = s
	h.send(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{
		ClusterName: "member1", ClusterUid: "uid-1", Position: &pb.Position{ChainId: "chain", Revision: h.position},
	}}})
	var wants []session.Entry
	for bundle, m := range h.rows {
		var last *atoll.RowStatus
		if st, ok := h.statuses[bundle]; ok {
			last = &st
		}
		spec := atoll.RowSpec{Generation: m.Generation, Phase: atoll.RowActive}
		if m.Remove {
			spec.Phase = atoll.RowRemoving
		}
		want, ok := session.WantedEntry(bundle, spec, session.Reported{RowStatus: last})
		if want.Content != "" {
			want.Content = m.Content
		}
		if ok {
			wants = append(wants, want)
		}
	}
	core, out := session.NewHubSession(hello.GetHello(), wants, false)
	s.core = core
	h.handleOutput(out)
	h.mu.Unlock()
	failed := make(chan error, 1)
	go func() {
		for {
			f, err := rpc.Recv()
			if err != nil {
				failed <- err
				return
			}
			h.mu.Lock()
			h.handleOutput(core.HandleFrame(f))
			h.mu.Unlock()
		}
	}()
	select {
	case <-ctx.Done():
		return status.Error(codes.Unavailable, "cut by the test")
	case err := <-failed:
		return err
	}
}

// send a frame on the living session. The caller holds mu.
func (h *testHub) send(frames ...*pb.FromHub) {
	for _, f := range frames {
		if h.live != nil {
			_ = h.live.rpc.Send(f)
		}
	}
}

// handleOutput the outputs of the core. The caller holds mu.
func (h *testHub) handleOutput(out session.HubOutput) {
	h.send(out.Frames...)
	for _, o := range out.Orders {
		h.sendOrder(o.Bundle)
	}
	for _, n := range out.Needs {
		h.send(session.NewPayload(h.rows[n.GetBundle()]).AnswerNeed(n)...)
	}
	for _, r := range out.Reports {
		var s atoll.RowStatus
		if json.Unmarshal(r.GetStatus(), &s) == nil {
			h.statuses[r.GetBundle()] = s
			h.reports++
		}
		h.send(&pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: r.GetBundle(), Seq: r.GetSeq()}}})
	}
	if out.Inventory != nil {
		apis := h.inventory.GetApis()
		if h.inventory = out.Inventory; len(h.inventory.Apis) == 0 {
			h.inventory.Apis = apis
		}
		if len(h.inventory.Apis) == 0 && h.inventory.ApisHash != "" {
			h.send(&pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Apis: true}}})
		}
	}
	if out.Renew != nil {
		if cert, err := h.signCertificate(out.Renew.GetCsr()); err == nil {
			h.renewed++
			h.send(&pb.FromHub{Frame: &pb.FromHub_Renewed{Renewed: &pb.Renewed{Certificate: cert}}})
		}
	}
}

func (h *testHub) sendOrder(bundle string) {
	m := h.rows[bundle]
	body, err := session.NewPayload(m).Encode(nil)
	if err != nil {
		h.t.Error(err)
		return
	}
	h.orders++
	h.position++
	h.send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{
		Bundle: bundle, Generation: m.Generation, Manifest: body, Position: &pb.Position{ChainId: "chain", Revision: h.position},
	}}})
}

// orderManifest a row.
func (h *testHub) orderManifest(m atoll.Manifest) {
	m.Content = atoll.HashJSON(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows[m.Bundle] = m
	if h.live != nil && h.live.core != nil {
		h.handleOutput(h.live.core.RowChanged(session.Entry{Bundle: m.Bundle, Generation: m.Generation}))
	}
}

// read something under the lock.
func (h *testHub) read(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}
