package apiserver

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quietable is a handler that turns every record into debug once quiet is set: while parts of the
// server start or stop one after the other, they log errors about each other that mean nothing.
type quietable struct {
	slog.Handler
	quiet *atomic.Bool
}

func (q quietable) Enabled(ctx context.Context, level slog.Level) bool {
	if q.quiet.Load() {
		level = min(level, slog.LevelDebug)
	}
	return q.Handler.Enabled(ctx, level)
}

func (q quietable) Handle(ctx context.Context, r slog.Record) error {
	if q.quiet.Load() {
		r.Level = min(r.Level, slog.LevelDebug)
		if !q.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

func (q quietable) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietable{q.Handler.WithAttrs(attrs), q.quiet}
}

func (q quietable) WithGroup(name string) slog.Handler {
	return quietable{q.Handler.WithGroup(name), q.quiet}
}
