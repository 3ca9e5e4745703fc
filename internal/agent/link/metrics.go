package link

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a Link.
type Metrics struct {
	connected prometheus.Gauge
	websocket prometheus.Gauge
	next      prometheus.Gauge
	checkIns  prometheus.Counter
	reports   prometheus.Counter
	frames    *prometheus.CounterVec
	// certificate and renewals tell of the agent's own.
	certificate prometheus.Gauge
	renewals    prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_agent_linked", Help: "1 while the agent has a session with the hub.",
		}),
		websocket: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_agent_websocket", Help: "1 while the hub is reached by WebSocket, through a load balancer.",
		}),
		next: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_agent_next_check_in_timestamp_seconds", Help: "When the agent dials the hub next, in Unix seconds; 0 for one that holds its stream.",
		}),
		checkIns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_agent_check_ins_total", Help: "Sessions with the hub that ended with everything told.",
		}),
		reports: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_agent_reports_total", Help: "Statuses of Bundles that differed from the last and were reported.",
		}),
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_agent_frames_total", Help: "Frames of sessions with the hub, by direction and kind.",
		}, []string{"direction", "kind"}),
		certificate: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atoll_agent_certificate_expiry_timestamp_seconds", Help: "When the agent's certificate ends, in Unix seconds; 0 before it has one.",
		}),
		renewals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_agent_certificate_renewals_total", Help: "Certificates that came over a session, on the agent's asking or the hub's own.",
		}),
	}
	r.MustRegister(m.connected, m.websocket, m.next, m.checkIns, m.reports, m.frames, m.certificate, m.renewals)
	return m
}

func (m *Metrics) frame(direction string, frame any) {
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", frame), "_")
	m.frames.WithLabelValues(direction, kind).Inc()
}
