package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// slogCore hands etcd's log records to a slog handler. Records of etcd's level info are for its
// developers, so they become debug here. Its debug records, one for each request, are dropped.
type slogCore struct {
	ctx     context.Context // zap carries none with a record
	handler slog.Handler
}

func newCore(ctx context.Context, logger *slog.Logger) *slogCore {
	return &slogCore{ctx: context.WithoutCancel(ctx), handler: logger.Handler()}
}

// newEtcdLogger returns the logger of an embedded etcd, which writes to logger.
func newEtcdLogger(ctx context.Context, logger *slog.Logger) *zap.Logger {
	return zap.New(newCore(ctx, logger), zap.WithPanicHook(panicHook{}))
}

func slogLevel(l zapcore.Level) slog.Level {
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
	return l > zapcore.DebugLevel && c.handler.Enabled(c.ctx, slogLevel(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{ctx: c.ctx, handler: c.handler.WithAttrs(slogAttrs(fields))}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if isReplayPanic(e.Message) {
		e.Level = zapcore.InfoLevel // etcd goes on
	}
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, 0)
	r.AddAttrs(slogAttrs(fields)...)
	return c.handler.Handle(c.ctx, r)
}

func (c *slogCore) Sync() error { return nil }

func slogAttrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		out = append(out, slog.Any(f.Key, enc.Fields[f.Key]))
	}
	return out
}
