package delivery

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"atoll.dev/atoll/internal/metrictable"
)

type metrics struct {
	connections       atomic.Int64 // open connections, shown by a gauge
	websockets        atomic.Int64 // of them, those within a WebSocket
	streams           prometheus.Gauge
	unclaimed         prometheus.Gauge
	messages          *prometheus.CounterVec
	bytes             *prometheus.CounterVec
	resyncs           *prometheus.CounterVec
	renders           prometheus.Counter
	renderFailures    prometheus.Counter
	renderSeconds     prometheus.Histogram
	encodes           prometheus.Counter
	cacheHits         prometheus.Counter
	cacheBytes        prometheus.Gauge
	writes            *prometheus.CounterVec
	reportsWritten    prometheus.Counter
	reportWaitSeconds prometheus.Counter
	refused           *prometheus.CounterVec
	issued            *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		streams:           metrictable.GatewayStreams.NewGauge(),
		unclaimed:         metrictable.GatewayUnclaimed.NewGauge(),
		messages:          metrictable.GatewayMessages.NewCounterVec(),
		bytes:             metrictable.GatewayBytes.NewCounterVec(),
		resyncs:           metrictable.GatewayResyncs.NewCounterVec(),
		renders:           metrictable.GatewayRenders.NewCounter(),
		renderFailures:    metrictable.GatewayRenderFailures.NewCounter(),
		renderSeconds:     metrictable.GatewayRenderSeconds.NewHistogram(),
		encodes:           metrictable.GatewayEncodes.NewCounter(),
		cacheHits:         metrictable.GatewayCacheHits.NewCounter(),
		cacheBytes:        metrictable.GatewayCacheBytes.NewGauge(),
		writes:            metrictable.GatewayStatusWrites.NewCounterVec(),
		reportsWritten:    metrictable.GatewayReportsWritten.NewCounter(),
		reportWaitSeconds: metrictable.GatewayReportWait.NewCounter(),
		refused:           metrictable.GatewayRefused.NewCounterVec(),
		issued:            metrictable.GatewayIssued.NewCounterVec(),
	}
	if r != nil {
		r.MustRegister(
			metrictable.GatewayConnections.NewGaugeFunc(func() float64 { return float64(m.connections.Load()) }),
			metrictable.GatewayWebSockets.NewGaugeFunc(func() float64 { return float64(m.websockets.Load()) }),
			m.streams, m.unclaimed, m.messages, m.bytes, m.resyncs, m.renders, m.renderFailures, m.renderSeconds, m.encodes, m.cacheHits, m.cacheBytes,
			m.writes, m.reportsWritten, m.reportWaitSeconds, m.refused, m.issued,
		)
	}
	return m
}

// registerExpiryGauges registers the gauges of connected agents' certificates.
func (m *metrics) registerExpiryGauges(r prometheus.Registerer, summary func() (overdue int, soonest int64)) {
	if r == nil {
		return
	}
	r.MustRegister(
		metrictable.GatewayCertificatesOverdue.NewGaugeFunc(func() float64 { n, _ := summary(); return float64(n) }),
		metrictable.GatewaySoonestExpiry.NewGaugeFunc(func() float64 { _, soonest := summary(); return float64(soonest) }),
	)
}

// countFrame counts a message. direction is "up" or "down".
func (m *metrics) countFrame(direction string, f proto.Message) {
	kind := "unknown"
	r := f.ProtoReflect()
	if which := r.WhichOneof(r.Descriptor().Oneofs().ByName(protoreflect.Name("frame"))); which != nil {
		kind = strings.ToLower(string(which.Name()))
	}
	m.messages.WithLabelValues(direction, kind).Inc()
	m.bytes.WithLabelValues(direction, kind).Add(float64(proto.Size(f)))
}
