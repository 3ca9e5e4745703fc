package pace

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiterReserves(t *testing.T) {
	l := Rate{time.Second, 2}.NewLimiter()
	for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
		if got := l.ReserveToken(start).Sub(start); got != want {
			t.Errorf("token %d comes after %s, want %s", i, got, want)
		}
	}
	if wait, ok := l.ReserveWithin(start, 2*time.Second); ok {
		t.Errorf("the token after %s is reserved within 2 s", wait)
	}
	if wait, ok := l.ReserveWithin(start, 3*time.Second); !ok || wait != 3*time.Second {
		t.Errorf("reserved %t after %s", ok, wait)
	}
	if l.TakeToken(start.Add(3 * time.Second)) {
		t.Error("a reserved token is taken")
	}
	if l.ReturnTokenPart(1); !l.TakeToken(start.Add(4 * time.Second)) {
		t.Error("the returned token is not taken")
	}
}

func TestLimiterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begin := PerSecond(10, 1).NewLimiter(), time.Now()
		for range 4 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 300*time.Millisecond {
			t.Errorf("4 tokens took %s", took)
		}
		ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
		defer end()
		if err := l.Wait(ctx); err == nil {
			t.Error("the wait outlives its context")
		}
		if at := l.ReserveToken(time.Now()); at.Sub(begin) != 400*time.Millisecond {
			t.Errorf("after a wait that was given up, the next token comes at %s", at.Sub(begin))
		}
	})
}

func TestKeyedLimiter(t *testing.T) {
	l := Rate{time.Minute, 1}.NewKeyedLimiter()
	if !l.TakeToken("a", start) || l.TakeToken("a", start.Add(time.Minute-1)) || !l.TakeToken("b", start) || !l.TakeToken("a", start.Add(time.Minute)) {
		t.Error("keys have no limit each")
	}
	for i := range 3 * maxKeys {
		l.TakeToken(fmt.Sprint(i), start)
	}
	if n := len(l.buckets); n > maxKeys {
		t.Errorf("%d keys are kept", n)
	}
}

// TestTokensThatAreOwedDelayTheNext: more tokens than the burst may be taken at once; a caller that
// ends before takes none.
func TestTokensThatAreOwedDelayTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begin := PerSecond(10, 5).NewLimiter(), time.Now()
		wait := func(ctx context.Context, n int, after time.Duration) error {
			t.Helper()
			err := l.WaitTokens(ctx, n)
			if got := time.Since(begin); got != after {
				t.Errorf("%d tokens come after %s, want %s", n, got, after)
			}
			return err
		}
		if err := wait(t.Context(), 25, 0); err != nil { // 20 are owed, and one more must come
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := wait(ctx, 100, time.Second); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if err := wait(t.Context(), 1, 2100*time.Millisecond); err != nil {
			t.Error(err)
		}
	})
}
