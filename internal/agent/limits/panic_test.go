package limits

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/testwait"
)

// TestAPanicIsNotKeptByWhatRunsBesideIt: the panic is reported, and everything ends.
func TestAPanicIsNotKeptByWhatRunsBesideIt(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ctx = crash.ContainPanics(ctx, func(*crash.Panic) { end() })
	l := New(Options{Changed: func() {}, Log: slog.New(slog.DiscardHandler)}) // it looks for kinds without a client
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer crash.RecoverContained(ctx)
		l.Run(ctx)
	}()
	select {
	case <-over:
	case <-time.After(testwait.HangLimit):
		t.Fatal("what panicked waits for what is to end by its panic")
	}
	if crash.ContainedPanic(ctx) == nil {
		t.Error("there was no panic")
	}
}
