package delivery

import (
	"time"

	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// orderTrace is the trace of an order that is being made. Without a tracer it records nothing.
type orderTrace struct {
	tracer  *tracing.Tracer
	order   tracing.Order
	started time.Time
}

// beginTrace begins the trace of a row's order, if the change of its Revision is traced.
func (s *agentSession) beginTrace(row state.Row) orderTrace {
	traces := s.gateway.options.Traces
	if !traces.IsTraced(row.Spec.Revision) {
		return orderTrace{}
	}
	return orderTrace{traces, tracing.Order{
		Bundle: row.Bundle, Cluster: s.cluster, ClusterUID: s.id.uid, Revision: row.Spec.Revision, Generation: row.Spec.Generation,
	}, time.Now()}
}

// orderSent records the rendering. It is called before the order is sent, so that the order is
// known when its answer comes.
func (o orderTrace) orderSent() {
	if o.tracer != nil {
		o.tracer.OrderSent(o.order, o.started, time.Now())
	}
}

func (o orderTrace) renderFailed() {
	if o.tracer != nil {
		o.tracer.RenderFailed(o.order, o.started)
	}
}

func durationFromMillis(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
