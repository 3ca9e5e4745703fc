package hub

import (
	"context"
	"net/http"
	"time"

	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/tracing"
)

// traceFlushTimeout bounds how long a hub that ends sends its last spans.
const traceFlushTimeout = 3 * time.Second

// startTracing makes the Tracer of the hub, if tracing is on, and adds its hooks to the API.
func (h *hub) startTracing(ctx context.Context) (stop func(), err error) {
	o := h.options.Tracing
	o.Version, o.Log, o.Traceparent = h.options.API.Version, h.log.With("component", "tracing"), h.traceparentOf
	if h.traces, err = tracing.New(ctx, o); err != nil || h.traces == nil {
		return func() {}, err
	}
	wrap := h.options.API.Handlers
	h.options.API.Handlers = func(next http.Handler) http.Handler { return h.traces.ExtractTraceparent(wrap(next)) }
	h.options.API.Admission = append(h.options.API.Admission, apiserver.AdmissionPlugin{Name: "AtollTracing", Handler: admission.UserWriteRecorder{Own: apiserver.IsHubUser, Note: h.traces.NoteWrite}})
	return func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlushTimeout)
		defer cancel()
		if err := h.traces.Shutdown(end); err != nil {
			h.log.Warn("the last traces could not be sent", "err", err)
		}
	}, nil
}

// traceparentOf returns the traceparent that a Revision keeps; empty: none is known.
func (h *hub) traceparentOf(revision string) string {
	st := h.tables.Load()
	if st == nil {
		return ""
	}
	if r, ok := st.Revisions.Get(revision); ok {
		return r.Annotations[tracing.AnnotationTraceparent]
	}
	return ""
}
