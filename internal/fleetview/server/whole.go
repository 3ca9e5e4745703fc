package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/memberproxy"
)

type answerKey struct{}

// answer of a log, by which Whole gets what the API server does not report.
type answer struct {
	broken atomic.Bool
	// body that is followed, and that Whole is to pass on.
	body io.ReadCloser
}

// AbortTruncatedLogs wraps the API's handler, inside authorization. The API server takes a read
// error for the end, so that half of a log, or one whose cluster has gone, would look complete:
// such a request is aborted, as the member proxy does.
//
// A followed log is passed on here: under the API server's own handler, a goroutine that waits for
// a pod's next line has a stack twice as large, and a buffer of 32 KiB.
func AbortTruncatedLogs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Resource != "pods" || info.Subresource != "log" {
			next.ServeHTTP(w, r)
			return
		}
		var a answer
		memberproxy.RunOnSeparateStack(func() { next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, &a))) })
		if a.body != nil {
			metrics.RecordLongRunning(r, info, metrics.APIServerComponent, func() { memberproxy.PassBody(r.Context(), w, a.body) })
		}
		if a.broken.Load() {
			panic(http.ErrAbortHandler)
		}
	})
}

// truncationTrackingBody is a body that reports to AbortTruncatedLogs when it cannot be read to its end. The answer
// of a WebSocket is read by another goroutine, in which a panic would end the hub.
type truncationTrackingBody struct {
	io.ReadCloser
	ctx context.Context
}

// Read reads what comes.
func (n *truncationTrackingBody) Read(b []byte) (int, error) {
	read, err := n.ReadCloser.Read(b)
	if a, ok := n.ctx.Value(answerKey{}).(*answer); ok && err != nil && !errors.Is(err, io.EOF) && n.ctx.Err() == nil {
		a.broken.Store(true)
	}
	return read, err
}

// followedLogBody is a body that Whole passes on, once the API server would.
type followedLogBody struct {
	*truncationTrackingBody
	handed bool
}

// WriteTo hands the body over to AbortTruncatedLogs if that serves the request, else it copies the
// body.
func (f *followedLogBody) WriteTo(w io.Writer) (int64, error) {
	a, ok := f.ctx.Value(answerKey{}).(*answer)
	if !ok {
		return io.Copy(w, f.truncationTrackingBody)
	}
	a.body, f.handed = f.ReadCloser, true
	return 0, nil
}

// Close closes the body, unless it was handed over.
func (f *followedLogBody) Close() error {
	if f.handed {
		return nil
	}
	return f.truncationTrackingBody.Close()
}
