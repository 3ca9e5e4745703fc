// Package reconcile runs a function for each key that changed. It is the one loop of the
// hub's reconcilers, with priorities, a debounce, backoff and any number of workers.
//
// Contract: every method but Run may be called concurrently and never blocks. A key that is
// enqueued before AcceptKeys or Run is dropped, because the start function of Run enqueues every
// key. A key that is enqueued several times before a worker takes it is reconciled once, at
// the earliest time and the highest priority. A key that is enqueued while it is reconciled
// is reconciled once more. No key is reconciled twice at the same time. Run is called once;
// no key is reconciled after it returns. An error after the end of the context is dropped.
//
// A panic of Reconcile is the error of its key, a *Panic, and ends neither the worker nor the
// process. The key is set aside. It is reconciled again after 10 s, doubled up to 10 min. A key that
// is enqueued again waits for 10 s after its panic. Other keys go on. The loop guarantees
// that the deferred functions of Reconcile have run, and that no worker is lost. It does not
// restore what Reconcile had changed by then. So Reconcile unlocks by defer wherever it calls more
// than a map while it holds a lock. Shared tables must be such that the next reconcile of the key
// can start from the store. Go's fatal errors are not contained: concurrent map writes, an unlock
// of an unlocked mutex, stack overflow, missing memory.
package reconcile

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Options of a Loop. Name and Reconcile must be set.
type Options[K comparable] struct {
	// Name labels the queue in metrics.
	Name string
	// Reconcile one key. A key with again above zero is reconciled again after that time,
	// at the same priority. A key that failed is reconciled again after a backoff.
	Reconcile func(ctx context.Context, key K) (again time.Duration, err error)
	// Failed receives each error; nil: no error is reported, but panics are logged.
	Failed func(key K, err error)
	// Panicked is called after Failed for a key that panicked, to report the panic where people
	// see it; nil: it is not. A panic of Panicked itself is dropped.
	Panicked func(ctx context.Context, key K, p *Panic)
	// Workers reconcile different keys at the same time; default 1.
	Workers int
	// Debounce is how long a key of EnqueueDebounced stays unchanged before it is
	// reconciled; MaxDebounce is the longest that a key waits although it keeps changing.
	Debounce, MaxDebounce time.Duration
	// Backoff of keys that failed; default: 5 ms doubled up to 1,000 s, and no more than 10
	// retries a second over all keys after a burst of 100.
	Backoff workqueue.TypedRateLimiter[K]
}

// Priorities of keys: changes by users are reconciled before rechecks.
const (
	priorityChange  = 0
	priorityRecheck = -100
	priorityStop    = math.MaxInt
)

// Loop reconciles keys. Make it with New.
type Loop[K comparable] struct {
	options Options[K]

	mu        sync.Mutex
	queue     priorityqueue.PriorityQueue[queueItem[K]] // nil before AcceptKeys
	isClosed  bool
	debounced map[K]*debouncedKey
	panicked  map[K]panicPause
	metrics   loopMetrics
}

// queueItem is a key, or the order to one worker to stop. Workers are not stopped by
// ShutDown of the queue: upstream's blocks forever when it shuts down while it hands out an
// item.
type queueItem[K comparable] struct {
	key  K
	stop int // number of a worker, from 1; 0: a key
}

// debouncedKey waits until its key stays unchanged.
type debouncedKey struct {
	// firstChange is the time of the first change that waits; zero while none does.
	firstChange time.Time
	timer       *time.Timer
}

// New makes a Loop.
func New[K comparable](o Options[K]) *Loop[K] {
	o.Workers = max(o.Workers, 1)
	if o.Failed == nil {
		o.Failed = logPanic[K](o.Name)
	}
	if o.Backoff == nil {
		o.Backoff = workqueue.DefaultTypedControllerRateLimiter[K]()
	}
	return &Loop[K]{options: o, debounced: map[K]*debouncedKey{}, panicked: map[K]panicPause{}}
}

// logPanic returns a report of errors that logs panics.
func logPanic[K comparable](loop string) func(K, error) {
	return func(key K, err error) {
		if p := AsPanic(err); p != nil {
			slog.Error("the reconcile of a key panicked; other keys go on, and the key is tried again", "queue", loop, "key", key, "err", p)
		}
	}
}

// EnqueueNow reconciles a key as soon as a worker is free.
func (l *Loop[K]) EnqueueNow(key K) { l.enqueueKey(key, priorityChange, 0) }

// EnqueueAfter reconciles a key after a time; further changes within that time join it.
func (l *Loop[K]) EnqueueAfter(key K, after time.Duration) { l.enqueueKey(key, priorityChange, after) }

// EnqueueRecheck reconciles a key, that may not have changed, after a time and behind every
// key that changed.
func (l *Loop[K]) EnqueueRecheck(key K, after time.Duration) {
	l.enqueueKey(key, priorityRecheck, after)
}

// EnqueueDebounced reconciles a key once it stays unchanged for Debounce, and MaxDebounce
// after its first change at the latest.
func (l *Loop[K]) EnqueueDebounced(key K) { l.debounceKey(key, false) }

// EnqueueAtOnce reconciles a key at once if it was unchanged for Debounce, and otherwise as
// EnqueueDebounced does. A single change thus waits for nothing, and a burst of changes costs one
// reconcile more.
func (l *Loop[K]) EnqueueAtOnce(key K) {
	if l.debounceKey(key, true) {
		l.EnqueueNow(key)
	}
}

// debounceKey starts the wait of a key. When startsCalm is true, the first change itself does not wait:
// debounceKey returns true, and further changes do.
func (l *Loop[K]) debounceKey(key K, startsCalm bool) (isFirst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil || l.isClosed {
		return false
	}
	now := time.Now()
	if d, ok := l.debounced[key]; ok {
		if d.firstChange.IsZero() {
			d.firstChange = now
		}
		d.timer.Reset(max(0, min(l.options.Debounce, l.options.MaxDebounce-now.Sub(d.firstChange))))
		return false
	}
	d := &debouncedKey{}
	if !startsCalm {
		d.firstChange = now
	}
	d.timer = time.AfterFunc(l.options.Debounce, func() { l.endDebounce(key, d) })
	l.debounced[key] = d
	return startsCalm
}

// endDebounce ends the wait of a key, unless a timer that was reset too late did so already. It
// enqueues a key that changed.
func (l *Loop[K]) endDebounce(key K, d *debouncedKey) {
	l.mu.Lock()
	waits := l.debounced[key] == d
	if waits {
		delete(l.debounced, key)
	}
	changed := waits && !d.firstChange.IsZero()
	l.mu.Unlock()
	if changed {
		l.EnqueueNow(key)
	}
}

// enqueueKey adds a key to the queue, if there is one.
func (l *Loop[K]) enqueueKey(key K, priority int, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil && !l.isClosed {
		l.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, queueItem[K]{key: key})
	}
}

// AcceptKeys begins to queue keys. Run calls it if the caller did not.
func (l *Loop[K]) AcceptKeys() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		l.queue = priorityqueue.New[queueItem[K]](l.options.Name)
		l.metrics = addLoop(l.options.Name, l)
	}
}

// Close drops all keys, and those that come. Run closes its Loop.
func (l *Loop[K]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return
	}
	l.isClosed = true
	for _, d := range l.debounced {
		d.timer.Stop()
	}
	if l.queue != nil {
		removeLoop(l)
		l.queue.ShutDown()
	}
}

// CountReady counts the keys that a worker could take now.
func (l *Loop[K]) CountReady() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return 0
	}
	return l.queue.Len()
}

// Run works until ctx ends. It calls start first, which enqueues each key that there is; nil: the
// caller enqueued them after AcceptKeys.
func (l *Loop[K]) Run(ctx context.Context, start func()) {
	l.AcceptKeys()
	if start != nil {
		start()
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() {
		priority := priorityStop
		for n := range l.options.Workers {
			l.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, queueItem[K]{stop: n + 1})
		}
	})
	defer stop()
	var workers sync.WaitGroup
	for range l.options.Workers {
		workers.Go(func() {
			for l.reconcileNext(ctx) {
			}
		})
	}
	workers.Wait()
}

// reconcileNext takes a key and reconciles it; false when the worker has to stop.
func (l *Loop[K]) reconcileNext(ctx context.Context) bool {
	next, priority, _ := l.queue.GetWithPriority()
	defer l.queue.Done(next)
	if next.stop > 0 {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	if pause := l.pauseLeft(next.key); pause > 0 {
		l.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: pause}, next)
		return true
	}
	start := time.Now()
	again, err := l.reconcileKey(ctx, next.key)
	l.metrics.countReconcile(start, err)
	switch {
	case err == nil:
		l.options.Backoff.Forget(next.key)
	case ctx.Err() == nil:
		l.options.Failed(next.key, err)
		l.reportPanic(ctx, next.key, err)
		again = l.retryAfter(next.key, err)
	}
	if again > 0 {
		l.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: again}, next)
	}
	return true
}
