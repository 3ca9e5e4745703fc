package hub

import (
	"context"
	"net/http"

	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/tracing"
)

// startTracing makes the Tracer of the hub, if tracing is on, and adds its hooks to the API.
func (h *hub) startTracing(ctx context.Context) (err error) {
	o := h.options.Tracing
	o.Version, o.Log, o.Traceparent = h.options.API.Version, h.log.With("component", "tracing"), h.traceparentOf
	if h.traces, err = tracing.New(ctx, o); err != nil || h.traces == nil {
		return err
	}
	wrap := h.options.API.Handlers
	h.options.API.Handlers = func(next http.Handler) http.Handler { return h.traces.ExtractTraceparent(wrap(next)) }
	h.options.API.Admission = append(h.options.API.Admission, apiserver.AdmissionPlugin{Name: "AtollTracing", Handler: admission.UserWriteRecorder{Own: apiserver.IsHubUser, Note: h.traces.NoteWrite}})
	return nil
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
