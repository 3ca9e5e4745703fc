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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// authority signs what hubs show.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func issue(t *testing.T, by *authority, subject pkix.Name) (*authority, tls.Certificate) {
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
	*Peers
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

func (h *hub) knows(uid string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[uid]
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
	f.ca, _ = issue(t, nil, pkix.Name{CommonName: "ca"})
	f.roots.AddCert(f.ca.cert)
	_, f.serving = issue(t, f.ca, pkix.Name{CommonName: "gateway"})
	return f
}

// start a hub that shows that subject.
func (f *fleet) start(address string, subject pkix.Name) *hub {
	f.t.Helper()
	_, shown := issue(f.t, f.ca, subject)
	l, err := net.Listen("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	h := &hub{known: map[string]string{}, own: map[string]time.Time{}, told: map[string]string{}, came: map[string]string{}, done: make(chan struct{})}
	h.Peers = New(Options{
		Address: l.Addr().String(), Leases: listed{f.kube.CoordinationV1().Leases("kube-system")},
		Client: func(string) *tls.Config {
			return &tls.Config{ServerName: "127.0.0.1", RootCAs: f.roots, Certificates: []tls.Certificate{shown}}
		},
		Changed: func(uid string, here, elsewhere bool, _ time.Time) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.known[uid] = strings.TrimSpace(map[bool]string{true: "here "}[here] + map[bool]string{true: "elsewhere"}[elsewhere])
		},
		Serves:     h.serves.Load,
		CarriageOf: func(uid string) string { return "as " + uid },
		Carriage: func(uid, how string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.came[uid] = how
		},
		CertificateOf: func(uid string) (time.Time, int, bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			ends, ok := h.own[uid]
			return ends, 7, ok
		},
		Certificate: func(uid string, ends time.Time, generation int) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told[uid] = fmt.Sprint(ends.Unix(), " ", generation)
		},
		Ahead: func(bundle, cluster string, generation int64) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ended = append(h.ended, fmt.Sprint("ahead ", bundle, " ", cluster, " ", generation))
		},
		Supersede: func(uid, _ string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ended = append(h.ended, uid)
		},
		Dial: func(_ context.Context, uid string) (net.Conn, error) { return h.dialled(uid) },
		Log:  slog.New(slog.NewTextHandler(f.t.Output(), nil)),
	}, rand.Text()[:6])
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

func (f *fleet) eventually(what string, holds func() bool) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		f.t.Fatalf("%s: not within a minute", what)
	}
}

func TestHubsKnowOfEachOthersStreams(t *testing.T) {
	t.Parallel()
	f, of := newFleet(t), pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a := f.start("127.0.0.1:0", of)
	for i := range 3 * piece / 2 {
		a.Up(fmt.Sprint("u", i))
	}
	b, c := f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of)
	last := fmt.Sprint("u", 3*piece/2-1)
	f.eventually("all are told all", func() bool {
		return a.Complete() && b.Complete() && c.Complete() && b.knows("u0") == "elsewhere" && c.knows(last) == "elsewhere"
	})
	b.Up("u0")
	f.eventually("the older session is ended", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.ended) == 1 && a.ended[0] == "u0"
	})
	a.Down("u0", time.Now().Add(-time.Minute))
	a.Ahead("bundle", "c", 7)
	// c may hear of a's before it hears of b's.
	f.eventually("where it is", func() bool {
		if a.knows("u0") != "elsewhere" || c.knows("u0") != "elsewhere" {
			return false
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.known["u0"] == "here" && len(b.ended) == 1 && b.ended[0] == "ahead bundle c 7"
	})

	a.stop() // takes its Lease along
	f.eventually("what a held is lost", func() bool { return b.knows(last) == "" && c.knows(last) == "" && b.Complete() })
	if b.knows("u0") != "here" || c.knows("u0") != "elsewhere" {
		t.Errorf("b says %q, c says %q", b.knows("u0"), c.knows("u0"))
	}
	leases, err := f.kube.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 2 {
		t.Errorf("%d leases are left of two hubs, %v", len(leases.Items), err)
	}
	again := f.start(a.o.Address, of)
	again.Up(last)
	f.eventually("it is back", func() bool {
		return c.knows(last) == "elsewhere" && again.knows("u0") == "elsewhere" && again.Complete() && c.Complete()
	})
}

// Hubs tell each other when their agents' certificates end, and again when they are renewed.
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
	a.Up("u")
	f.eventually("b knows", tells("100 7"))
	b.mu.Lock()
	if b.came["u"] != "as u" {
		t.Errorf("b knows of how the agent comes: %q", b.came["u"])
	}
	b.mu.Unlock()
	certified(200)
	a.Renewed("u")
	f.eventually("b knows of the renewed one", tells("200 7"))
	if b.knows("u") != "elsewhere" {
		t.Errorf("b says %q", b.knows("u"))
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
		a.Up(fmt.Sprint("u", i))
	}
	f.eventually("all are told all", func() bool { return a.Complete() && c.knows("u89") == "elsewhere" })
	if n, rooms := a.Surplus(false); n != 0 {
		t.Errorf("%d too many, room at %v, where no other hub serves", n, rooms)
	}
	b.serves.Store(true)
	f.eventually("one other hub serves", func() bool {
		n, rooms := a.Surplus(false)
		return n == 45 && len(rooms) == 1 && rooms[0] == Room{b.o.Address, 45}
	})
	if got := a.Serving(); len(got) != 1 || got[0] != b.o.Address {
		t.Errorf("%v serve agents, want %s alone", got, b.o.Address)
	}
	if got := b.Serving(); len(got) != 1 || got[0] != b.o.Address {
		t.Errorf("to the one that serves agents, %v do", got)
	}
	c.serves.Store(true)
	f.eventually("two do", func() bool {
		n, rooms := a.Surplus(false)
		return n == 60 && len(rooms) == 2 && rooms[0].Streams == 30 && rooms[1].Streams == 30
	})
	b.serves.Store(false)
	f.eventually("one does not any more", func() bool {
		n, rooms := a.Surplus(false)
		return n == 45 && len(rooms) == 1 && rooms[0].Address == c.o.Address
	})
	if n, rooms := b.Surplus(false); n != 0 {
		t.Errorf("a hub without streams has %d too many, room at %v", n, rooms)
	}
}

func TestAHubThatCannotBeCalledIsWaitedForAndThenLost(t *testing.T) {
	t.Parallel()
	f, of := newFleet(t), pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a, b := f.start("127.0.0.1:0", of), f.start("127.0.0.1:0", of)
	b.Up("u")
	f.eventually("a knows", func() bool { return a.Complete() && a.knows("u") == "elsewhere" })
	broke := time.Now()
	b.server.Stop() // its Lease is renewed: as far as the store tells it lives
	f.eventually("a knows that it does not know all", func() bool { return !a.Complete() })
	if a.knows("u") != "elsewhere" && time.Since(broke) < Grace {
		t.Error("a stream is lost although only the call broke, a moment ago")
	}
	f.eventually("what b held is lost", func() bool { return a.knows("u") == "" })
	if a.Complete() {
		t.Error("b lives and cannot be asked, and a thinks that it knows all")
	}
}

func TestStrangersAreToldNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.start("127.0.0.1:0", pkix.Name{CommonName: CommonName, Organization: []string{Organization}})
	a.Up("u")
	stranger := f.start("127.0.0.1:0", pkix.Name{CommonName: "atoll:cluster:u", Organization: []string{"atoll:agents"}})
	a.dialled = func(string) (net.Conn, error) { t.Error("an agent is led to a member"); return nil, net.ErrClosed }
	err := stranger.call(t.Context(), &found{name: a.self})
	if err == nil || !strings.Contains(err.Error(), errNotAHub.Error()) {
		t.Errorf("an agent asks a hub what it holds: %v", err)
	}
	if stranger.knows("u") != "" {
		t.Errorf("an agent learned that u is %q", stranger.knows("u"))
	}
}
