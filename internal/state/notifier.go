package state

import (
	"strconv"
	"sync"
	"time"

	"atoll.dev/atoll/internal/reconcile"
)

// notifier calls subscribers in the order in which they subscribed. A subscriber that panics is
// called again with the same value after a pause, because it may have missed the change.
type notifier[T any] struct {
	mu          sync.RWMutex
	subscribers []func(T)
}

func (n *notifier[T]) addSubscriber(fn func(T)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subscribers = append(n.subscribers, fn)
}

func (n *notifier[T]) hasSubscribers() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.subscribers) > 0
}

// notifyAll calls all subscribers. When one of them has panicked, it panics at the end, so that its
// caller reports the panic.
func (n *notifier[T]) notifyAll(v T) { n.notifyEach([]T{v}) }

// notifyEach is notifyAll of several values.
func (n *notifier[T]) notifyEach(values []T) {
	var first *reconcile.Panic
	for _, v := range values {
		if p := n.callAll(v); first == nil {
			first = p
		}
	}
	raisePanic(first)
}

// callAll calls all subscribers, and returns the first panic.
func (n *notifier[T]) callAll(v T) (first *reconcile.Panic) {
	n.mu.RLock()
	fns := n.subscribers
	n.mu.RUnlock()
	for _, fn := range fns {
		if p := callContained(fn, v, 0); first == nil {
			first = p
		}
	}
	return first
}

// callContained calls a subscriber. A call that panics is repeated after a pause until it succeeds.
func callContained[T any](fn func(T), v T, lastPause time.Duration) *reconcile.Panic {
	p := reconcile.ContainPanicCounted(tableQueue, func() { fn(v) })
	if p != nil {
		pause := reconcile.NextPanicPause(lastPause)
		time.AfterFunc(pause, func() { callContained(fn, v, pause) })
	}
	return p
}

// raisePanic panics again with a panic that was contained.
func raisePanic(p *reconcile.Panic) {
	if p != nil {
		panic(p)
	}
}

// runLocked runs fn with a lock, which a panic of fn does not keep.
func runLocked(lock sync.Locker, fn func()) {
	lock.Lock()
	defer lock.Unlock()
	fn()
}

// isOlderVersion reports whether resource version a is older than b. The hub's store increments
// them, so they compare as numbers.
func isOlderVersion(a, b string) bool { return parseVersion(a) < parseVersion(b) }

// parseVersion returns the number of a resource version; one that is none, as in tests, is 0.
func parseVersion(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
