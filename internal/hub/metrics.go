package hub

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/statemetrics"
	"atoll.dev/atoll/internal/trust/castatus"
)

// registerMetrics registers the metrics of the hub as a whole, once in a process. They are read
// from the parts that are published at the time.
func (h *hub) registerMetrics(r prometheus.Registerer) error {
	for _, g := range []struct {
		metric metrictable.Definition
		value  func(p *components) int
	}{
		{metrictable.HubLeading, func(p *components) int { return boolToInt(p.tenure.IsLeading()) }},
		{metrictable.HubHolding, func(p *components) int {
			_, holding := p.state.Hub.HoldReason()
			return boolToInt(holding)
		}},
		{metrictable.HubUnreadKinds, func(p *components) int { return len(p.state.Templates.UnreadKinds()) }},
	} {
		err := r.Register(g.metric.NewGaugeFunc(func() float64 {
			p, ok := h.hooks.components.Get()
			if !ok {
				return 0
			}
			return float64(g.value(p))
		}))
		if err != nil {
			return err
		}
	}
	return errors.Join(r.Register(castatus.CertificateCollector{Reporter: selectComponents(h.hooks, func(p *components) *castatus.CAReporter { return p.caStatus })}), r.Register(reconcile.LoopCollector{}))
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

// newStateMetrics makes the metrics of the tables, which are still empty, and of written statuses.
func newStateMetrics(st *state.HubTables, r prometheus.Registerer) (*statemetrics.StateCollector, *prometheus.CounterVec) {
	counted := statemetrics.New(statemetrics.Tables{Bundles: st.Bundles, Clusters: st.Clusters, Rows: st.Rows})
	writes := metrictable.StatusWrites.NewCounterVec()
	r.MustRegister(counted, writes)
	return counted, writes
}
