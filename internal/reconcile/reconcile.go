// Package reconcile is the loop of those who keep something as the tables say: each is
// looked at by its key, one after the other, and again where that failed, ever later.
//
// Contract: Look and LookAfter may be called by anybody at any time and never block. Before
// Run they do nothing, since Run begins with all there is; what is to be looked at already is
// not queued twice, and what changes while it is looked at is looked at once more. Nothing
// is looked at twice at once. Run is called once, and when it returns nothing is being looked
// at. An error that comes because the context ended is nobody's to hear.
package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Loop over what has keys. Make it with New.
type Loop[K comparable] struct {
	name   string
	look   func(ctx context.Context, key K) (again time.Duration, err error)
	failed func(key K, err error)

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[K] // nil before Run
}

// New makes a Loop; its name is that of its queue in metrics. look may say after which time
// the key is to be looked at again though nothing changes; 0: never. failed is told of each
// error, after which the key is looked at again.
func New[K comparable](name string, look func(ctx context.Context, key K) (again time.Duration, err error), failed func(key K, err error)) *Loop[K] {
	return &Loop[K]{name: name, look: look, failed: failed}
}

// Look at a key soon.
func (l *Loop[K]) Look(key K) { l.LookAfter(key, 0) }

// LookAfter looks at a key after a while, in which more that happens to it joins.
func (l *Loop[K]) LookAfter(key K, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		l.queue.AddAfter(key, after)
	}
}

// Run until ctx ends. all is called first, and is to Look at each key that there is.
func (l *Loop[K]) Run(ctx context.Context, all func()) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[K](),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: l.name})
	l.mu.Lock()
	l.queue = queue
	l.mu.Unlock()
	all()
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for l.next(ctx, queue) {
	}
}

// next key; false when the queue has been shut down.
func (l *Loop[K]) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[K]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	again, err := l.look(ctx, key)
	switch {
	case err == nil:
		queue.Forget(key)
		if again > 0 {
			queue.AddAfter(key, again)
		}
	case ctx.Err() == nil:
		l.failed(key, err)
		queue.AddRateLimited(key)
	}
	return true
}
