package gateway

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type metrics struct {
	connections atomic.Int64 // open, which a gauge shows
	websockets  atomic.Int64 // those of them that a WebSocket carries
	streams     prometheus.Gauge
	unclaimed   prometheus.Gauge
	messages    *prometheus.CounterVec
	bytes       *prometheus.CounterVec
	resyncs     *prometheus.CounterVec
	renders     prometheus.Counter
	encodes     prometheus.Counter
	hits        prometheus.Counter
	cacheBytes  prometheus.Gauge
	writes      *prometheus.CounterVec
	written     prometheus.Counter
	waited      prometheus.Counter
	refused     *prometheus.CounterVec
	issued      *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "atoll", Subsystem: "gateway", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "atoll", Subsystem: "gateway", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "atoll", Subsystem: "gateway", Name: name, Help: help})
	}
	m := &metrics{
		streams:    gauge("streams", "Agents that hold a stream."),
		unclaimed:  gauge("unclaimed_bundles", "Bundles that connected members hold and no row asks for."),
		messages:   vec("messages_total", "Frames by direction and kind.", "direction", "kind"),
		bytes:      vec("bytes_total", "Bytes of frames by direction and kind.", "direction", "kind"),
		resyncs:    vec("resyncs_total", "Comparisons with agents, by whether digests were equal.", "equal"),
		renders:    counter("renders_total", "Manifests rendered."),
		encodes:    counter("encodes_total", "Manifests encoded."),
		hits:       counter("render_cache_hits_total", "Manifests found rendered."),
		cacheBytes: gauge("render_cache_bytes", "Bytes of rendered content in the cache."),
		writes:     vec("status_writes_total", "Writes of reported statuses per bundle, by result.", "result"),
		written:    counter("reports_written_total", "Reports that were written."),
		waited:     counter("reports_waited_seconds_total", "For how long those reports had waited, from when they came to the end of their write."),
		refused:    vec("refused_total", "Joins, streams and frames refused, by reason.", "what", "reason"),
		issued:     vec("certificates_issued_total", "Certificates issued to agents: as they joined or came back by their key, when they asked in time, and when the hub's CAs had changed.", "why"),
	}
	if r != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "atoll", Subsystem: "gateway", Name: "connections", Help: "Open connections of agents, of who joins, and of other hubs.",
		}, func() float64 { return float64(m.connections.Load()) }))
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "atoll", Subsystem: "gateway", Name: "websockets", Help: "Agents' connections that come by WebSocket, through load balancers.",
		}, func() float64 { return float64(m.websockets.Load()) }))
		r.MustRegister(m.streams, m.unclaimed, m.messages, m.bytes, m.resyncs, m.renders, m.encodes, m.hits, m.cacheBytes, m.writes, m.written, m.waited, m.refused, m.issued)
	}
	return m
}

// ofCertificates registers what is to be known of connected agents' certificates.
func (m *metrics) ofCertificates(r prometheus.Registerer, summary func() (overdue int, soonest int64)) {
	if r == nil {
		return
	}
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "atoll", Subsystem: "gateway", Name: "agent_certificates_overdue", Help: "Connected agents of whose certificate's life less than a quarter is left: they fail to renew it.",
		}, func() float64 { n, _ := summary(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "atoll", Subsystem: "gateway", Name: "agent_certificate_soonest_expiry_timestamp_seconds", Help: "When the first of the connected agents' certificates ends, in Unix seconds; 0 while nobody is connected.",
		}, func() float64 { _, soonest := summary(); return float64(soonest) }),
	)
}

// frame counts a message; direction is "up" or "down".
func (m *metrics) frame(direction string, f proto.Message) {
	kind := "unknown"
	r := f.ProtoReflect()
	if which := r.WhichOneof(r.Descriptor().Oneofs().ByName(protoreflect.Name("frame"))); which != nil {
		kind = strings.ToLower(string(which.Name()))
	}
	m.messages.WithLabelValues(direction, kind).Inc()
	m.bytes.WithLabelValues(direction, kind).Add(float64(proto.Size(f)))
}
