package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap/zapcore"
)

// slogCore hands etcd's log records to a slog handler. What etcd calls info is
// of interest to its developers, so it becomes debug here, and its debug records,
// one per request, are dropped.
type slogCore struct {
	ctx     context.Context // zap carries none with a record
	handler slog.Handler
}

func newCore(ctx context.Context, logger *slog.Logger) *slogCore {
	return &slogCore{ctx: context.WithoutCancel(ctx), handler: logger.Handler()}
}

func level(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.InfoLevel:
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return l > zapcore.DebugLevel && c.handler.Enabled(c.ctx, level(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{ctx: c.ctx, handler: c.handler.WithAttrs(attrs(fields))}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, level(e.Level), e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(c.ctx, r)
}

func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		out = append(out, slog.Any(f.Key, enc.Fields[f.Key]))
	}
	return out
}
