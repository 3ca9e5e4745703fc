package fleet

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
)

// testHub is the hub's end by the real core, with the same rows for all clusters. A
// name that joins becomes the UID.
type testHub struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	ca, agents testAuthority
	Address    string
	CAHash     string
	CA         []byte
	server     *grpc.Server
	checkIn    uint32

	joins, streams, resumed atomic.Int64

	mu           sync.Mutex
	rows         []atoll.Manifest
	statuses     map[string]map[string]atoll.RowStatus // by cluster and bundle
	liveSessions map[string]*testSession
	reports      int
	// keys of join requests, by name; if unsure, the first request gets no answer.
	keys          map[string][]string
	failFirstJoin bool
}

type testAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

type testSession struct {
	mu   sync.Mutex
	core *session.HubSession
	rpc  grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]
}

func mustSucceed[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newAuthority(name string) testAuthority {
	key := mustSucceed(newKey())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	return testAuthority{mustSucceed(x509.ParseCertificate(mustSucceed(x509.CreateCertificate(nil, template, template, key.Public(), key)))), key}
}

func (a testAuthority) signCertificate(public crypto.PublicKey, template *x509.Certificate) []byte {
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	return mustSucceed(x509.CreateCertificate(nil, template, a.cert, public, a.key))
}

func startTestHub(rows ...atoll.Manifest) *testHub {
	h := &testHub{ca: newAuthority("hub"), agents: newAuthority("agents"), rows: rows, statuses: map[string]map[string]atoll.RowStatus{}, liveSessions: map[string]*testSession{}, keys: map[string][]string{}}
	h.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.ca.cert.Raw})
	h.CAHash = trust.CertificateKeyHash(h.ca.cert)
	h.startListening("127.0.0.1:0")
	return h
}

func (h *testHub) startListening(address string) {
	key := mustSucceed(newKey())
	serving := h.ca.signCertificate(key.Public(), &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(h.agents.cert)
	listener := mustSucceed(net.Listen("tcp", address))
	h.Address = listener.Addr().String()
	h.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{serving, h.ca.cert.Raw}, PrivateKey: key}},
	})), grpc.KeepaliveParams(keepalive.ServerParameters{Time: session.KeepaliveHubTime, Timeout: session.KeepaliveHubTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: session.KeepaliveMinTime, PermitWithoutStream: true}))
	pb.RegisterSessionServer(h.server, h)
	pb.RegisterRegistrationServer(h.server, h)
	go func() { _ = h.server.Serve(listener) }()
}

// Join admits every agent; if the hub is unsure, only on the second request.
func (h *testHub) Join(_ context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	request, err := trust.ParseCertificateRequest(r.GetCsr())
	if err != nil {
		return nil, err
	}
	h.joins.Add(1)
	h.mu.Lock()
	h.keys[r.GetName()] = append(h.keys[r.GetName()], request.KeyHash)
	unanswered := h.failFirstJoin && len(h.keys[r.GetName()]) == 1
	h.mu.Unlock()
	if unanswered {
		return nil, status.Error(codes.Unknown, "make cluster "+r.GetName()+": etcdserver: request timed out")
	}
	cert := h.agents.signCertificate(request.Public, &x509.Certificate{
		Subject: pkix.Name{CommonName: atoll.UserClusterPrefix + r.GetName()}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return &pb.JoinReply{
		State: "Accepted", Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		ClusterUid: r.GetName(), ClusterName: r.GetName(), HubCa: h.CA,
	}, nil
}

// Connect serves a session.
func (h *testHub) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	p, _ := peer.FromContext(rpc.Context())
	info := p.AuthInfo.(credentials.TLSInfo)
	if info.State.DidResume {
		h.resumed.Add(1)
	}
	uid := strings.TrimPrefix(info.State.VerifiedChains[0][0].Subject.CommonName, atoll.UserClusterPrefix)
	first, err := rpc.Recv()
	if err != nil {
		return err
	}
	s := &testSession{rpc: rpc}
	if err := rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{ClusterName: uid, ClusterUid: uid, CheckInSeconds: h.checkIn}}}); err != nil {
		return err
	}
	h.streams.Add(1)
	defer h.streams.Add(-1)
	h.mu.Lock()
	wants := h.wantedEntries(uid)
	h.liveSessions[uid] = s
	h.mu.Unlock()
	s.mu.Lock()
	core, out := session.NewHubSession(first.GetHello(), wants, false)
	s.core = core
	err = h.handleOutput(s, uid, out)
	s.mu.Unlock()
	for err == nil {
		var f *pb.FromAgent
		if f, err = rpc.Recv(); err == nil {
			s.mu.Lock()
			err = h.handleOutput(s, uid, s.core.HandleFrame(f))
			s.mu.Unlock()
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// wantedEntries returns the entries of a cluster. The caller holds mu.
func (h *testHub) wantedEntries(uid string) (out []session.Entry) {
	for _, m := range h.rows {
		e := session.Entry{Bundle: m.Bundle, Generation: m.Generation}
		if st, ok := h.statuses[uid][m.Bundle]; ok {
			if st.State == atoll.RowRemoved && m.Remove {
				continue
			}
			if e.Status = session.StatusHash(st); st.Generation == m.Generation {
				e.Content = st.Content
			}
		}
		out = append(out, e)
	}
	return out
}

// handleOutput on an output of the core. The caller holds the session's mutex.
func (h *testHub) handleOutput(s *testSession, uid string, out session.HubOutput) (err error) {
	send := func(f *pb.FromHub) {
		if err == nil {
			err = s.rpc.Send(f)
		}
	}
	for _, f := range out.Frames {
		send(f)
	}
	for _, o := range out.Orders {
		for _, m := range h.currentManifests() {
			if m.Bundle == o.Bundle {
				body := mustSucceed(session.NewPayload(m).Encode(nil))
				send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: m.Bundle, Generation: m.Generation, Manifest: body}}})
			}
		}
	}
	for _, n := range out.Needs {
		for _, m := range h.currentManifests() {
			if m.Bundle == n.GetBundle() {
				for _, f := range session.NewPayload(m).AnswerNeed(n) {
					send(f)
				}
			}
		}
	}
	for _, r := range out.Reports {
		var st atoll.RowStatus
		if err := json.Unmarshal(r.GetStatus(), &st); err != nil {
			return err
		}
		h.mu.Lock()
		if h.statuses[uid] == nil {
			h.statuses[uid] = map[string]atoll.RowStatus{}
		}
		h.statuses[uid][r.GetBundle()] = st
		h.reports++
		h.mu.Unlock()
		send(&pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: r.GetBundle(), Seq: r.GetSeq()}}})
	}
	if out.Inventory != nil && len(out.Inventory.GetApis()) == 0 {
		send(&pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Apis: true}}})
	}
	if out.Synced && h.checkIn > 0 {
		send(&pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: h.checkIn}}})
	}
	return err
}

func (h *testHub) currentManifests() []atoll.Manifest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rows
}

// orderRows changes the rows and notifies connected agents.
func (h *testHub) orderRows(rows ...atoll.Manifest) {
	h.mu.Lock()
	h.rows = rows
	live := map[string]*testSession{}
	for uid, s := range h.liveSessions {
		live[uid] = s
	}
	h.mu.Unlock()
	for uid, s := range live {
		for _, m := range rows {
			s.mu.Lock()
			_ = h.handleOutput(s, uid, s.core.RowChanged(session.Entry{Bundle: m.Bundle, Generation: m.Generation})) // an ended session is not notified
			s.mu.Unlock()
		}
	}
}

func (h *testHub) reportedStatus(uid, bundle string) atoll.RowStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.statuses[uid][bundle]
}

// webBundle is a Deployment and a ConfigMap in namespace shop.
func webBundle(bundle string, generation, replicas int64) atoll.Manifest {
	object := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":%d}}`, replicas)
	m := atoll.Manifest{Bundle: bundle, Namespace: "shop", Name: "web", Generation: generation}
	m.Items = []atoll.RenderedItem{
		{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}, APIVersion: "v1", UID: "c", Object: json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap"}`), Hash: "conf"},
		{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, APIVersion: "apps/v1", UID: "d", Object: json.RawMessage(object), Hash: atoll.HashParts([]byte(object))},
	}
	m.Content = atoll.HashJSON(m)
	return m
}

func webBundles(n int) (out []atoll.Manifest) {
	for i := range n {
		out = append(out, webBundle(fmt.Sprintf("00000000-0000-0000-0000-%012d", i), 1, 2))
	}
	return out
}

// fleetConfig returns the configuration of agents for the hub.
func (h *testHub) fleetConfig(t testing.TB, agents int) processConfig {
	dir := t.TempDir()
	return processConfig{
		Dir: dir, Prefix: "sim", Agents: agents, To: agents, Hubs: []string{h.Address}, CAHash: h.CAHash, CA: h.CA,
		Tokens: []string{"token"}, Seed: 1, Joiners: 16, Dialers: 16, Socket: ControlSocketPath(dir, "sim"), RefusedPause: time.Minute,
	}
}

// run runs a simulator until the test ends or stop is called.
func run(t testing.TB, c processConfig) (s *simulator, stop func()) {
	t.Helper()
	s, err := newSimulator(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	testwait.UntilTrue(t, "the simulator listens", func() bool {
		conn, err := dialSocket(ctx, c.Socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return s, stop
}

// hubVariable makes the test binary a hub, for tests that count the memory of agents.
const hubVariable = "ATOLL_TEST_FLEET_HUB"

// TestHubProcess is such a hub; it ends with its input.
func TestHubProcess(t *testing.T) {
	bundles := os.Getenv(hubVariable)
	if bundles == "" {
		t.Skip("the hub of another test")
	}
	var n int
	var checkIn uint32
	mustSucceed(fmt.Sscan(bundles, &n, &checkIn))
	h := startTestHub(webBundles(n)...)
	h.checkIn = checkIn
	if err := json.NewEncoder(os.Stdout).Encode(h); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// hubProcess starts one.
func hubProcess(t testing.TB, bundles int, checkIn uint32) *testHub {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHubProcess$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", hubVariable, bundles, checkIn))
	in := mustSucceed(cmd.StdinPipe())
	out := mustSucceed(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it is of no interest any more
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	h := &testHub{}
	if err == nil {
		err = json.Unmarshal(line, h)
	}
	if err != nil {
		t.Fatalf("the hub's process says %q: %v", line, err)
	}
	return h
}
