package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllAreLookedAtAndFailuresAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked, failures []string
		bad := 3
		l := New("test", func(_ context.Context, key string) (time.Duration, error) {
			looked = append(looked, key)
			if key == "bad" && bad > 0 {
				bad--
				return 0, errors.New("no")
			}
			return 0, nil
		}, func(key string, err error) { failures = append(failures, key+": "+err.Error()) })
		l.Look("before Run")
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			l.Run(ctx, func() { l.Look("good"); l.Look("bad"); l.Look("good") })
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if slices.Sort(looked); !slices.Equal(looked, []string{"bad", "bad", "bad", "bad", "good"}) {
			t.Errorf("looked at %q", looked)
		}
		if !slices.Equal(failures, []string{"bad: no", "bad: no", "bad: no"}) {
			t.Errorf("told of %q", failures)
		}
		end()
		<-over
	})
}

// What failed often and then did not is looked at soon when it fails once more.
func TestASuccessEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		l := New("test", func(_ context.Context, _ int) (time.Duration, error) {
			if at = append(at, time.Now()); len(at) == 9 || len(at) == 11 {
				return 0, nil
			}
			return 0, errors.New("no")
		}, func(int, error) {})
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			l.Run(ctx, func() { l.Look(1) })
		}()
		time.Sleep(time.Minute)
		l.Look(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) != 11 {
			t.Fatalf("looked at %d times, wanted 11", len(at))
		}
		if last, first := at[8].Sub(at[7]), at[10].Sub(at[9]); first >= last/100 {
			t.Errorf("it waited %v, after %v before it succeeded", first, last)
		}
		end()
		<-over
	})
}

func TestTimeAloneAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		var end context.CancelFunc
		l := New("test", func(ctx context.Context, _ int) (time.Duration, error) {
			at = append(at, time.Since(begin))
			if len(at) == 3 {
				end()
				return 0, ctx.Err()
			}
			return time.Minute, nil
		}, func(_ int, err error) { t.Errorf("told of %v, which is but the end", err) })
		ctx, stop := context.WithCancel(t.Context())
		end = stop
		l.Run(ctx, func() { l.LookAfter(1, time.Second) })
		if want := []time.Duration{time.Second, time.Minute + time.Second, 2*time.Minute + time.Second}; !slices.Equal(at, want) {
			t.Errorf("looked at after %v, wanted %v", at, want)
		}
		l.Look(1) // nobody looks any more, and nothing blocks
	})
}
