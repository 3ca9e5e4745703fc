package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"atoll.dev/atoll/internal/panicorigin"
)

// Panic is the error of a key whose reconcile panicked.
type Panic struct {
	// Value is what panic was called with.
	Value any
	// Place is the function, the file and the line in which the panic began.
	Place string
	// Stack has the callers of Place, innermost first, at most panicorigin.MaxCallers of them.
	Stack []string
	// IsRepeated is true when the last reconcile of the key panicked, too.
	IsRepeated bool
}

// Error returns the value and the place, and the stack unless it was reported before.
func (p *Panic) Error() string {
	text := fmt.Sprintf("a defect of Atoll, which deserves a report: %v in %s", p.Value, p.Place)
	if p.IsRepeated || len(p.Stack) == 0 {
		return text
	}
	return text + ", called by " + strings.Join(p.Stack, " < ")
}

// AsPanic returns the Panic in an error, or nil.
func AsPanic(err error) (p *Panic) {
	errors.As(err, &p)
	return p
}

// The pauses of a key that panics.
const (
	// minPanicPause is the first pause. A key that changes in the meantime waits for it, too.
	minPanicPause = 10 * time.Second
	// maxPanicPause is the longest pause.
	maxPanicPause = 10 * time.Minute
)

// ContainPanic calls fn, and returns a *Panic when fn panics. fn's deferred functions have run by then.
func ContainPanic(fn func() error) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *Panic: // was contained before, and has its own place
			err = value
		default:
			place, stack := panicorigin.FindPanicOrigin()
			err = &Panic{Value: value, Place: place, Stack: stack}
		}
	}()
	return fn()
}

// ContainPanicCounted calls fn, and returns a *Panic when fn panics. The panic counts as a reconcile of
// the queue.
func ContainPanicCounted(queue string, fn func()) *Panic {
	p := AsPanic(ContainPanic(func() error { fn(); return nil }))
	if p != nil {
		process.reconciles.WithLabelValues(queue, "panic").Inc()
	}
	return p
}

// NextPanicPause returns the pause after a further panic: 10 s after the first one, then twice the
// last pause, at most 10 min.
func NextPanicPause(last time.Duration) time.Duration {
	return min(max(2*last, minPanicPause), maxPanicPause)
}

// panicPause is how long a key that panicked is set aside.
type panicPause struct {
	length    time.Duration
	notBefore time.Time
}

// reconcileKey reconciles a key. A panic is returned as a *Panic, and sets the key aside.
func (l *Loop[K]) reconcileKey(ctx context.Context, key K) (again time.Duration, err error) {
	err = ContainPanic(func() (err error) {
		again, err = l.options.Reconcile(ctx, key)
		return err
	})
	p := AsPanic(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if p == nil {
		delete(l.panicked, key)
		return again, err
	}
	last, repeated := l.panicked[key]
	p.IsRepeated = repeated
	l.panicked[key] = panicPause{NextPanicPause(last.length), time.Now().Add(minPanicPause)}
	return 0, err
}

// reportPanic calls Panicked for an error that is a Panic.
func (l *Loop[K]) reportPanic(ctx context.Context, key K, err error) {
	if p := AsPanic(err); p != nil && l.options.Panicked != nil {
		_ = ContainPanic(func() error { l.options.Panicked(ctx, key, p); return nil })
	}
}

// pauseLeft returns how long a key is still set aside: the rest of minPanicPause for a key that was
// enqueued again, and 0 for a key that has not panicked.
func (l *Loop[K]) pauseLeft(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, isAside := l.panicked[key]
	if !isAside {
		return 0
	}
	return max(time.Until(p.notBefore), 0)
}

// retryAfter returns the pause before a key that failed is reconciled again.
func (l *Loop[K]) retryAfter(key K, err error) time.Duration {
	if AsPanic(err) == nil {
		return max(l.options.Backoff.When(key), 1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.panicked[key].length
}
