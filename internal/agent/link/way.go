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

// way to the hub at one address: directly, or by WebSocket where something stands between
// that terminates TLS. What is said, and to whom it is proved, is the same. A direct dial
// that meets something else than the hub goes on by WebSocket at once; what worked is tried
// first from then on. It is safe for concurrent use.
type way struct {
	hub     string
	roots   func() *x509.CertPool // of who may stand between
	metrics *Metrics
	log     *slog.Logger

	mu     sync.Mutex
	socket bool      // it goes by WebSocket
	plain  bool      // without TLS around it
	met    time.Time // when something else than the hub was met last
}

// way to the hub that is dialled now. Only the goroutine of Run calls it.
func (l *Link) way() *way {
	w, known := l.ways[l.hub()]
	if !known {
		w = &way{hub: l.hub(), roots: l.between, metrics: l.o.Metrics, log: l.o.Log}
		l.ways[w.hub] = w
	}
	return w
}

// between are the roots of who may stand between: the system's, the given, and the hub's
// own CA.
func (l *Link) between() *x509.CertPool {
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

// dial the hub, as what worked last says.
func (w *way) dial(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	socket, plain := w.socket && time.Since(w.met) < directEvery, w.plain
	w.mu.Unlock()
	if !socket {
		return dialTCP(ctx, address)
	}
	conn, err := w.open(ctx, plain)
	if err != nil && !absent(err) {
		w.forget()
	}
	return conn, err
}

// open a WebSocket.
func (w *way) open(ctx context.Context, plain bool) (net.Conn, error) {
	d := websocket.Dialer{Dial: dialTCP, Plain: plain}
	if !plain {
		d.Roots = w.roots()
	}
	conn, err := d.Open(ctx, w.hub)
	if err != nil {
		return nil, err
	}
	return carried{conn}, nil
}

// absent tells of an answer of who stands between: that the hub behind it is not there now.
func absent(err error) bool {
	var answer *websocket.StatusError
	if !errors.As(err, &answer) {
		return false
	}
	return answer.Code == http.StatusBadGateway || answer.Code == http.StatusServiceUnavailable || answer.Code == http.StatusGatewayTimeout
}

// worked notes by what the hub was reached; why is what was met directly.
func (w *way) worked(socket, plain bool, why error) {
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

// forget the WebSocket: the next dial is a direct one.
func (w *way) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.socket = false
}

// heard how a call ended: HTTP that is not gRPC's has another author than the hub, though
// it showed a certificate of the hub's CA.
func (w *way) heard(err error) {
	if err == nil || !strings.Contains(err.Error(), "unexpected HTTP status code") && !strings.Contains(err.Error(), "unexpected content-type") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.socket, w.met = !w.socket, time.Now()
}

// wayTLS is TLS with the hub, whichever way it is reached.
type wayTLS struct {
	credentials.TransportCredentials
	way *way
}

// ClientHandshake does TLS with the hub, by WebSocket where somebody else answers.
func (t wayTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, authority, raw)
	_, socket := raw.(carried)
	switch {
	case err == nil && socket:
		return conn, info, nil
	case err == nil:
		t.way.worked(false, false, nil)
		return conn, info, nil
	case socket:
		t.way.forget()
		return nil, nil, err
	case !stranger(err):
		return nil, nil, err
	}
	_ = raw.Close() // nothing was said on it
	plain := speaksHTTP(err)
	raw, failed := t.way.open(ctx, plain)
	switch {
	case absent(failed): // that the hub is not trusted is not to be read from this
		return nil, nil, fmt.Errorf("something stands before the hub; %w", failed)
	case failed != nil:
		return nil, nil, fmt.Errorf("%w; nor is the hub reached %w", err, failed)
	}
	if conn, info, failed = t.TransportCredentials.ClientHandshake(ctx, authority, raw); failed != nil {
		_ = raw.Close() // as above
		return nil, nil, fmt.Errorf("%w; and by WebSocket: %w", err, failed)
	}
	t.way.worked(true, plain, err)
	return conn, info, nil
}

// Clone gives the same: there is one way.
func (t wayTLS) Clone() credentials.TransportCredentials { return t }

// stranger tells of a handshake that failed because not the hub answered, or somebody who
// passes on what he understands.
func stranger(err error) bool {
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

// speaksHTTP tells of an answer in HTTP without TLS.
func speaksHTTP(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
}
