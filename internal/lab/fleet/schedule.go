package fleet

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// schedule runs things at their times, each in a goroutine of its own. One timer
// serves all: a fleet has hundreds of thousands of them.
type schedule struct {
	mu    sync.Mutex
	queue events
	wake  chan struct{} // capacity 1
}

type event struct {
	at  int64 // Unix nanoseconds
	run func()
}

func newSchedule() *schedule { return &schedule{wake: make(chan struct{}, 1)} }

// in runs a function after a while.
func (s *schedule) in(d time.Duration, run func()) {
	at := time.Now().Add(d).UnixNano()
	s.mu.Lock()
	heap.Push(&s.queue, event{at, run})
	first := s.queue[0].at == at
	s.mu.Unlock()
	if first {
		signal(s.wake)
	}
}

// loop until ctx ends.
func (s *schedule) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now().UnixNano()
		s.mu.Lock()
		var due []func()
		for len(s.queue) > 0 && s.queue[0].at <= now {
			due = append(due, heap.Pop(&s.queue).(event).run)
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

// events are a heap by time.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }

// Pop the last, as package heap wants it.
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}

// line is a queue without bounds.
type line[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // capacity 1
}

func newLine[T any]() *line[T] { return &line[T]{wake: make(chan struct{}, 1)} }

func (l *line[T]) put(item T) {
	l.mu.Lock()
	l.items = append(l.items, item)
	l.mu.Unlock()
	signal(l.wake)
}

// take the oldest; false when ctx ends first.
func (l *line[T]) take(ctx context.Context) (T, bool) {
	for {
		l.mu.Lock()
		if len(l.items) > 0 {
			item := l.items[0]
			l.items = l.items[1:]
			more := len(l.items) > 0
			l.mu.Unlock()
			if more {
				signal(l.wake) // for the next one who waits
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

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
