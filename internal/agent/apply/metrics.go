package apply

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/metrictable"
)

// Metrics of an Engine.
type Metrics struct {
	applies      *prometheus.CounterVec
	writes       *prometheus.CounterVec
	writeSeconds *prometheus.HistogramVec
	corrections  prometheus.Counter
	failures     *prometheus.CounterVec
	queueDepth   prometheus.Gauge
	drifted      prometheus.Gauge
	reviews      *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		applies: metrictable.AgentApplies.NewCounterVec(), writes: metrictable.AgentWrites.NewCounterVec(), writeSeconds: metrictable.AgentWriteSeconds.NewHistogramVec(),
		corrections: metrictable.AgentCorrections.NewCounter(), failures: metrictable.AgentFailures.NewCounterVec(),
		queueDepth: metrictable.AgentQueueDepth.NewGauge(), drifted: metrictable.AgentDrifted.NewGauge(), reviews: metrictable.AgentAccessReviews.NewCounterVec(),
	}
	r.MustRegister(m.applies, m.writes, m.writeSeconds, m.corrections, m.failures, m.queueDepth, m.drifted, m.reviews)
	return m
}

// The verbs of writes in the member, as metrics label them.
const (
	verbApply  = "apply"
	verbDelete = "delete"
)

// countWrite counts a write in the member that began at start.
func (m *Metrics) countWrite(verb string, start time.Time, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	if verb == verbApply {
		m.applies.WithLabelValues(outcome).Inc()
	}
	m.writes.WithLabelValues(verb, outcome).Inc()
	m.writeSeconds.WithLabelValues(verb).Observe(time.Since(start).Seconds())
}

func (m *Metrics) countCorrection() { m.corrections.Inc() }

// countAccessReview counts a question for a right of a ServiceAccount by its answer.
func (m *Metrics) countAccessReview(answer string) { m.reviews.WithLabelValues(answer).Inc() }

func (m *Metrics) countFailure(f *Failure) { m.failures.WithLabelValues(string(f.Reason)).Inc() }
