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
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
