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
	var told []*Panic
	ctx := ContainPanics(t.Context(), func(p *Panic) { told = append(told, p) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		panicWith(ctx, "no such thing")
	}()
	<-done
	panicWith(ctx, nil)
	if len(told) != 1 || told[0].Error() != "panic: no such thing" || !strings.Contains(told[0].Stack, "crash.panicWith(") {
		t.Errorf("reported %+v", told)
	}
	defer func() {
		if recover() != "no such thing" {
			t.Error("a panic was swallowed where nothing contains it")
		}
	}()
	panicWith(t.Context(), "no such thing")
}
