package binder

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/wakeup"
)

// tableEvent is a change of one table. Exactly one field is set, and force beside template.
type tableEvent struct {
	template        atoll.ItemKey
	force           bool // handle the template although it is unchanged
	namespace       string
	bundleUID       string // UID
	rowsOfBundle    string // UID of the Bundle
	policy          PolicyKey
	placement       types.NamespacedName
	strategy        types.NamespacedName
	clustersChanged bool // a cluster came, went or changed
	settingsChanged bool // of the hub
	kindsSynced     bool
}

// PolicyKey names a policy. Namespace is empty for a cluster-scoped one.
type PolicyKey struct{ Kind, Namespace, Name string }

// eventQueue queues events. Changes go before rechecks, and an event that waits is not queued
// twice.
type eventQueue struct {
	mu       sync.Mutex
	urgent   []tableEvent
	rechecks []tableEvent
	queued   map[tableEvent]bool
	wakeup   chan struct{}
	isClosed bool // Run has ended
}

func newEventQueue() *eventQueue {
	return &eventQueue{queued: map[tableEvent]bool{}, wakeup: make(chan struct{}, 1)}
}

func (q *eventQueue) put(e tableEvent) {
	q.mu.Lock()
	if !q.queued[e] && !q.isClosed {
		q.queued[e] = true
		q.urgent = append(q.urgent, e)
	}
	q.mu.Unlock()
	wakeup.WakeReader(q.wakeup)
}

// putRechecks queues events behind all changes.
func (q *eventQueue) putRechecks(es ...tableEvent) {
	q.mu.Lock()
	if !q.isClosed {
		q.rechecks = append(q.rechecks, es...)
	}
	q.mu.Unlock()
	wakeup.WakeReader(q.wakeup)
}

// reset drops the queued events.
func (q *eventQueue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.urgent, q.rechecks = nil, nil
	clear(q.queued)
}

// close drops the queued events and all later ones.
func (q *eventQueue) close() {
	q.mu.Lock()
	q.isClosed = true
	q.mu.Unlock()
	q.reset()
}

// waitForNext waits for an event; false when ctx has ended.
func (q *eventQueue) waitForNext(ctx context.Context) (tableEvent, bool) {
	for {
		if e, ok := q.takeNext(); ok {
			return e, ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return tableEvent{}, false
		case <-q.wakeup:
		}
	}
}

func (q *eventQueue) takeNext() (e tableEvent, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.urgent) > 0 {
		e, q.urgent = q.urgent[0], q.urgent[1:]
		delete(q.queued, e)
		return e, true
	}
	if len(q.rechecks) > 0 {
		e, q.rechecks = q.rechecks[0], q.rechecks[1:]
		return e, true
	}
	return e, false
}
