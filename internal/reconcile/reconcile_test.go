package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

var errFailed = errors.New("no")

// runLoop runs a Loop while test runs, inside a bubble of virtual time.
func runLoop[K comparable](t *testing.T, o Options[K], start func(l *Loop[K]), test func(t *testing.T, l *Loop[K])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Name = "test"
		l := New(o)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, func() { start(l) })
		}()
		synctest.Wait()
		test(t, l)
		end()
		<-ended
		time.Sleep(time.Minute) // the queue ends its goroutines a moment after it is shut down
	})
}

// sequence records keys, and when they were reconciled.
type sequence[K comparable] struct {
	mu   sync.Mutex
	keys []K
	at   []time.Duration
	from time.Time
}

func (s *sequence[K]) addKey(key K) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from.IsZero() {
		s.from = time.Now()
	}
	s.keys, s.at = append(s.keys, key), append(s.at, time.Since(s.from))
	return len(s.keys)
}

func TestEveryKeyIsReconciledAndFailuresAgain(t *testing.T) {
	var seen sequence[string]
	var failures []string
	failing := 3
	options := Options[string]{
		Reconcile: func(_ context.Context, key string) (time.Duration, error) {
			if seen.addKey(key); key == "bad" && failing > 0 {
				failing--
				return 0, errFailed
			}
			return 0, nil
		},
		Failed: func(key string, err error) { failures = append(failures, key+": "+err.Error()) },
	}
	runLoop(t, options, func(l *Loop[string]) {
		l.EnqueueNow("good")
		l.EnqueueNow("bad")
		l.EnqueueNow("good")
	}, func(t *testing.T, _ *Loop[string]) {
		time.Sleep(time.Second)
		synctest.Wait()
		if slices.Sort(seen.keys); !slices.Equal(seen.keys, []string{"bad", "bad", "bad", "bad", "good"}) {
			t.Errorf("reconciled %q", seen.keys)
		}
		if !slices.Equal(failures, []string{"bad: no", "bad: no", "bad: no"}) {
			t.Errorf("reported %q", failures)
		}
	})
}

func TestNoKeyIsTakenBeforeAcceptKeysAndAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options[int]{Name: "test", Debounce: time.Second, MaxDebounce: time.Second, Reconcile: func(context.Context, int) (time.Duration, error) {
			t.Error("a key is reconciled without Run")
			return 0, nil
		}})
		l.EnqueueNow(1)
		l.EnqueueDebounced(2)
		if n := l.CountReady(); n != 0 {
			t.Errorf("%d keys are ready before AcceptKeys", n)
		}
		l.AcceptKeys()
		time.Sleep(time.Minute)
		if n := l.CountReady(); n != 0 {
			t.Errorf("%d keys from before AcceptKeys are ready", n)
		}
		l.EnqueueNow(3)
		l.EnqueueDebounced(4)
		l.EnqueueAfter(5, time.Minute)
		l.AcceptKeys()
		if n := l.CountReady(); n != 1 {
			t.Errorf("%d keys are ready, want 1", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := l.CountReady(); n != 2 {
			t.Errorf("%d keys are ready after the debounce, want 2", n)
		}
		l.EnqueueDebounced(6)
		l.Close()
		l.Close()
		l.EnqueueNow(7)
		l.EnqueueDebounced(8)
		time.Sleep(time.Minute)
		if n := l.CountReady(); n != 2 {
			t.Errorf("%d keys are ready, want the 2 from before Close", n)
		}
	})
}

// A key that failed often and then succeeded is retried soon when it fails once more.
func TestASuccessResetsTheBackoff(t *testing.T) {
	var seen sequence[int]
	options := Options[int]{Reconcile: func(context.Context, int) (time.Duration, error) {
		if n := seen.addKey(1); n == 9 || n == 11 {
			return 0, nil
		}
		return 0, errFailed
	}}
	runLoop(t, options, func(l *Loop[int]) { l.EnqueueNow(1) }, func(t *testing.T, l *Loop[int]) {
		time.Sleep(time.Minute)
		l.EnqueueNow(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(seen.at) != 11 {
			t.Fatalf("reconciled %d times, want 11", len(seen.at))
		}
		if last, first := seen.at[8]-seen.at[7], seen.at[10]-seen.at[9]; first >= last/100 {
			t.Errorf("the retry came after %v, after %v before the success", first, last)
		}
	})
}

func TestTheBackoffIsTheOneOfTheOptions(t *testing.T) {
	var seen sequence[int]
	options := Options[int]{
		Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Second, 3*time.Second),
		Reconcile: func(context.Context, int) (time.Duration, error) {
			seen.addKey(1)
			return 0, errFailed
		},
	}
	runLoop(t, options, func(l *Loop[int]) { l.EnqueueNow(1) }, func(t *testing.T, _ *Loop[int]) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second}; !slices.Equal(seen.at, want) {
			t.Errorf("reconciled after %v, want %v", seen.at, want)
		}
	})
}

// Retries of many keys share one rate by default; first attempts do not wait for it.
func TestRetriesAreRateLimited(t *testing.T) {
	const keys = 200
	var first, retries atomic.Int64
	tried := map[int]bool{}
	options := Options[int]{Reconcile: func(_ context.Context, key int) (time.Duration, error) {
		if tried[key] {
			retries.Add(1)
			return 0, nil
		}
		tried[key] = true
		first.Add(1)
		return 0, errFailed
	}}
	runLoop(t, options, func(l *Loop[int]) {
		for key := range keys {
			l.EnqueueNow(key)
		}
	}, func(t *testing.T, _ *Loop[int]) {
		time.Sleep(time.Second)
		synctest.Wait()
		if first.Load() != keys {
			t.Errorf("%d of %d keys were reconciled at once", first.Load(), keys)
		}
		if n := retries.Load(); n < 100 || n > 115 {
			t.Errorf("%d retries in the first second, want the burst of 100 and about 10", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := retries.Load(); n != keys {
			t.Errorf("%d of %d keys were retried", n, keys)
		}
	})
}

// Law 12: changes by users go before rechecks, also when they fail or come again by time.
func TestChangesGoBeforeRechecks(t *testing.T) {
	var seen sequence[string]
	options := Options[string]{Reconcile: func(_ context.Context, key string) (time.Duration, error) {
		n := seen.addKey(key)
		time.Sleep(time.Second)
		switch {
		case key == "recheck-0" && n == 1:
			return 0, errFailed // its retry is a recheck too
		case key == "user-0" && n < 5:
			return time.Millisecond, nil
		}
		return 0, nil
	}}
	runLoop(t, options, func(l *Loop[string]) {
		for _, key := range []string{"recheck-0", "recheck-1", "recheck-2", "both"} {
			l.EnqueueRecheck(key, 0)
		}
	}, func(t *testing.T, l *Loop[string]) {
		l.EnqueueNow("user-0")
		l.EnqueueNow("both")
		l.EnqueueAfter("user-1", 3*time.Second+time.Millisecond)
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"recheck-0", "user-0", "both", "user-0", "user-1", "user-0", "recheck-1", "recheck-2", "recheck-0"}
		if !slices.Equal(seen.keys, want) {
			t.Errorf("reconciled in the order\n%q, want\n%q", seen.keys, want)
		}
	})
}

func TestDebounceHasAMaximum(t *testing.T) {
	var seen sequence[string]
	seen.from = time.Now()
	options := Options[string]{Debounce: 200 * time.Millisecond, MaxDebounce: 2 * time.Second, Reconcile: func(_ context.Context, key string) (time.Duration, error) {
		seen.addKey(key)
		return 0, nil
	}}
	runLoop(t, options, func(*Loop[string]) { seen.from = time.Now() }, func(t *testing.T, l *Loop[string]) {
		l.EnqueueDebounced("once")
		l.EnqueueDebounced("twice")
		for n := range 25 { // for 2.5 s
			l.EnqueueDebounced("always")
			time.Sleep(100 * time.Millisecond)
			if n == 0 {
				l.EnqueueDebounced("twice")
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"once", "twice", "always", "always"}; !slices.Equal(seen.keys, want) {
			t.Errorf("reconciled %q, want %q", seen.keys, want)
		}
		ms := time.Millisecond
		if want := []time.Duration{200 * ms, 300 * ms, 2000 * ms, 2600 * ms}; !slices.Equal(seen.at, want) {
			t.Errorf("reconciled after %v, want %v", seen.at, want)
		}
	})
}

func TestAKeyComesAgainByTimeUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen sequence[int]
		seen.from = time.Now()
		ctx, end := context.WithCancel(t.Context())
		l := New(Options[int]{Name: "test", Reconcile: func(ctx context.Context, key int) (time.Duration, error) {
			if seen.addKey(key) == 3 {
				end()
				return 0, ctx.Err()
			}
			return time.Minute, nil
		}, Failed: func(_ int, err error) { t.Errorf("reported %v, which is only the end", err) }})
		l.Run(ctx, func() { l.EnqueueAfter(1, time.Second) })
		if want := []time.Duration{time.Second, time.Minute + time.Second, 2*time.Minute + time.Second}; !slices.Equal(seen.at, want) {
			t.Errorf("reconciled after %v, want %v", seen.at, want)
		}
		l.EnqueueNow(1) // it is dropped, and nothing blocks
		time.Sleep(time.Minute)
	})
}

func TestWorkersShareKeysAndNoKeyIsReconciledTwiceAtOnce(t *testing.T) {
	var now, most, done atomic.Int64
	var busy [8]atomic.Bool
	options := Options[int]{Workers: 3, Reconcile: func(_ context.Context, key int) (time.Duration, error) {
		if busy[key].Swap(true) {
			t.Errorf("key %d is reconciled twice at the same time", key)
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Second)
		now.Add(-1)
		done.Add(1)
		busy[key].Store(false)
		return 0, nil
	}}
	runLoop(t, options, func(l *Loop[int]) {
		for key := range 6 {
			l.EnqueueNow(key)
		}
	}, func(t *testing.T, l *Loop[int]) {
		l.EnqueueNow(0) // while it is reconciled
		l.EnqueueNow(0)
		time.Sleep(time.Minute)
		if most.Load() != 3 || done.Load() != 7 {
			t.Errorf("%d keys at the same time and %d in all, want 3 and 7", most.Load(), done.Load())
		}
	})
}

// The end of the context ends Run, whatever the queue is doing.
func TestRunEndsWhileKeysCome(t *testing.T) {
	for range 200 {
		ctx, end := context.WithCancel(t.Context())
		l := New(Options[int]{Name: "test", Workers: 4, Reconcile: func(context.Context, int) (time.Duration, error) { return 1, nil }})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, func() {
				for key := range 50 {
					l.EnqueueNow(key)
				}
			})
		}()
		go end()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("Run does not end")
		}
	}
}

// A change after a quiet time is reconciled at once. Changes that follow within Debounce join.
func TestASingleChangeIsNotDebounced(t *testing.T) {
	var seen sequence[string]
	options := Options[string]{Debounce: 200 * time.Millisecond, MaxDebounce: 2 * time.Second, Reconcile: func(_ context.Context, key string) (time.Duration, error) {
		seen.addKey(key)
		return 0, nil
	}}
	runLoop(t, options, func(*Loop[string]) { seen.from = time.Now() }, func(t *testing.T, l *Loop[string]) {
		for _, after := range []time.Duration{0, 250, 50, 50, 1000} {
			time.Sleep(after * time.Millisecond)
			l.EnqueueAtOnce("key")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		ms := time.Millisecond
		if want := []time.Duration{0, 250 * ms, 550 * ms, 1350 * ms}; !slices.Equal(seen.at, want) {
			t.Errorf("reconciled after %v, want %v", seen.at, want)
		}
	})
}
