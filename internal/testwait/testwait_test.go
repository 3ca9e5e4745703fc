package testwait

import (
	"context"
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
