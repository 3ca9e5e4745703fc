package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"atoll.dev/atoll/internal/testwait"
)

// authority signs what hubs show.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func issueCertificate(t *testing.T, by *authority, subject pkix.Name) (*authority, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	made := &authority{template, key}
	if by == nil {
		by = made
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	if made.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return made, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// doorman tells whose certificate was shown, as the gateway's does.
type doorman struct {
	credentials.TransportCredentials
}

type visitor struct {
	credentials.AuthInfo
	subject *pkix.Name
}

func (v visitor) Subject() *pkix.Name { return v.subject }

func (d doorman) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	v := visitor{AuthInfo: info}
	if chains := info.(credentials.TLSInfo).State.VerifiedChains; len(chains) > 0 {
		v.subject = &chains[0][0].Subject
	}
	return conn, v, nil
}

// hub is Peers behind a server.
type hub struct {
	*HubPeers
	server *grpc.Server
	stop   context.CancelFunc
	done   chan struct{}

	serves  atomic.Bool
	dialled func(uid string) (net.Conn, error)

	mu    sync.Mutex
	known map[string]string
	ended []string
	own   map[string]time.Time // ends of certificates
	told  map[string]string    // those of others
	came  map[string]string    // how those of others come
}

func (h *hub) knownSession(uid string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[uid]
}

func (h *hub) UpdateStreamHolder(uid string, here, elsewhere bool, _ time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[uid] = strings.TrimSpace(map[bool]string{true: "here "}[here] + map[bool]string{true: "elsewhere"}[elsewhere])
}

func (h *hub) RaiseRowGeneration(bundle, cluster string, generation int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, fmt.Sprint("ahead ", bundle, " ", cluster, " ", generation))
}

func (h *hub) IsServing() bool { return h.serves.Load() }

func (h *hub) CertificateOf(uid string) (time.Time, int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ends, ok := h.own[uid]
	return ends, 7, ok
}

func (h *hub) RecordRemoteCertificate(uid string, ends time.Time, generation int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told[uid] = fmt.Sprint(ends.Unix(), " ", generation)
}

func (h *hub) TransportOf(uid string) string { return "as " + uid }

func (h *hub) SetRemoteTransport(uid, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.came[uid] = how
}

// fakeGateway is the gateway of a hub.
type fakeGateway struct{ hub *hub }

func (g fakeGateway) SupersedeSession(uid, _ string) {
	g.hub.mu.Lock()
	defer g.hub.mu.Unlock()
	g.hub.ended = append(g.hub.ended, uid)
}

func (g fakeGateway) DialCluster(_ context.Context, uid string) (net.Conn, error) {
	return g.hub.dialled(uid)
}

// listed says that the store in memory does not begin a watch with what there is.
type listed struct{ coordinationv1.LeaseInterface }

func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// fleet of hubs.
type fleet struct {
	t       *testing.T
	kube    kubernetes.Interface
	ca      *authority
	roots   *x509.CertPool
	serving tls.Certificate
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, kube: fake.NewClientset(), roots: x509.NewCertPool()}
	f.ca, _ = issueCertificate(t, nil, pkix.Name{CommonName: "ca"})
	f.roots.AddCert(f.ca.cert)
	_, f.serving = issueCertificate(t, f.ca, pkix.Name{CommonName: "gateway"})
	return f
}

// start a hub that shows that subject.
func (f *fleet) start(address string, subject pkix.Name) *hub {
	f.t.Helper()
	_, shown := issueCertificate(f.t, f.ca, subject)
	l, err := net.Listen("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	h := &hub{known: map[string]string{}, own: map[string]time.Time{}, told: map[string]string{}, came: map[string]string{}, done: make(chan struct{})}
	h.HubPeers = New(Options{
		Address: l.Addr().String(), Leases: listed{f.kube.CoordinationV1().Leases("kube-system")},
		Client: func(string) *tls.Config {
			return &tls.Config{ServerName: "127.0.0.1", RootCAs: f.roots, Certificates: []tls.Certificate{shown}}
		},
		Log: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
	}, rand.Text()[:6])
	h.Attach(h, h, fakeGateway{h})
	server := grpc.NewServer(grpc.Creds(doorman{credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{f.serving}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: f.roots,
	})}))
	h.server = server
	h.Register(server)
	ctx, stop := context.WithCancel(f.t.Context())
	h.stop = func() { stop(); server.Stop(); <-h.done }
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) }) // ends by Stop
	wg.Go(func() { _ = h.Run(ctx) })
	go func() { wg.Wait(); close(h.done) }()
	f.t.Cleanup(h.stop)
	return h
}

func (f *fleet) waitUntil(what string, holds func() bool) {
	f.t.Helper()
	testwait.UntilTrue(f.t, what, holds)
}

func TestHubsKnowOfEachOthersStreams(t *testing.T) {
	t.Parallel()
	f, of := newFleet(t), pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a := f.start("127.0.0.1:0", of)
	for i := range 3 * piece / 2 {
		a.StreamOpened(fmt.Sprint("u", i))
	}
	b, c := f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of)
	last := fmt.Sprint("u", 3*piece/2-1)
	f.waitUntil("all have sent all", func() bool {
		return a.IsComplete() && b.IsComplete() && c.IsComplete() && b.knownSession("u0") == "elsewhere" && c.knownSession(last) == "elsewhere"
	})
	b.StreamOpened("u0")
	f.waitUntil("the older session is ended", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.ended) == 1 && a.ended[0] == "u0"
	})
	a.StreamClosed("u0", time.Now().Add(-time.Minute))
	a.RequestRaise("bundle", "c", 7)
	// c may receive a's before b's.
	f.waitUntil("where it is", func() bool {
		if a.knownSession("u0") != "elsewhere" || c.knownSession("u0") != "elsewhere" {
			return false
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.known["u0"] == "here" && len(b.ended) == 1 && b.ended[0] == "ahead bundle c 7"
	})

	a.stop() // takes its Lease along
	f.waitUntil("what a held is lost", func() bool { return b.knownSession(last) == "" && c.knownSession(last) == "" && b.IsComplete() })
	if b.knownSession("u0") != "here" || c.knownSession("u0") != "elsewhere" {
		t.Errorf("b says %q, c says %q", b.knownSession("u0"), c.knownSession("u0"))
	}
	leases, err := f.kube.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 2 {
		t.Errorf("%d leases are left of two hubs, %v", len(leases.Items), err)
	}
	again := f.start(a.o.Address, of)
	again.StreamOpened(last)
	f.waitUntil("it is back", func() bool {
		return c.knownSession(last) == "elsewhere" && again.knownSession("u0") == "elsewhere" && again.IsComplete() && c.IsComplete()
	})
}

// Hubs send each other when their agents' certificates end, and again when they are renewed.
func TestHubsKnowOfEachOthersAgentsCertificates(t *testing.T) {
	t.Parallel()
	f, of := newFleet(t), pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a, b := f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of)
	certified := func(at int64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.own["u"] = time.Unix(at, 0)
	}
	tells := func(want string) func() bool {
		return func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.told["u"] == want }
	}
	certified(100)
	a.StreamOpened("u")
	f.waitUntil("b knows", tells("100 7"))
	b.mu.Lock()
	if b.came["u"] != "as u" {
		t.Errorf("b knows of how the agent comes: %q", b.came["u"])
	}
	b.mu.Unlock()
	certified(200)
	a.CertificateRenewed("u")
	f.waitUntil("b knows of the renewed one", tells("200 7"))
	if b.knownSession("u") != "elsewhere" {
		t.Errorf("b says %q", b.knownSession("u"))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ended) > 0 {
		t.Errorf("a's session was taken over: %v", a.ended)
	}
}

func TestAHubThatServesHasRoomForWhatAnotherHasTooMany(t *testing.T) {
	t.Parallel()
	f, of := newFleet(t), pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a, b, c := f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of)
	for i := range 90 {
		a.StreamOpened(fmt.Sprint("u", i))
	}
	f.waitUntil("all have sent all", func() bool { return a.IsComplete() && c.knownSession("u89") == "elsewhere" })
	if n, rooms := a.SurplusStreams(false); n != 0 {
		t.Errorf("%d too many, room at %v, where no other hub serves", n, rooms)
	}
	b.serves.Store(true)
	f.waitUntil("one other hub serves", func() bool {
		n, rooms := a.SurplusStreams(false)
		return n == 45 && len(rooms) == 1 && rooms[0] == StreamDeficit{b.o.Address, 45}
	})
	if got := a.ServingHubs(); len(got) != 1 || got[0] != b.o.Address {
		t.Errorf("%v serve agents, want %s alone", got, b.o.Address)
	}
	if got := b.ServingHubs(); len(got) != 1 || got[0] != b.o.Address {
		t.Errorf("to the one that serves agents, %v do", got)
	}
	c.serves.Store(true)
	f.waitUntil("two do", func() bool {
		n, rooms := a.SurplusStreams(false)
		return n == 60 && len(rooms) == 2 && rooms[0].Streams == 30 && rooms[1].Streams == 30
	})
	b.serves.Store(false)
	f.waitUntil("one does not any more", func() bool {
		n, rooms := a.SurplusStreams(false)
		return n == 45 && len(rooms) == 1 && rooms[0].Address == c.o.Address
	})
	if n, rooms := b.SurplusStreams(false); n != 0 {
		t.Errorf("a hub without streams has %d too many, room at %v", n, rooms)
	}
}

func TestAHubThatCannotBeCalledIsWaitedForAndThenLost(t *testing.T) {
	t.Parallel()
	f, of := newFleet(t), pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a, b := f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of)
	b.StreamOpened("u")
	f.waitUntil("a knows", func() bool { return a.IsComplete() && a.knownSession("u") == "elsewhere" })
	broke := time.Now()
	b.server.Stop() // its Lease is renewed: as far as the store tells it lives
	f.waitUntil("a knows that it does not know all", func() bool { return !a.IsComplete() })
	if a.knownSession("u") != "elsewhere" && time.Since(broke) < Grace {
		t.Error("a stream is lost although only the call broke, a moment ago")
	}
	f.waitUntil("what b held is lost", func() bool { return a.knownSession("u") == "" })
	if a.IsComplete() {
		t.Error("b lives and cannot be asked, and a thinks that it knows all")
	}
}

func TestStrangersAreToldNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.start("127.0.0.1:0", pkix.Name{CommonName: CommonName, Organization: []string{Organization}})
	a.StreamOpened("u")
	stranger := f.start("127.0.0.1:0", pkix.Name{CommonName: "atoll:cluster:u", Organization: []string{"atoll:agents"}})
	a.dialled = func(string) (net.Conn, error) { t.Error("an agent is led to a member"); return nil, net.ErrClosed }
	err := stranger.applySessionsFromHub(t.Context(), &foundHub{name: a.self})
	if err == nil || !strings.Contains(err.Error(), errNotAHub.Error()) {
		t.Errorf("an agent asks a hub what it holds: %v", err)
	}
	if stranger.knownSession("u") != "" {
		t.Errorf("an agent learned that u is %q", stranger.knownSession("u"))
	}
}
