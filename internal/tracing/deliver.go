package tracing

import (
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

const (
	// maxReports of one order have spans.
	maxReports = 8
	// maxReasonBytes is the longest reason of an agent that a span has.
	maxReasonBytes = 64
)

// Order is a row that is sent to its cluster.
type Order struct {
	Bundle              enginev1.BundleRef
	Cluster, ClusterUID string
	Revision            string
	Generation          int64
}

// orderKey identifies the orders of a row: the newest replaces the others.
type orderKey struct{ clusterUID, bundle string }

// sentOrder is an order whose answers are awaited.
type sentOrder struct {
	Order
	change  changeTrace
	started time.Time

	mu                sync.Mutex
	isStored, isTimed bool
	reportCount       int
	lastState         string
}

func (o *sentOrder) orderAttributes(more ...attribute.KeyValue) []attribute.KeyValue {
	return append(append(bundleAttributes(o.Bundle), attribute.String("k8s.cluster.name", o.Cluster), attribute.String("k8s.cluster.uid", o.ClusterUID),
		attribute.Int64("atoll.generation", o.Generation)), more...)
}

// deliverID is the parent of the spans of one order.
func (o *sentOrder) deliverID() trace.SpanID {
	return o.change.spanID(spanDeliver, o.ClusterUID, strconv.FormatInt(o.Generation, 10))
}

// OrderSent records how an order was rendered that is sent now, and awaits its answers.
func (t *Tracer) OrderSent(o Order, started, rendered time.Time) {
	t.recordRender(o, started, rendered, "")
}

// RenderFailed records that an order could not be rendered.
func (t *Tracer) RenderFailed(o Order, started time.Time) {
	t.recordRender(o, started, time.Now(), string(atoll.ReasonRenderFailed))
}

func (t *Tracer) recordRender(o Order, started, rendered time.Time, failure string) {
	c, sampled := t.changeTraceOf(o.Revision)
	if !sampled {
		return
	}
	order := &sentOrder{Order: o, change: c, started: started}
	t.record(c, span{name: "render", parent: order.deliverID(), start: started, end: rendered, reason: failure, attributes: order.orderAttributes()})
	if failure == "" {
		t.orders.Add(orderKey{o.ClusterUID, o.Bundle.UID}, order)
	}
}

// findSentOrder returns the order of a row that was sent, of that generation.
func (t *Tracer) findSentOrder(clusterUID, bundle string, generation int64) (*sentOrder, bool) {
	found, ok := t.orders.Get(orderKey{clusterUID, bundle})
	if !ok {
		return nil, false
	}
	order := found.(*sentOrder)
	return order, order.Generation == generation
}

// OrderStored records that the agent has stored an order in its member.
func (t *Tracer) OrderStored(clusterUID, bundle string, generation int64) {
	if t == nil {
		return
	}
	o, ok := t.findSentOrder(clusterUID, bundle, generation)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isStored {
		o.isStored = true
		t.record(o.change, span{name: spanDeliver, kind: trace.SpanKindProducer, id: o.deliverID(), parent: o.change.spanID(spanPlace), start: o.started, end: time.Now(), attributes: o.orderAttributes()})
	}
}

// OrderApplied records how long the agent's apply took, once for each order that was sent. It
// ended age before the report came, by the agent's clock. An agent cannot move a time before
// the order or into the future.
func (t *Tracer) OrderApplied(clusterUID, bundle string, report *atoll.RowStatus, took, age time.Duration) {
	if t == nil {
		return
	}
	o, ok := t.findSentOrder(clusterUID, bundle, report.Generation)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isTimed {
		return
	}
	o.isTimed = true
	now := time.Now()
	end := boundTime(now.Add(-age), o.started, now)
	start := boundTime(end.Add(-took), o.started, now)
	t.record(o.change, span{
		name: "apply", kind: trace.SpanKindConsumer, parent: o.deliverID(), start: start, end: end, byAgent: true,
		reason: failureReasonOf(report), attributes: o.orderAttributes(reportAttributes(report)...),
	})
}

// ReportWritten records that a report of another state than the last was written into its row.
func (t *Tracer) ReportWritten(clusterUID, bundle string, report *atoll.RowStatus, received time.Time) {
	if t == nil {
		return
	}
	o, ok := t.findSentOrder(clusterUID, bundle, report.Generation)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	state := reportedRowState(report) + strconv.FormatBool(report.Applied)
	if o.reportCount == maxReports || o.lastState == state {
		return
	}
	o.reportCount, o.lastState = o.reportCount+1, state
	t.record(o.change, span{
		name: "report", parent: o.deliverID(), start: received, end: time.Now(), reason: failureReasonOf(report), attributes: o.orderAttributes(reportAttributes(report)...),
	})
}

func boundTime(t, earliest, latest time.Time) time.Time {
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}

func reportAttributes(r *atoll.RowStatus) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("atoll.state", reportedRowState(r)), attribute.Bool("atoll.applied", r.Applied),
		attribute.Int("atoll.items.ready", int(r.Ready)), attribute.Int("atoll.items", int(r.Total)),
	}
}

// reportedRowState returns the state that an agent reports, if it is one.
func reportedRowState(r *atoll.RowStatus) string {
	switch r.State {
	case atoll.RowProgressing, atoll.RowReady, atoll.RowDegraded, atoll.RowFailed, atoll.RowRemoved:
		return string(r.State)
	}
	return "Unknown"
}

// failureReasonOf returns the reason of a failed report. An agent's text that is no reason is left
// out, since it could have anything.
func failureReasonOf(r *atoll.RowStatus) string {
	if r.State != atoll.RowFailed && r.State != atoll.RowDegraded {
		return ""
	}
	for _, b := range []byte(r.Reason) {
		if b < '0' || b > '9' && b < 'A' || b > 'Z' && b < 'a' || b > 'z' {
			return string(atoll.RowFailed)
		}
	}
	if r.Reason == "" || len(r.Reason) > maxReasonBytes {
		return string(atoll.RowFailed)
	}
	return string(r.Reason)
}
