package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"google.golang.org/grpc"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
	"atoll.dev/atoll/internal/tunnel/websocket"
)

// balancerDialOption terminates TLS with its own CA and passes HTTP/1.1 to the target,
// with TLS 1.2 if with any, as nginx and Envoy do. It returns how to dial the hub through
// it.
func balancerDialOption(t *testing.T, target string) grpc.DialOption {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}},
	})
	t.Cleanup(proxy.Close)
	roots := x509.NewCertPool()
	roots.AddCert(proxy.Certificate())
	d := websocket.WebSocketDialer{Roots: roots, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}}
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return d.Open(ctx, proxy.Listener.Addr().String())
	})
}

// runBehindBalancers runs the test with a hub behind a load balancer with TLS, and with
// one without TLS.
func runBehindBalancers(t *testing.T, test func(t *testing.T, h *testHub, by grpc.DialOption)) {
	t.Run("by TLS", func(t *testing.T) {
		h := newTestHub(t)
		test(t, h, balancerDialOption(t, "https://"+h.addr))
	})
	t.Run("plainly", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		test(t, newTestHub(t, func(o *Options) { o.PlainListener = l }), balancerDialOption(t, "http://"+l.Addr().String()))
	})
}

// Agents behind load balancers join, get orders, report and serve tunnels like any other.
func TestAgentsBehindBalancers(t *testing.T) {
	runBehindBalancers(t, func(t *testing.T, h *testHub, by grpc.DialOption) {
		cfg, err := trust.PinnedTLSConfig("127.0.0.1", trust.CertificateKeyHash(h.keys.ClusterCA.Cert), nil)
		if err != nil {
			t.Fatal(err)
		}
		key := newKey(t)
		reply, err := pb.NewRegistrationClient(h.dialHub(cfg, by)).Join(t.Context(), joinRequest(t, h.createToken(handshake.TokenSpec{AutoAccept: true}).RevealSecret(), "tokyo", key))
		if err != nil || reply.GetState() != "Accepted" {
			t.Fatalf("joins by a token: %v, %v", reply, err)
		}
		uid := reply.GetClusterUid()
		testwait.UntilTrue(t, "the hub knows it", func() bool { _, known := h.clusters.GetByUID(uid); return known })
		a := h.newAgent(newKeyPair(t, reply.GetCertificate(), key), "one")
		a.by = []grpc.DialOption{by}
		a.serveTunnels(echoBytes)
		a.connectSession()
		h.rows.setRows("web", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
		testwait.UntilTrue(t, "an order passes", a.holdsManifest("web", "r1", 1))
		if how := h.inventory.transportOf(uid); how != TransportWebSocket {
			t.Errorf("it comes by %q", how)
		}
		a.reportReady("web")
		testwait.UntilTrue(t, "its report passes", func() bool {
			row, ok := h.rows.Get("web", "tokyo")
			return ok && row.Status != nil && row.Status.Applied
		})
		conn, err := h.DialCluster(t.Context(), uid)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const size = 3 << 20
		go func() { _, _ = conn.Write(make([]byte, size)) }()
		if _, err := io.ReadFull(conn, make([]byte, size)); err != nil {
			t.Errorf("a tunnel: %v", err)
		}
		if n := h.metrics.websockets.Load(); n < 1 {
			t.Errorf("%d WebSockets are counted", n)
		}
		a.cutStream()
		a.conn.Close()
	})
}

// Load balancers check the health of the hub by HTTP, and get nothing else.
func TestHealthCheckOfBalancers(t *testing.T) {
	h := newTestHub(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: h.keys.ClusterCA.CertPool()}}}
	for path, want := range map[string]int{"/healthz": 200, websocket.Path: 400, "/": 404, "/apis": 404} {
		answer, err := client.Get("https://" + h.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, wanted %d", path, answer.StatusCode, want)
		}
	}
	client.CloseIdleConnections()
	older := &tls.Config{RootCAs: h.keys.ClusterCA.CertPool(), MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if conn, err := tls.Dial("tcp", h.addr, older); err == nil {
		conn.Close()
		t.Error("a client with HTTP/2 connects by TLS 1.2")
	}
}

// A connection within a WebSocket must speak HTTP/2.
func TestWebSocketWithinWebSocketIsRefused(t *testing.T) {
	h := newTestHub(t)
	d := websocket.WebSocketDialer{Roots: h.keys.ClusterCA.CertPool(), Dial: func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}}
	outer, err := d.Open(t.Context(), h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	d.Dial = func(context.Context, string) (net.Conn, error) { return outer, nil }
	if inner, err := d.Open(t.Context(), h.addr); err == nil {
		inner.Close()
		t.Error("a WebSocket came by a WebSocket")
	}
}
