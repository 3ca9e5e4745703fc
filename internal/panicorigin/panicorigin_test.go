package panicorigin

import (
	"regexp"
	"strings"
	"testing"
)

func panicWith(value any) { panic(value) }

func callPanicWith(value any) { panicWith(value) }

// panicTwice panics again while its first panic unwinds the stack.
func panicTwice() {
	defer panicWith("second")
	callPanicWith("first")
}

func recoverFrom(do func()) (place string, callers []string, text string) {
	defer func() {
		value := recover()
		place, callers = FindPanicOrigin()
		text = DescribePanic(value)
	}()
	do()
	return
}

func TestFind(t *testing.T) {
	place, callers, text := recoverFrom(func() { callPanicWith("broken") })
	if !regexp.MustCompile(`^panicorigin\.panicWith \(panicorigin_test\.go:\d+\)$`).MatchString(place) {
		t.Errorf("the panic began in %q", place)
	}
	if len(callers) < 2 || !strings.HasPrefix(callers[0], "panicorigin.callPanicWith:") || !strings.HasPrefix(callers[1], "panicorigin.TestFind.func1:") {
		t.Errorf("callers %q", callers)
	}
	if text != "broken in "+place {
		t.Errorf("it is described as %q", text)
	}
}

func TestFindReturnsTheFirstOfTwoPanics(t *testing.T) {
	place, callers, _ := recoverFrom(panicTwice)
	if !strings.HasPrefix(place, "panicorigin.panicWith ") || len(callers) == 0 || !strings.HasPrefix(callers[0], "panicorigin.callPanicWith:") {
		t.Errorf("the panic began in %q, called by %q", place, callers)
	}
}

func panicDeep(depth int) {
	if depth == 0 {
		panic("deep")
	}
	panicDeep(depth - 1)
}

func TestFindBoundsTheCallers(t *testing.T) {
	if _, callers, _ := recoverFrom(func() { panicDeep(30) }); len(callers) != MaxCallers {
		t.Errorf("%d callers, want %d", len(callers), MaxCallers)
	}
}

func TestFindWithoutAPanic(t *testing.T) {
	if place, callers := FindPanicOrigin(); place != "" || callers != nil {
		t.Errorf("place %q, callers %q", place, callers)
	}
}
