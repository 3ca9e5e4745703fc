// Package upstreamlog redirects the logs of Kubernetes' own code.
//
// Contract: klog has one destination for each process, and it must not be set while other
// goroutines log. So it is set once, at the first RedirectLogs, and leads to the handler of the
// last one. Loggers that were derived before keep their destination. RedirectLogs is safe for
// concurrent use, also with logging, except the first call, which comes before any logging.
package upstreamlog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// destination of klog's records; set before klog is.
var destination atomic.Pointer[slog.Handler]

// take klog's records from now on. Upstream's level info is for its developers, so it becomes
// debug here.
var take = sync.OnceFunc(func() {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(redirectHandler{}).V(4), klog.ContextualLogger(true))
})

// RedirectLogs redirects what upstream logs to a handler.
func RedirectLogs(to slog.Handler) {
	destination.Store(&to)
	take()
}

// redirectHandler is a handler that hands all to the destination of the moment.
type redirectHandler struct{}

func (redirectHandler) currentDestination() slog.Handler { return *destination.Load() }

// Enabled reports what the destination reports.
func (r redirectHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return r.currentDestination().Enabled(ctx, level)
}

// Handle hands the record on.
func (r redirectHandler) Handle(ctx context.Context, record slog.Record) error {
	return r.currentDestination().Handle(ctx, record)
}

// WithAttrs returns a handler of the destination's.
func (r redirectHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return r.currentDestination().WithAttrs(attrs)
}

// WithGroup returns a handler of the destination's.
func (r redirectHandler) WithGroup(name string) slog.Handler {
	return r.currentDestination().WithGroup(name)
}
