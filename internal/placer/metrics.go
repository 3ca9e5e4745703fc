package placer

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/state"
)

// Metrics of a Reconciler.
type Metrics struct {
	decisions, orders *prometheus.CounterVec
	failedCopies      prometheus.Counter
}

// NewMetrics registers the metrics; nil: nowhere.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{decisions: metrictable.PlacerDecisions.NewCounterVec(), orders: metrictable.PlacerOrders.NewCounterVec(), failedCopies: metrictable.PlacerFailures.NewCounter()}
	if r != nil {
		r.MustRegister(m.decisions, m.orders, m.failedCopies)
	}
	return m
}

// countStep counts a step whose changes were written, or not because of an error.
func (m *Metrics) countStep(base []state.Row, changes map[string]*atoll.RowSpec, err error) {
	switch {
	case errors.Is(err, state.ErrRowsMoved):
		m.decisions.WithLabelValues("outdated").Inc()
		return
	case err != nil:
		m.decisions.WithLabelValues("failed").Inc()
		return
	case len(changes) == 0:
		m.decisions.WithLabelValues("unchanged").Inc()
		return
	}
	m.decisions.WithLabelValues("written").Inc()
	known := 0
	for i := range base {
		if next, changes := changes[base[i].Cluster]; changes {
			known++
			if cause := rowOrderCause(base[i].Spec, next); cause != "" {
				m.orders.WithLabelValues(cause).Inc()
			}
		}
	}
	if fresh := len(changes) - known; fresh > 0 {
		m.orders.WithLabelValues("Placement").Add(float64(fresh))
	}
}

// rowOrderCause returns the cause of an order; empty when the row changes without an order.
func rowOrderCause(was atoll.RowSpec, next *atoll.RowSpec) string {
	switch {
	case next == nil:
		return "Forgotten"
	case next.Phase != was.Phase && next.Phase == atoll.RowRemoving:
		return "Removal"
	case next.Phase != was.Phase && next.Phase == atoll.RowActive, next.UID != was.UID:
		return "Placement"
	case next.Phase != was.Phase:
		return "Leaving"
	case next.Generation == was.Generation:
		return ""
	case next.Revision != was.Revision:
		return "Revision"
	case next.Variant != was.Variant:
		return "Override"
	}
	return "Replicas"
}
