// Package testwait waits in tests for what other goroutines, processes and clusters do.
//
// Contract: HangLimit only ends what hangs: no test depends on its length, so a busy machine cannot
// miss it. Another limit is a promise of the product, with a margin. In a bubble of synctest both are
// fake time. Only nil, or true, ends a wait well. The functions must be called in the goroutine of the
// test.
package testwait

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	// HangLimit is the longest wait.
	HangLimit = 3 * time.Minute
	// pollInterval is the pause between two looks. A look that takes longer is followed by as long a
	// pause, so that looking leaves the machine to what it looks at.
	pollInterval = 20 * time.Millisecond
	// remotePollInterval is the pause between two checks that send requests or run commands.
	remotePollInterval = 100 * time.Millisecond
)

// Until waits until the condition holds. After HangLimit the test fails with the state that was seen
// last before the limit.
func Until(t testing.TB, what string, holds func(ctx context.Context) (ok bool, seen string)) {
	t.Helper()
	pollUntilNil(t, HangLimit, pollInterval, what, func(ctx context.Context) error {
		if ok, seen := holds(ctx); !ok {
			return errors.New(seen)
		}
		return nil
	})
}

// UntilTrue waits as Until does, for a condition without a state to report.
func UntilTrue(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func(context.Context) (bool, string) { return holds(), "it does not hold" })
}

// UntilNil waits until the check returns nil. It is for checks that send requests or run commands. After
// HangLimit the test fails with the error that the check returned last before the limit.
func UntilNil(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	UntilNilWithin(t, HangLimit, what, check)
}

// UntilNilWithin waits as UntilNil does, with another limit.
func UntilNilWithin(t testing.TB, limit time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	pollUntilNil(t, limit, remotePollInterval, what, check)
}

func pollUntilNil(t testing.TB, limit, interval time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for last := error(nil); ; {
		begin := time.Now()
		err := check(ctx)
		if err == nil {
			return
		}
		if last == nil || !endedByLimit(ctx, err) {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s; last seen: %v", what, limit, last)
		case <-time.After(max(interval, time.Since(begin))):
		}
	}
}

// endedByLimit reports whether the limit ended a check: its error shows no state. A client's rate limiter
// refuses a request as soon as its turn would come after the limit.
func endedByLimit(ctx context.Context, err error) bool {
	return ctx.Err() != nil || strings.Contains(err.Error(), "would exceed context deadline")
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
