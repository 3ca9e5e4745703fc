package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/tunnel/websocket"
)

// directEvery is how often a hub that is reached by WebSocket is dialled directly again,
// when it is dialled.
const directEvery = time.Hour

// hubRoute is a way to the hub at one address: directly, or by WebSocket where a proxy terminates TLS. The
// messages and the authentication are the same. A direct dial that meets a proxy continues by
// WebSocket at once. The working way is tried first from then on. It is safe for concurrent use.
type hubRoute struct {
	hub     string
	roots   func() *x509.CertPool // roots of proxies
	metrics *Metrics
	log     *slog.Logger

	mu     sync.Mutex
	socket bool      // it goes by WebSocket
	plain  bool      // without TLS around it
	met    time.Time // when something else than the hub was met last
}

// currentRoute returns the route to the hub that is dialled now. Only the goroutine of Run calls it.
func (l *HubLink) currentRoute() *hubRoute {
	w, known := l.ways[l.currentHub()]
	if !known {
		w = &hubRoute{hub: l.currentHub(), roots: l.intermediaryRoots, metrics: l.o.Metrics, log: l.o.Log}
		l.ways[w.hub] = w
	}
	return w
}

// intermediaryRoots returns the CAs of proxies: the system's, the given ones, and the hub's own
// CA.
func (l *HubLink) intermediaryRoots() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without roots has the given ones
	}
	pool.AppendCertsFromPEM(l.o.BalancerCA)
	l.mu.Lock()
	defer l.mu.Unlock()
	pool.AppendCertsFromPEM(l.id.HubCAPEM)
	return pool
}

// carried is a connection that a WebSocket carries.
type carried struct{ net.Conn }

// dialRoute dials the hub by the route that worked last.
func (w *hubRoute) dialRoute(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	socket, plain := w.socket && time.Since(w.met) < directEvery, w.plain
	w.mu.Unlock()
	if !socket {
		return dialTCPOrProxy(ctx, address)
	}
	conn, err := w.openWebSocket(ctx, plain)
	if err != nil && !proxyReportsHubAbsent(err) {
		w.dropWebSocket()
	}
	return conn, err
}

// openWebSocket opens the connection as a WebSocket.
func (w *hubRoute) openWebSocket(ctx context.Context, plain bool) (net.Conn, error) {
	d := websocket.WebSocketDialer{Dial: dialTCPOrProxy, Plain: plain}
	if !plain {
		d.Roots = w.roots()
	}
	conn, err := d.Open(ctx, w.hub)
	if err != nil {
		return nil, err
	}
	return carried{conn}, nil
}

// proxyReportsHubAbsent reports whether a proxy answered that the hub behind it is absent.
func proxyReportsHubAbsent(err error) bool {
	var answer *websocket.StatusError
	if !errors.As(err, &answer) {
		return false
	}
	return answer.Code == http.StatusBadGateway || answer.Code == http.StatusServiceUnavailable || answer.Code == http.StatusGatewayTimeout
}

// recordRoute notes by what the hub was reached; why is what was met directly.
func (w *hubRoute) recordRoute(socket, plain bool, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why != nil {
		w.met = time.Now()
	}
	if socket && !w.socket {
		w.log.Info("the hub is reached by WebSocket, since something stands between that does not pass its protocol on", "hub", w.hub, "directly", why)
	}
	if !socket && w.socket {
		w.log.Info("the hub is reached directly again", "hub", w.hub)
	}
	w.socket, w.plain = socket, plain
	w.metrics.websocket.Set(0)
	if socket {
		w.metrics.websocket.Set(1)
	}
}

// dropWebSocket drops the WebSocket: the next dial is a direct one.
func (w *hubRoute) dropWebSocket() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.socket = false
}

// switchRouteOnForeignHTTP records how a call ended: HTTP that is not gRPC's has another author than the hub, though
// it showed a certificate of the hub's CA.
func (w *hubRoute) switchRouteOnForeignHTTP(err error) {
	if err == nil || !strings.Contains(err.Error(), "unexpected HTTP status code") && !strings.Contains(err.Error(), "unexpected content-type") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.socket, w.met = !w.socket, time.Now()
}

// routeCredentials is TLS with the hub, whichever way it is reached.
type routeCredentials struct {
	credentials.TransportCredentials
	way *hubRoute
}

// ClientHandshake does TLS with the hub, by WebSocket where a proxy answers.
func (t routeCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, authority, raw)
	_, socket := raw.(carried)
	switch {
	case err == nil && socket:
		return conn, info, nil
	case err == nil:
		t.way.recordRoute(false, false, nil)
		return conn, info, nil
	case socket:
		t.way.dropWebSocket()
		return nil, nil, err
	case !isForeignHandshake(err):
		return nil, nil, err
	}
	_ = raw.Close() // nothing was sent on it
	plain := speaksHTTP(err)
	raw, failed := t.way.openWebSocket(ctx, plain)
	switch {
	case proxyReportsHubAbsent(failed): // that the hub is not trusted is not to be read from this
		return nil, nil, fmt.Errorf("something stands before the hub; %w", failed)
	case failed != nil:
		return nil, nil, fmt.Errorf("%w; nor is the hub reached %w", err, failed)
	}
	if conn, info, failed = t.TransportCredentials.ClientHandshake(ctx, authority, raw); failed != nil {
		_ = raw.Close() // as above
		return nil, nil, fmt.Errorf("%w; and by WebSocket: %w", err, failed)
	}
	t.way.recordRoute(true, plain, err)
	return conn, info, nil
}

// Clone returns the same: there is one way.
func (t routeCredentials) Clone() credentials.TransportCredentials { return t }

// isForeignHandshake reports whether a handshake failed because another server than the hub
// answered, or a proxy that inspects traffic.
func isForeignHandshake(err error) bool {
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	if errors.As(err, &authority) || errors.As(err, &record) || errors.Is(err, trust.ErrOtherCA) {
		return true
	}
	for _, text := range []string{"ALPN", "application protocol", "protocol version", "unrecognized name", "remote error: tls: handshake failure"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// speaksHTTP reports whether the answer is HTTP without TLS.
func speaksHTTP(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
}
