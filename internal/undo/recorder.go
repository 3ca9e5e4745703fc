package undo

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// keepTimeout bounds how long a request waits until its change is kept.
const keepTimeout = 5 * time.Second

// errRequestTooLarge is the error of changes that one request makes beyond what a namespace may keep.
var errRequestTooLarge = errors.New("the request changes more than a namespace may keep for undo")

// statusRecorder notes the status code of a response.
type statusRecorder struct {
	http.ResponseWriter
	code int
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s *statusRecorder) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// isSuccess reports whether the request was carried out, by its response.
func (s *statusRecorder) isSuccess() bool { return s.code == 0 || s.code >= 200 && s.code < 300 }

// RecordChanges wraps the API: what a user's request changes is kept when it has succeeded.
func (k *Keeper) RecordChanges(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, known := request.RequestInfoFrom(r.Context())
		u, authenticated := request.UserFrom(r.Context())
		if !known || !authenticated || !info.IsResourceRequest || !changesObjects(info) || k.options.Own(u) {
			next.ServeHTTP(w, r)
			return
		}
		c, status := &captures{}, &statusRecorder{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(status), r.WithContext(context.WithValue(r.Context(), capturesKey{}, c)))
		if n, first := c.countDropped(); n > 0 {
			k.noteNotKept(first, n, errRequestTooLarge)
		}
		taken := c.takeAll()
		if len(taken) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepTimeout)
		defer cancel()
		switch {
		case status.isSuccess():
			k.keepCaptures(ctx, taken)
		case info.Verb == "deletecollection":
			k.keepCaptures(ctx, k.selectDeleted(ctx, taken, info.Path))
		}
	})
}

// changesObjects reports whether a request may change objects whose changes are kept.
func changesObjects(info *request.RequestInfo) bool {
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return info.Subresource == "" || info.Subresource == "scale"
	}
	return false
}

// selectDeleted returns the captures of a deletion of many objects that failed which were deleted all the same.
func (k *Keeper) selectDeleted(ctx context.Context, all []*capture, path string) (out []*capture) {
	hub := k.currentHub()
	for _, c := range all {
		if hub != nil && hub.api.IsDeleted(ctx, path, c.change.Object.Name, c.change.UID) {
			out = append(out, c)
		}
	}
	return out
}
