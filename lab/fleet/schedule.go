package fleet

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// timerQueue runs functions at their times, each in its own goroutine. One timer serves
// all, because a fleet has hundreds of thousands of them.
type timerQueue struct {
	mu    sync.Mutex
	queue eventHeap
	wake  chan struct{} // capacity 1
}

type timedEvent struct {
	at  int64 // Unix nanoseconds
	run func()
}

func newTimerQueue() *timerQueue { return &timerQueue{wake: make(chan struct{}, 1)} }

// runAfter runs a function after a delay.
func (s *timerQueue) runAfter(d time.Duration, run func()) {
	at := time.Now().Add(d).UnixNano()
	s.mu.Lock()
	heap.Push(&s.queue, timedEvent{at, run})
	first := s.queue[0].at == at
	s.mu.Unlock()
	if first {
		wakeWaiter(s.wake)
	}
}

// runDueEvents runs due events until ctx ends.
func (s *timerQueue) runDueEvents(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now().UnixNano()
		s.mu.Lock()
		var due []func()
		for len(s.queue) > 0 && s.queue[0].at <= now {
			due = append(due, heap.Pop(&s.queue).(timedEvent).run)
		}
		next := time.Hour
		if len(s.queue) > 0 {
			next = time.Duration(s.queue[0].at - now)
		}
		s.mu.Unlock()
		for _, run := range due {
			go run()
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// eventHeap is a heap of events by time.
type eventHeap []timedEvent

func (e eventHeap) Len() int           { return len(e) }
func (e eventHeap) Less(i, j int) bool { return e[i].at < e[j].at }
func (e eventHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *eventHeap) Push(x any)        { *e = append(*e, x.(timedEvent)) }

// Pop removes the last event, for package heap.
func (e *eventHeap) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = timedEvent{}
	*e = old[:len(old)-1]
	return last
}

// unboundedQueue is a queue without a bound.
type unboundedQueue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // capacity 1
}

func newUnboundedQueue[T any]() *unboundedQueue[T] {
	return &unboundedQueue[T]{wake: make(chan struct{}, 1)}
}

func (l *unboundedQueue[T]) put(item T) {
	l.mu.Lock()
	l.items = append(l.items, item)
	l.mu.Unlock()
	wakeWaiter(l.wake)
}

// takeOldest removes the oldest item; false when ctx ends first.
func (l *unboundedQueue[T]) takeOldest(ctx context.Context) (T, bool) {
	for {
		l.mu.Lock()
		if len(l.items) > 0 {
			item := l.items[0]
			l.items = l.items[1:]
			more := len(l.items) > 0
			l.mu.Unlock()
			if more {
				wakeWaiter(l.wake) // for the next waiter
			}
			return item, true
		}
		l.items = nil
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			var none T
			return none, false
		case <-l.wake:
		}
	}
}

func wakeWaiter(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
