package crash

import (
	"context"
	"strings"
	"testing"
)

func panicWith(ctx context.Context, value any) {
	defer RecoverContained(ctx)
	if value != nil {
		panic(value)
	}
}

func TestAPanicIsContainedWhereThatWasAsked(t *testing.T) {
	var panics []*Panic
	ctx := ContainPanics(t.Context(), func(p *Panic) { panics = append(panics, p) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		panicWith(ctx, "no such thing")
	}()
	<-done
	panicWith(ctx, nil)
	if len(panics) != 1 || panics[0].Error() != "panic: no such thing" || !strings.Contains(panics[0].Stack, "crash.panicWith(") {
		t.Errorf("reported %+v", panics)
	}
	defer func() {
		if recover() != "no such thing" {
			t.Error("a panic was swallowed where nothing contains it")
		}
	}()
	panicWith(t.Context(), "no such thing")
}
