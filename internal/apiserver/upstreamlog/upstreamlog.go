// Package upstreamlog takes what Kubernetes' own code logs.
//
// Contract: klog has one destination per process, and it must not be set while anybody
// logs. So it is set once, at the first Redirect, and leads to where the last Redirect
// said; loggers that were derived before stay with what they were derived from. Redirect
// is safe for concurrent use, also with all that logs, but for the first one, which comes
// before anything that does.
package upstreamlog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// destination of what klog is told; set before klog is.
var destination atomic.Pointer[slog.Handler]

// take klog's records, from now on. What upstream calls info is of interest to its
// developers, so it becomes debug here.
var take = sync.OnceFunc(func() {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(redirected{}).V(4), klog.ContextualLogger(true))
})

// Redirect what upstream logs to a handler.
func Redirect(to slog.Handler) {
	destination.Store(&to)
	take()
}

// redirected is a handler that hands all to the destination of the moment.
type redirected struct{}

func (redirected) to() slog.Handler { return *destination.Load() }

// Enabled asks the destination.
func (r redirected) Enabled(ctx context.Context, level slog.Level) bool {
	return r.to().Enabled(ctx, level)
}

// Handle hands the record on.
func (r redirected) Handle(ctx context.Context, record slog.Record) error {
	return r.to().Handle(ctx, record)
}

// WithAttrs gives a handler of the destination's.
func (r redirected) WithAttrs(attrs []slog.Attr) slog.Handler { return r.to().WithAttrs(attrs) }

// WithGroup gives a handler of the destination's.
func (r redirected) WithGroup(name string) slog.Handler { return r.to().WithGroup(name) }
