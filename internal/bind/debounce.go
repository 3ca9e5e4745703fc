package bind

import (
	"sync"
	"time"
)

const (
	// quiet is how long nothing must have touched a Bundle before it is planned.
	quiet = 200 * time.Millisecond
	// patience is the longest that a Bundle that is touched again and again waits.
	patience = 2 * time.Second
)

// debouncer passes a key on once it has not been touched for a while. Its methods
// may be called concurrently; nothing is passed on after stop.
type debouncer[K comparable] struct {
	pass func(K)

	mu      sync.Mutex
	stopped bool
	pending map[K]*wait
}

type wait struct {
	first time.Time
	timer *time.Timer
}

func newDebouncer[K comparable](pass func(K)) *debouncer[K] {
	return &debouncer[K]{pass: pass, pending: map[K]*wait{}}
}

func (d *debouncer[K]) touch(key K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	w, ok := d.pending[key]
	if !ok {
		d.pending[key] = &wait{first: time.Now(), timer: time.AfterFunc(quiet, func() { d.fire(key) })}
		return
	}
	w.timer.Reset(max(0, min(quiet, patience-time.Since(w.first))))
}

func (d *debouncer[K]) fire(key K) {
	d.mu.Lock()
	_, ok := d.pending[key]
	delete(d.pending, key)
	stopped := d.stopped
	d.mu.Unlock()
	if ok && !stopped {
		d.pass(key)
	}
}

func (d *debouncer[K]) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, w := range d.pending {
		w.timer.Stop()
	}
}
