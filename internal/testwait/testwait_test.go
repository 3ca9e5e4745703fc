package testwait

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failing records the failure of a test that waits.
type failing struct {
	testing.TB
	ctx     context.Context
	message string
}

func (f *failing) Helper()                  {}
func (f *failing) Context() context.Context { return f.ctx }
func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf returns the message with which the wait fails.
func failureOf(t *testing.T, wait func(testing.TB)) string {
	t.Helper()
	f, done := &failing{ctx: t.Context()}, make(chan struct{})
	go func() {
		defer close(done)
		wait(f)
	}()
	<-done
	return f.message
}

func TestUntilReturnsWhenTheConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Until(t, "a second", func(context.Context) (bool, string) { return time.Since(begin) >= time.Second, "" })
		UntilTrue(t, "two seconds", func() bool { return time.Since(begin) >= 2*time.Second })
		if took := time.Since(begin); took > 2*time.Second+2*pollInterval {
			t.Errorf("it took %s", took)
		}
	})
}

// TestUntilReportsWhatItSawLast: not what a request says that the limit itself ended.
func TestUntilReportsWhatItSawLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		message := failureOf(t, func(t testing.TB) {
			Until(t, "a server", func(ctx context.Context) (bool, string) {
				if deadline, _ := ctx.Deadline(); time.Until(deadline) < time.Minute {
					<-ctx.Done()
					return false, ctx.Err().Error()
				}
				return false, "connection refused"
			})
		})
		if message != "a server: not within 3m0s; last seen: connection refused" {
			t.Errorf("it reports %q", message)
		}
	})
}

// TestUntilNilTakesNoEmptyTextForSuccess: an error without a text is an error.
func TestUntilNilTakesNoEmptyTextForSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		UntilNil(t, "five looks", func(context.Context) error {
			if looks++; looks < 5 {
				return errors.New("")
			}
			return nil
		})
		if looks != 5 {
			t.Errorf("it looked %d times", looks)
		}
	})
}

// TestUntilNilWithinShowsTheLastErrorBeforeItsLimit: an error of the limit itself shows only when there
// was no other.
func TestUntilNilWithinShowsTheLastErrorBeforeItsLimit(t *testing.T) {
	untilLimit := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		errors []func(context.Context) error
		want   string
	}{
		"a request that the limit ends": {[]func(context.Context) error{
			func(context.Context) error { return errors.New("no row") },
			func(context.Context) error { return errors.New("two rows") },
			untilLimit,
		}, "two rows"},
		"a request that a rate limiter refuses": {[]func(context.Context) error{
			func(context.Context) error { return errors.New("no row") },
			func(context.Context) error {
				return errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
			},
			untilLimit,
		}, "no row"},
		"nothing else": {[]func(context.Context) error{untilLimit}, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, looks := time.Now(), 0
				message := failureOf(t, func(t testing.TB) {
					UntilNilWithin(t, 5*time.Second, "a row", func(ctx context.Context) error {
						looks++
						return c.errors[looks-1](ctx)
					})
				})
				if want := "a row: not within 5s; last seen: " + c.want; message != want {
					t.Errorf("it reports %q, want %q", message, want)
				}
				if took := time.Since(begin); took != 5*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int, 1)
		c <- 7
		if got := Receive(t, "a number", c); got != 7 {
			t.Errorf("got %d", got)
		}
		if message := failureOf(t, func(t testing.TB) { Receive(t, "a number", c) }); !strings.HasPrefix(message, "a number: nothing came") {
			t.Errorf("it reports %q", message)
		}
	})
}
