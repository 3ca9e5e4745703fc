// Package testwait waits in tests for what other goroutines, processes and clusters do.
//
// Contract: HangLimit is the only bound, and it only ends what hangs: no test depends on its length, so
// a busy machine cannot miss it. In a bubble of synctest it is fake time. The functions must be called
// in the goroutine of the test.
package testwait

import (
	"context"
	"testing"
	"time"
)

const (
	// HangLimit is the longest wait.
	HangLimit = 3 * time.Minute
	// pollInterval is the pause between two looks. A look that takes longer is followed by as long a
	// pause, so that looking leaves the machine to what it looks at.
	pollInterval = 20 * time.Millisecond
)

// Until waits until the condition holds. After HangLimit the test fails with the state that was seen
// last before the limit.
func Until(t testing.TB, what string, holds func(ctx context.Context) (ok bool, seen string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), HangLimit)
	defer cancel()
	for last := "nothing"; ; {
		begin := time.Now()
		ok, seen := holds(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil {
			last = seen
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s; last seen: %s", what, HangLimit, last)
		case <-time.After(max(pollInterval, time.Since(begin))):
		}
	}
}

// UntilTrue waits as Until does, for a condition without a state to report.
func UntilTrue(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func(context.Context) (bool, string) { return holds(), "it does not hold" })
}

// Receive returns the next value of a channel. A closed channel gives the zero value.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(HangLimit):
		t.Fatalf("%s: nothing came within %s", what, HangLimit)
		panic("unreachable")
	}
}
