package reach

import (
	"net"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Handler. None names a cluster or a user: there are too many of them.
type metrics struct {
	requests *prometheus.CounterVec
	underWay prometheus.Gauge
	tunnels  prometheus.Gauge
	bytes    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	options := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "atoll", Subsystem: "proxy", Name: name, Help: help}
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts(options("requests_total", "Requests to members through the hub that were answered, by verb and HTTP status, those that the hub refused among them.")), []string{"verb", "code"}),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts(options("requests", "Requests to members through the hub that are under way."))),
		tunnels:  prometheus.NewGauge(prometheus.GaugeOpts(options("tunnels", "Tunnels to agents, those that wait for another request among them."))),
		bytes:    prometheus.NewCounterVec(prometheus.CounterOpts(options("bytes_total", "Bytes that went to members and came from them by tunnels, by direction.")), []string{"direction"}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.underWay, m.tunnels, m.bytes)
	}
	return m
}

// answered a request of an HTTP method.
func (m *metrics) answered(method string, code int) {
	verb, known := verbs[method]
	if !known {
		verb = "none"
	}
	m.requests.WithLabelValues(verb, strconv.Itoa(code)).Inc()
}

// counted is a tunnel that counts.
func (m *metrics) counted(c net.Conn) net.Conn {
	m.tunnels.Inc()
	return &counted{Conn: c, up: m.bytes.WithLabelValues("up"), down: m.bytes.WithLabelValues("down"), closed: sync.OnceFunc(m.tunnels.Dec)}
}

type counted struct {
	net.Conn
	up, down prometheus.Counter // from and to the member
	closed   func()
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.up.Add(float64(n))
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.down.Add(float64(n))
	return n, err
}

// Close the tunnel.
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}
