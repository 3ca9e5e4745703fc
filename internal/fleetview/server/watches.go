package server

import (
	"sync"

	"atoll.dev/atoll/internal/wakeup"
)

// watchWakeups are the watches that are under way, which are informed when rows come or go.
type watchWakeups struct {
	mu    sync.Mutex
	wakes map[chan struct{}]bool
}

// add adds one; what it gives is sent to when rows have come or gone.
func (w *watchWakeups) add() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wakes == nil {
		w.wakes = map[chan struct{}]bool{}
	}
	wake := make(chan struct{}, 1)
	w.wakes[wake] = true
	return wake
}

// remove removes a watch.
func (w *watchWakeups) remove(wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wakes, wake)
}

// WakeWatches wakes the watches, of which some may have to send requests to other members. It does not
// block.
func (f *Fleet) WakeWatches() {
	f.watches.mu.Lock()
	defer f.watches.mu.Unlock()
	for wake := range f.watches.wakes {
		wakeup.WakeReader(wake)
	}
}
