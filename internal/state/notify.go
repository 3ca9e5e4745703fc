package state

import (
	"strconv"
	"sync"
)

// notifier calls subscribers in the order in which they subscribed.
type notifier[T any] struct {
	mu  sync.RWMutex
	fns []func(T)
}

func (n *notifier[T]) subscribe(fn func(T)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fns = append(n.fns, fn)
}

func (n *notifier[T]) notify(v T) {
	n.mu.RLock()
	fns := n.fns
	n.mu.RUnlock()
	for _, fn := range fns {
		fn(v)
	}
}

// older tells whether resource version a is older than b. The hub's store counts
// them up, so they compare as numbers.
func older(a, b string) bool { return number(a) < number(b) }

// number of a resource version; one that is none, as in tests, is 0.
func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
