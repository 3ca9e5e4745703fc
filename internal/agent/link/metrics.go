package link

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/metrictable"
)

// Metrics of a Link.
type Metrics struct {
	connected   prometheus.Gauge
	changed     prometheus.Gauge
	websocket   prometheus.Gauge
	next        prometheus.Gauge
	checkIns    prometheus.Counter
	reports     prometheus.Counter
	reportDelay prometheus.Histogram
	frames      *prometheus.CounterVec
	// certificate and renewals are about the agent's own certificate.
	certificate prometheus.Gauge
	renewals    prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		connected: metrictable.AgentLinked.NewGauge(), changed: metrictable.AgentLinkedSince.NewGauge(), websocket: metrictable.AgentWebSocket.NewGauge(),
		next: metrictable.AgentNextCheckIn.NewGauge(), checkIns: metrictable.AgentCheckIns.NewCounter(),
		reports: metrictable.AgentReports.NewCounter(), reportDelay: metrictable.AgentReportDelay.NewHistogram(), frames: metrictable.AgentFrames.NewCounterVec(),
		certificate: metrictable.AgentCertificate.NewGauge(), renewals: metrictable.AgentRenewals.NewCounter(),
	}
	r.MustRegister(m.connected, m.changed, m.websocket, m.next, m.checkIns, m.reports, m.reportDelay, m.frames, m.certificate, m.renewals)
	return m
}

// setConnected records that a session began or ended.
func (m *Metrics) setConnected(connected bool) {
	value := 0.0
	if connected {
		value = 1
	}
	m.connected.Set(value)
	m.changed.Set(float64(time.Now().UnixMilli()) / 1000)
}

func (m *Metrics) countFrame(direction string, countFrame any) {
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", countFrame), "_")
	m.frames.WithLabelValues(direction, kind).Inc()
}
