package apiserver

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// endStreams ends the requests that isLong describes when server ends: watches, logs, terminals and trees. The
// HTTP server waits for each of them when it stops, up to a minute.
//
// Upstream's own end of watches, by ShutdownWatchTerminationGracePeriod, leaves out all but watches.
func endStreams(server context.Context, isLong request.LongRunningRequestCheck, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !isLong(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(server, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
