// Package panicorigin finds where a panic began.
//
// Contract: only a deferred function that recovers calls Find and Describe. They may be called
// concurrently.
package panicorigin

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// MaxCallers bounds the callers that Find returns.
const MaxCallers = 12

// FindPanicOrigin returns the function, the file and the line in which the panic began, and the callers of that
// function, innermost first. It finds the first one of two panics. place is empty when the goroutine
// does not panic.
func FindPanicOrigin() (place string, callers []string) {
	stack := make([]uintptr, 64)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	for isBelowPanic := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			isBelowPanic, place, callers = true, "", nil // of two panics, the first one is lowest
		case !isBelowPanic || strings.HasPrefix(f.Function, "runtime."):
		case place == "":
			place = fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line)
		case len(callers) < MaxCallers:
			callers = append(callers, fmt.Sprintf("%s:%d", path.Base(f.Function), f.Line))
		}
		if !more {
			return place, callers
		}
	}
}

// DescribePanic returns the value of a panic and where it began.
func DescribePanic(value any) string {
	place, _ := FindPanicOrigin()
	return fmt.Sprintf("%v in %s", value, place)
}
