package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/internal/answerweight"
	"atoll.dev/atoll/internal/atoll"
)

const (
	// eventsAhead is the number of kept events of a slow watch.
	eventsAhead = 100
	// watchMost bounds the memory of one watch for events that its client has not taken, in bytes, and
	// memberMost the part of one member. A member over it waits; a watch over it ends.
	watchMost  = 64 << 20
	memberMost = watchMost / 4
	// frameMost bounds a frame of a member's watch, in bytes, and eventMost what its object takes: the
	// largest object of an API is smaller.
	frameMost = 4 << 20
	eventMost = 8 << 20
)

// newTooSlowError ends a watch whose client takes its events more slowly than they come.
func newTooSlowError() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Details: newMemoryFullDetails(),
		Message: fmt.Sprintf("the watch is read more slowly than its events come: the hub holds as many bytes of them as it may for you now, at most %d MiB of one watch; list again", watchMost>>20),
	}}
}

// newMemoryFullDetails returns the details of a refusal for which there is no memory.
func newMemoryFullDetails() *metav1.StatusDetails {
	return &metav1.StatusDetails{
		RetryAfterSeconds: int32(heldPatience / time.Second), Causes: []metav1.StatusCause{{Type: metav1.CauseType(atoll.ReasonMemoryFull)}},
	}
}

// eventQueue stands between a watch and its client. The memory of an event counts until the client
// has taken the event and reads the next one. Make it with newEventQueue.
type eventQueue struct {
	hold *memoryReservation
	in   chan queuedEvent
	out  chan watch.Event
	// client ends when the client is gone; stop ends it.
	client context.Context
	stop   context.CancelFunc
	// full is closed when the client is too slow.
	full     chan struct{}
	fullOnce sync.Once
}

// queuedEvent is an event, and what returns its memory.
type queuedEvent struct {
	watch.Event
	release func()
}

// newEventQueue returns the queue of a client, whose context ends with it. The memory of queued events
// is counted for the client's user.
func (f *Fleet) newEventQueue(ctx context.Context) *eventQueue {
	q := &eventQueue{in: make(chan queuedEvent, eventsAhead), out: make(chan watch.Event), full: make(chan struct{})}
	q.client, q.stop = context.WithCancel(ctx)
	q.hold = f.newMemoryReservation(q.client)
	go q.forwardEvents()
	return q
}

// reserveBytes counts the memory of an event that is about to be read. It does not wait: where there is
// none to be had, the client is too slow, and the queue is over.
func (q *eventQueue) reserveBytes(n int) error {
	if q.hold.tryReserveBytes(int64(n), watchMost) {
		return nil
	}
	q.fullOnce.Do(func() { close(q.full) })
	return newTooSlowError()
}

// queueEvent queues an event; false where ctx ends, or the client is gone or too slow.
func (q *eventQueue) queueEvent(ctx context.Context, e queuedEvent) bool {
	select {
	case q.in <- e:
		return true
	case <-ctx.Done():
	case <-q.client.Done():
	case <-q.full:
	}
	return false
}

// forwardEvents hands events to the client until the queue is closed.
func (q *eventQueue) forwardEvents() {
	defer q.stop()
	defer close(q.out)
	taken := func() {} // returns the memory of the event that the client took last
	for {
		select {
		case <-q.client.Done():
			return
		case <-q.full:
			q.dropQueued()
			q.deliverEvent(watch.Event{Type: watch.Error, Object: &newTooSlowError().ErrStatus})
			return
		case e, ok := <-q.in:
			if !ok {
				return
			}
			if !q.deliverEvent(e.Event) {
				continue // the client is gone, or the queue is full
			}
			taken()
			if taken = e.release; taken == nil {
				taken = func() {}
			}
		}
	}
}

// dropQueued drops what is queued, so that its memory is free.
func (q *eventQueue) dropQueued() {
	defer q.hold.releaseAll()
	for {
		select {
		case _, ok := <-q.in:
			if !ok {
				return
			}
		default:
			return
		}
	}
}

// deliverEvent waits until the client takes the event; false where it does not.
func (q *eventQueue) deliverEvent(e watch.Event) bool {
	full := q.full
	if e.Type == watch.Error {
		full = nil // it is the last
	}
	select {
	case q.out <- e:
		return true
	case <-full:
	case <-q.client.Done():
	}
	return false
}

// eventReader reads the watch of one member. Frames are read and decoded once their memory is
// counted. It has one reader; its memory is returned from anywhere.
type eventReader struct {
	ctx   context.Context
	body  io.Reader
	queue *eventQueue

	mu    sync.Mutex
	held  int
	freed chan struct{} // closed when memory is returned; nil: the reader does not wait
}

var errFrame = errors.New("it is no frame of a watch, or larger than one may be")

// readEvent returns the next event. Its memory is counted until release is called.
func (e *eventReader) readEvent() (event watch.EventType, obj runtime.Object, release func(), err error) {
	var length [4]byte
	if _, err := io.ReadFull(e.body, length[:]); err != nil {
		return "", nil, nil, err
	}
	n := int(binary.BigEndian.Uint32(length[:]))
	if n <= 0 || n > frameMost {
		return "", nil, nil, errFrame
	}
	if err := e.reserveBytes(n); err != nil {
		return "", nil, nil, err
	}
	defer e.releaseBytes(n)
	frame := make([]byte, n)
	if _, err := io.ReadFull(e.body, frame); err != nil {
		return "", nil, nil, err
	}
	var got metav1.WatchEvent
	if _, _, err := protobuf.StreamSerializer.Serializer.Decode(frame, nil, &got); err != nil {
		return "", nil, nil, err
	}
	switch event = watch.EventType(got.Type); event {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
	default:
		return "", nil, nil, fmt.Errorf("an event of the type %.20q: %w", got.Type, errFrame)
	}
	weight := 0
	obj, err = liveAnswers.decodeLimited(got.Object.Raw, func(n int) error {
		if n > eventMost {
			return answerweight.ErrTooHeavy
		}
		err := e.reserveBytes(n)
		if err == nil {
			weight = n
		}
		return err
	})
	if err != nil {
		e.releaseBytes(weight)
		return "", nil, nil, err
	}
	return event, obj, func() { e.releaseBytes(weight) }, nil
}

// reserveBytes counts memory. It waits while the client has not taken what this member sent before.
func (e *eventReader) reserveBytes(n int) error {
	for {
		e.mu.Lock()
		if e.held == 0 || e.held+n <= memberMost {
			e.held += n
			e.mu.Unlock()
			err := e.queue.reserveBytes(n)
			if err != nil {
				e.mu.Lock()
				e.held -= n
				e.mu.Unlock()
			}
			return err
		}
		if e.freed == nil {
			e.freed = make(chan struct{})
		}
		freed := e.freed
		e.mu.Unlock()
		select {
		case <-freed:
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
	}
}

// releaseBytes returns memory.
func (e *eventReader) releaseBytes(n int) {
	e.queue.hold.releaseBytes(int64(n))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held -= n
	if e.freed != nil {
		close(e.freed)
		e.freed = nil
	}
}
