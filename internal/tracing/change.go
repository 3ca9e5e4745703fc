package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// AnnotationTraceparent of a Revision is the traceparent of the user's request that caused it.
// Only a hub that traces writes it, and only where the request had a traceparent.
const AnnotationTraceparent = "engine.atoll.dev/traceparent"

// traceparentHeader is the field of W3C Trace Context.
const traceparentHeader = "traceparent"

// changeTrace is the trace of a Revision.
type changeTrace struct {
	revision string
	trace    trace.TraceID
	// user is the span of the request that caused the Revision; invalid: none is known.
	user trace.SpanContext
}

// changeTraceOf returns the trace of a Revision, and whether it is sampled.
func (t *Tracer) changeTraceOf(revision string) (changeTrace, bool) {
	c := changeTrace{revision: revision}
	if revision == "" {
		return c, false
	}
	if t.traceparent != nil {
		c.user = t.parseTraceparent(t.traceparent(revision))
	}
	if c.user.IsValid() {
		c.trace = c.user.TraceID()
		return c, c.user.IsSampled()
	}
	hash := hashParts("trace", revision)
	c.trace = trace.TraceID(hash[:16])
	decision := t.ratio.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.ctx, TraceID: c.trace}).Decision
	return c, decision == sdktrace.RecordAndSample
}

// IsTraced reports whether the change that made a Revision is traced.
func (t *Tracer) IsTraced(revision string) bool {
	if t == nil {
		return false
	}
	_, sampled := t.changeTraceOf(revision)
	return sampled
}

// spanID returns the ID of a span that has children.
func (c changeTrace) spanID(parts ...string) trace.SpanID {
	hash := hashParts(append([]string{"span", c.revision}, parts...)...)
	return trace.SpanID(hash[:8])
}

func hashParts(parts ...string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join(parts, "\x00")))
}

// parseTraceparent returns the span context of a traceparent; invalid where it has none.
func (t *Tracer) parseTraceparent(value string) trace.SpanContext {
	if value == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{traceparentHeader: value}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.ctx, carrier))
}

// TraceparentOf returns the traceparent of the span in a context; empty where it has none.
func TraceparentOf(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentHeader]
}

// derivedIDs takes the IDs of a span from its context.
type derivedIDs struct{}

type idsKey struct{}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (d derivedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	known, _ := ctx.Value(idsKey{}).(ids)
	return known.trace, d.NewSpanID(ctx, known.trace)
}

// NewSpanID implements sdktrace.IDGenerator.
func (derivedIDs) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if known, _ := ctx.Value(idsKey{}).(ids); known.span.IsValid() {
		return known.span
	}
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
