package apply

import "github.com/prometheus/client_golang/prometheus"

// Metrics of an Engine.
type Metrics struct {
	applies     *prometheus.CounterVec
	corrections prometheus.Counter
	failures    *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_agent_applies_total", Help: "Server-side applies sent to the member, by outcome.",
		}, []string{"outcome"}),
		corrections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atoll_agent_drift_corrections_total", Help: "Objects that were applied again because somebody changed them in the member.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atoll_agent_failures_total", Help: "Times that an object began to fail or to wait, by reason.",
		}, []string{"reason"}),
	}
	r.MustRegister(m.applies, m.corrections, m.failures)
	return m
}

func (m *Metrics) applied(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.applies.WithLabelValues(outcome).Inc()
}

func (m *Metrics) corrected() { m.corrections.Inc() }

func (m *Metrics) failure(f *Failure) { m.failures.WithLabelValues(f.Reason).Inc() }
