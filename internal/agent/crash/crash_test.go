package crash

import (
	"context"
	"strings"
	"testing"
)

func blow(ctx context.Context, value any) {
	defer Recover(ctx)
	if value != nil {
		panic(value)
	}
}

func TestAPanicIsContainedWhereThatWasAsked(t *testing.T) {
	var told []*Panic
	ctx := Contain(t.Context(), func(p *Panic) { told = append(told, p) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		blow(ctx, "no such thing")
	}()
	<-done
	blow(ctx, nil)
	if len(told) != 1 || told[0].Error() != "panic: no such thing" || !strings.Contains(told[0].Stack, "crash.blow(") {
		t.Errorf("told of %+v", told)
	}
	defer func() {
		if recover() != "no such thing" {
			t.Error("a panic was swallowed where nobody contains it")
		}
	}()
	blow(t.Context(), "no such thing")
}
