package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"atoll.dev/atoll/internal/panicorigin"
)

// panicInNil panics by a nil pointer.
func panicInNil(s *sequence[string]) { s.keys = nil }

// A key that panics is set aside for 10 s, 20 s, 40 s and so on, up to 10 min. Other keys go on with
// the same worker.
func TestAPanicSetsItsKeyAside(t *testing.T) {
	var bad, good sequence[string]
	var reports []*Panic
	options := Options[string]{
		Reconcile: func(_ context.Context, key string) (time.Duration, error) {
			if key == "good" {
				good.addKey(key)
				return 0, nil
			}
			bad.addKey(key)
			panicInNil(nil)
			return 0, nil
		},
		Failed: func(_ string, err error) { reports = append(reports, AsPanic(err)) },
	}
	before := testutil.ToFloat64(process.reconciles.WithLabelValues("test", "panic"))
	runLoop(t, options, func(l *Loop[string]) {
		l.EnqueueNow("bad")
		l.EnqueueNow("good")
	}, func(t *testing.T, l *Loop[string]) {
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if len(good.keys) != 1 {
			t.Errorf("the other key is reconciled %d times", len(good.keys))
		}
		want := []time.Duration{0, 10, 30, 70, 150, 310, 630, 1230, 1830} // seconds: pauses of 10, 20, 40, 80, 160, 320, 600, 600
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(bad.at, want) {
			t.Errorf("the key is reconciled at %v, want %v", bad.at, want)
		}
		if n := testutil.ToFloat64(process.reconciles.WithLabelValues("test", "panic")) - before; n != 9 {
			t.Errorf("%v panics are counted", n)
		}
	})
	if len(reports) != 9 || reports[0] == nil || reports[0].IsRepeated || !reports[1].IsRepeated {
		t.Fatalf("reports %v", reports)
	}
	first, second := reports[0].Error(), reports[1].Error()
	if !strings.Contains(first, "nil pointer") || !strings.Contains(first, "panicInNil (panic_test.go:") || !strings.Contains(first, "called by") {
		t.Errorf("the first report is %q", first)
	}
	if strings.Contains(second, "called by") {
		t.Errorf("the stack is reported again: %q", second)
	}
}

// A key that changes is tried 10 s after its panic, however often it changes. A success ends the pause.
func TestAChangeOfAPanickingKeyIsTriedSoon(t *testing.T) {
	var seen sequence[string]
	var heals atomic.Bool
	options := Options[string]{Reconcile: func(_ context.Context, key string) (time.Duration, error) {
		if seen.addKey(key); !heals.Load() {
			panic("defect")
		}
		return 0, nil
	}}
	runLoop(t, options, func(l *Loop[string]) { l.EnqueueNow("a") }, func(t *testing.T, l *Loop[string]) {
		time.Sleep(10*time.Second + time.Millisecond) // two panics: the next pause is 20 s
		for range 50 {
			l.EnqueueNow("a")
			time.Sleep(100 * time.Millisecond)
		}
		heals.Store(true)
		time.Sleep(time.Minute)
		l.EnqueueNow("a")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 75*time.Second + time.Millisecond}
		if !slices.Equal(seen.at, want) {
			t.Errorf("reconciled at %v, want %v", seen.at, want)
		}
	})
}

func TestContainReturnsErrorsUnchanged(t *testing.T) {
	if err := ContainPanic(func() error { return errFailed }); err != errFailed || AsPanic(err) != nil {
		t.Errorf("%v", err)
	}
	cleaned := false
	err := ContainPanic(func() error {
		defer func() { cleaned = true }()
		panic(errors.New("defect"))
	})
	if p := AsPanic(err); p == nil || !cleaned || !strings.Contains(p.Place, "panic_test.go") {
		t.Errorf("%v, deferred functions have run: %t", err, cleaned)
	}
	if p := ContainPanicCounted("contained", func() {}); p != nil {
		t.Error(p)
	}
}

// The stack of a report is bounded.
func TestTheStackIsBounded(t *testing.T) {
	var descend func(n int)
	descend = func(n int) {
		if n == 0 {
			panic("deep")
		}
		descend(n - 1)
	}
	p := ContainPanicCounted("contained", func() { descend(40) })
	if p == nil || len(p.Stack) != panicorigin.MaxCallers {
		t.Errorf("%v", p)
	}
}
