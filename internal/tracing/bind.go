package tracing

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Names of spans that have children.
const (
	spanWrite   = "write"
	spanBind    = "bind"
	spanPlace   = "place"
	spanDeliver = "deliver"
)

// maxWriteAge is how old a user's write may be that counts as the cause of a Revision.
const maxWriteAge = 10 * time.Minute

// userWrite is the last write of an object by a user.
type userWrite struct {
	key      atoll.ItemKey
	verb     string
	received time.Time
	span     trace.SpanContext // of the request; invalid: it had no traceparent
}

// ExtractTraceparent adds the traceparent of a writing request to its context.
func (t *Tracer) ExtractTraceparent(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if value := r.Header.Get(traceparentHeader); value != "" && r.Method != http.MethodGet {
			if user := t.parseTraceparent(value); user.IsValid() {
				r = r.WithContext(trace.ContextWithRemoteSpanContext(r.Context(), user))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// NoteWrite notes that a user's request, to which ctx belongs, writes an object.
func (t *Tracer) NoteWrite(ctx context.Context, key atoll.ItemKey, verb string, received time.Time) {
	if t == nil || key.Name == "" {
		return
	}
	t.writes.Add(key, userWrite{key, strings.ToLower(verb), received, trace.SpanContextFromContext(ctx)})
}

// RevisionBind is the making of a Bundle's next Revision.
type RevisionBind struct {
	Bundle enginev1.BundleRef
	// Previous Revision; nil: this is the first.
	Previous *enginev1.Revision
	Started  time.Time
	// Sources lists the objects whose writes can be the cause.
	Sources iter.Seq[atoll.ItemKey]
}

// BeginBind returns the context in which the Revision is written, and the function that
// records the user's write and the bind once the Revision has a name.
func (t *Tracer) BeginBind(ctx context.Context, b RevisionBind) (_ context.Context, finish func(revision string)) {
	cause, known := t.findCausingWrite(b)
	ctx = trace.ContextWithSpanContext(ctx, cause.span)
	return ctx, func(revision string) {
		if b.Previous == nil || b.Previous.Name != revision {
			t.recordBind(b, revision, cause, known)
		}
	}
}

// findCausingWrite returns the newest write that the previous Revision cannot have.
func (t *Tracer) findCausingWrite(b RevisionBind) (cause userWrite, known bool) {
	after := b.Started.Add(-maxWriteAge)
	if b.Previous != nil && b.Previous.CreationTimestamp.After(after) {
		after = b.Previous.CreationTimestamp.Time
	}
	for key := range b.Sources {
		if found, ok := t.writes.Get(key); ok {
			if w := found.(userWrite); w.received.After(after) && w.received.Before(b.Started) {
				cause, known, after = w, true, w.received
			}
		}
	}
	return cause, known
}

func (t *Tracer) recordBind(b RevisionBind, revision string, cause userWrite, known bool) {
	c, sampled := t.changeTraceOf(revision)
	if !sampled {
		return
	}
	bind := span{
		name: spanBind, id: c.spanID(spanBind), start: b.Started, end: time.Now(), attributes: bundleAttributes(b.Bundle),
	}
	if known {
		bind.parent = c.spanID(spanWrite)
		t.record(c, span{
			name: spanWrite, kind: trace.SpanKindServer, id: bind.parent, start: cause.received, end: b.Started,
			attributes: append(bundleAttributes(b.Bundle), attribute.String("atoll.object", cause.key.String()), attribute.String("atoll.verb", cause.verb)),
		})
	}
	t.record(c, bind)
}

func bundleAttributes(ref enginev1.BundleRef) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("atoll.bundle", ref.Name), attribute.String("k8s.namespace.name", ref.Namespace), attribute.String("atoll.bundle.uid", ref.UID),
	}
}

// PlacementStep is a step of a Bundle's placement that was written.
type PlacementStep struct {
	Bundle   enginev1.BundleRef
	Revision string
	Started  time.Time
	// Clusters is how many rows the step changed.
	Clusters int
	// IsFirst: no row had the Revision before.
	IsFirst bool
}

// RecordPlace records a step. The spans of clusters are children of the first one.
func (t *Tracer) RecordPlace(p PlacementStep) {
	c, sampled := t.changeTraceOf(p.Revision)
	if !sampled {
		return
	}
	s := span{
		name: spanPlace, parent: c.spanID(spanBind), start: p.Started, end: time.Now(),
		attributes: append(bundleAttributes(p.Bundle), attribute.Int("atoll.clusters", p.Clusters)),
	}
	if p.IsFirst {
		s.id = c.spanID(spanPlace)
	}
	t.record(c, s)
}

// Status is a status of a Bundle that was written.
type Status struct {
	Bundle   enginev1.BundleRef
	Revision string
	Started  time.Time
	// Reason of the condition Ready. IsReady: it is true; IsFailed: a person must act.
	Reason            string
	IsReady, IsFailed bool
	Ready, Desired    int32
}

// RecordStatus records the statuses of a Revision until its Bundle is ready.
func (t *Tracer) RecordStatus(s Status) {
	if t == nil {
		return
	}
	c, sampled := t.changeTraceOf(s.Revision)
	if _, done := t.settled.Get(s.Revision); !sampled || done {
		return
	}
	if s.IsReady {
		t.settled.Add(s.Revision, struct{}{})
	}
	out := span{
		name: "status", parent: c.spanID(spanBind), start: s.Started, end: time.Now(),
		attributes: append(bundleAttributes(s.Bundle), attribute.String("atoll.reason", s.Reason), attribute.Int("atoll.clusters.ready", int(s.Ready)), attribute.Int("atoll.clusters", int(s.Desired))),
	}
	if s.IsFailed {
		out.reason = s.Reason
	}
	t.record(c, out)
}
