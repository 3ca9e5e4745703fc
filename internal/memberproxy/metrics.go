package memberproxy

import (
	"net"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/metrictable"
)

// metrics of a Handler. None names a cluster or a user: there are too many of them.
type metrics struct {
	requests *prometheus.CounterVec
	underWay prometheus.Gauge
	tunnels  prometheus.Gauge
	bytes    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: metrictable.ProxyRequests.NewCounterVec(), underWay: metrictable.ProxyUnderWay.NewGauge(),
		tunnels: metrictable.ProxyTunnels.NewGauge(), bytes: metrictable.ProxyBytes.NewCounterVec(),
	}
	if r != nil {
		r.MustRegister(m.requests, m.underWay, m.tunnels, m.bytes)
	}
	return m
}

// countAnswer counts the answer to a request of an HTTP method.
func (m *metrics) countAnswer(method string, code int) {
	verb, known := verbs[method]
	if !known {
		verb = "none"
	}
	m.requests.WithLabelValues(verb, strconv.Itoa(code)).Inc()
}

// countConn counts the connection, and returns it wrapped so that its bytes and its end are
// counted.
func (m *metrics) countConn(c net.Conn) net.Conn {
	m.tunnels.Inc()
	return &countedConn{Conn: c, up: m.bytes.WithLabelValues("up"), down: m.bytes.WithLabelValues("down"), closed: sync.OnceFunc(m.tunnels.Dec)}
}

type countedConn struct {
	net.Conn
	up, down prometheus.Counter // from and to the member
	closed   func()
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.up.Add(float64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.down.Add(float64(n))
	return n, err
}

// Close closes the tunnel and counts it as closed.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
