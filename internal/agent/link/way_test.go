package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/agent/store"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/tunnel"
	"atoll.dev/atoll/internal/tunnel/websocket"
)

// behind is a hub that is reached directly at address, and by WebSocket at socket.
type behind struct {
	pb.UnimplementedRegistrationServer
	address, caHash string
	socket          *httptest.Server
	// answer of a join; default: one that shows that the hub answered
	join func(*pb.JoinRequest) (*pb.JoinReply, error)
}

// Join answers a join request.
func (h *behind) Join(_ context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	if h.join != nil {
		return h.join(r)
	}
	return nil, status.Error(codes.AlreadyExists, "this is the hub")
}

func newBehind(t *testing.T) *behind {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der, der}, PrivateKey: key}},
	})))
	h := &behind{caHash: trust.CertificateKeyHash(ca)}
	pb.RegisterRegistrationServer(server, h)
	direct, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = direct.Addr().String()
	carried := tunnel.NewListener("carried")
	for _, l := range []net.Listener{direct, carried} {
		go func() { _ = server.Serve(l) }()
	}
	h.socket = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := websocket.UpgradeRequest(w, r); err == nil {
			carried.HandOverConn(conn)
		}
	}))
	t.Cleanup(func() { server.Stop(); h.socket.Close() })
	return h
}

// balancer before the hub, which counts connections to itself.
type balancer struct {
	*httptest.Server
	handshakes atomic.Int64
	answers    atomic.Int64 // instead of passing on, with this status
}

func newBalancer(t *testing.T, h *behind, plain bool) *balancer {
	t.Helper()
	to, err := url.Parse(h.socket.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := b.answers.Load(); code != 0 {
			w.WriteHeader(int(code))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	b.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	b.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			b.handshakes.Add(1)
		}
	}
	if plain {
		b.Start()
	} else {
		b.StartTLS()
	}
	t.Cleanup(b.Close)
	return b
}

// newLinkBefore is a Link to the hub at an address.
func newLinkBefore(h *behind, address string, balancers ...*x509.Certificate) *HubLink {
	var pool []byte
	for _, c := range balancers {
		pool = append(pool, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	l := &HubLink{o: Options{Name: "tokyo", CAHash: h.caHash, BalancerCA: pool, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, _ := x509.MarshalPKCS8PrivateKey(key) // never fails for such a key
	l.hubs, l.ways, l.id = []string{address}, map[string]*hubRoute{}, &identity{key: key, Identity: store.Identity{KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}}
	return l
}

func TestAHubBehindALoadBalancer(t *testing.T) {
	h := newBehind(t)
	secure, plain := newBalancer(t, h, false), newBalancer(t, h, true)
	broken := newBalancer(t, h, false)
	for _, c := range []struct {
		what    string
		at      net.Addr
		trusts  *x509.Certificate
		answers int64
		says    string
		socket  float64
	}{
		{what: "none", says: "this is the hub"},
		{what: "one with TLS", at: secure.Listener.Addr(), trusts: secure.Certificate(), says: "this is the hub", socket: 1},
		{what: "one without", at: plain.Listener.Addr(), says: "this is the hub", socket: 1},
		{what: "one without a trusted certificate", at: secure.Listener.Addr(), says: "nor is the hub reached by WebSocket at wss:"},
		{what: "one that passes nothing on", at: broken.Listener.Addr(), trusts: secure.Certificate(), answers: 404, says: "does it pass " + websocket.Path + " on to the hub"},
		{what: "one whose hub is away", at: broken.Listener.Addr(), trusts: secure.Certificate(), answers: 502, says: "the answer is 502 Bad Gateway: does it reach the hub?"},
	} {
		broken.answers.Store(c.answers)
		address := h.address
		if c.at != nil {
			address = c.at.String()
		}
		var trusted []*x509.Certificate
		if c.trusts != nil {
			trusted = append(trusted, c.trusts)
		}
		l := newLinkBefore(h, address, trusted...)
		_, err := l.requestJoin(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, wanted %q", c.what, err, c.says)
		}
		if c.answers == 502 && isTrustError(err) {
			t.Errorf("%s: the hub is taken for one that is not trusted: %v", c.what, err)
		}
		if got := testutil.ToFloat64(l.o.Metrics.websocket); got != c.socket {
			t.Errorf("%s: by WebSocket %v, wanted %v", c.what, got, c.socket)
		}
	}
}

// TestWhatWorkedIsRemembered: the next dial asks nothing first, but now and then.
func TestWhatWorkedIsRemembered(t *testing.T) {
	h := newBehind(t)
	b := newBalancer(t, h, false)
	l := newLinkBefore(h, b.Listener.Addr().String(), b.Certificate())
	dials := func(what string, want int64) {
		t.Helper()
		was := b.handshakes.Load()
		if _, err := l.requestJoin(t.Context()); status.Code(err) != codes.AlreadyExists {
			t.Fatalf("%s: %v", what, err)
		}
		if got := b.handshakes.Load() - was; got != want {
			t.Errorf("%s: %d dials, wanted %d", what, got, want)
		}
	}
	dials("the first time", 2)
	dials("the second time", 1)
	l.currentRoute().met = time.Now().Add(-directEvery)
	dials("after a while", 2)
	dials("again", 1)
	b.answers.Store(502)
	if _, err := l.requestJoin(t.Context()); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	b.answers.Store(0)
	dials("after the hub was away", 1)
	b.answers.Store(404)
	if _, err := l.requestJoin(t.Context()); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	b.answers.Store(0)
	dials("after the balancer has changed", 2)
	// The balancer makes way for one that knows nothing of HTTP.
	l.currentRoute().dropWebSocket()
	l.hubs[0] = h.address
	l.ways[h.address] = &hubRoute{hub: h.address, socket: true, met: time.Now().Add(-directEvery), roots: l.intermediaryRoots, metrics: l.o.Metrics, log: l.o.Log}
	if _, err := l.requestJoin(t.Context()); status.Code(err) != codes.AlreadyExists || l.currentRoute().socket {
		t.Errorf("directly again: %v", err)
	}
}

// TestABalancerWithTheHubsCertificate: HTTP tells it from the hub.
func TestABalancerWithTheHubsCertificate(t *testing.T) {
	for text, want := range map[string]bool{
		`rpc error: code = Unavailable desc = unexpected HTTP status code received from server: 502 (Bad Gateway)`: true,
		"rpc error: code = Unavailable desc = the hub stops":                                                       false,
	} {
		w := &hubRoute{}
		w.switchRouteOnForeignHTTP(&refusedError{message: text})
		if w.socket != want {
			t.Errorf("%s: %v", text, w.socket)
		}
	}
}
