package memberproxy

import (
	"net/http"
	"strings"
	"testing"
)

// A panic in the other goroutine becomes the caller's, with its origin. An aborted request is
// passed on unchanged, because servers recognise it by that value.
func TestAPanicBesideSaysWhereItCameFrom(t *testing.T) {
	after := func(do func()) (broken any) {
		defer func() { broken = recover() }()
		RunOnSeparateStack(do)
		return nil
	}
	if broken := after(func() {}); broken != nil {
		t.Errorf("of nothing it tells %v", broken)
	}
	if broken := after(func() { panic(http.ErrAbortHandler) }); broken != http.ErrAbortHandler {
		t.Errorf("of a request that is broken off it tells %v", broken)
	}
	text, _ := after(panicBroken).(string)
	if !strings.HasPrefix(text, "it is broken\n") || !strings.Contains(text, "memberproxy.panicBroken") {
		t.Errorf("it tells %q", text)
	}
}

func panicBroken() { panic("it is broken") }
