package bind

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
)

// event is something that changed; exactly one field is set, but for anew.
type event struct {
	template  atoll.ItemKey
	anew      bool // look at the template although it is as it was
	namespace string
	bundle    string // UID
	rows      string // UID of the Bundle
	policy    policyKey
	placement types.NamespacedName
	clusters  bool // one came, went or changed
	synced    bool
}

type policyKey struct{ kind, namespace, name string }

// inbox is the queue of events: what changed just now goes before what is only to
// be checked again, and an event that waits already is not queued twice.
type inbox struct {
	mu    sync.Mutex
	hot   []event
	cold  []event
	known map[event]bool
	more  chan struct{}
	over  bool // nobody reads any more
}

func newInbox() *inbox { return &inbox{known: map[event]bool{}, more: make(chan struct{}, 1)} }

func (q *inbox) put(e event) {
	q.mu.Lock()
	if !q.known[e] && !q.over {
		q.known[e] = true
		q.hot = append(q.hot, e)
	}
	q.mu.Unlock()
	q.wake()
}

// recheck queues events behind all others.
func (q *inbox) recheck(es ...event) {
	q.mu.Lock()
	if !q.over {
		q.cold = append(q.cold, es...)
	}
	q.mu.Unlock()
	q.wake()
}

// clear forgets what was queued.
func (q *inbox) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hot, q.cold = nil, nil
	clear(q.known)
}

// close drops what waits and whatever comes.
func (q *inbox) close() {
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	q.clear()
}

func (q *inbox) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// next waits for an event; false when ctx has ended.
func (q *inbox) next(ctx context.Context) (event, bool) {
	for {
		if e, ok := q.take(); ok {
			return e, ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return event{}, false
		case <-q.more:
		}
	}
}

func (q *inbox) take() (e event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.hot) > 0 {
		e, q.hot = q.hot[0], q.hot[1:]
		delete(q.known, e)
		return e, true
	}
	if len(q.cold) > 0 {
		e, q.cold = q.cold[0], q.cold[1:]
		return e, true
	}
	return e, false
}
