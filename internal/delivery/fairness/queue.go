package fairness

import (
	"errors"
	"sync"
	"time"

	"atoll.dev/atoll/internal/pace"
)

// ErrQueueFull refuses a connection that cannot have its turn in time.
var ErrQueueFull = errors.New("too many connections wait for their handshake")

// otherTurns is how often a connection has its turn that is not known while known ones wait, and
// which part of the places is for such: each fourth, so that clusters join while a fleet reconnects.
const otherTurns = 4

// ConnectionQueue gives turns at a rate. The networks whose connections wait take turns, and within a
// network the order is that of arrival. Known connections go before others, except each fourth
// turn. A few at once never wait. A Queue is safe for concurrent use. Make it with NewQueue.
type ConnectionQueue struct {
	longest time.Duration // that a connection waits
	most    int           // connections that wait

	mu            sync.Mutex
	bucket        pace.Bucket
	known, others ring[*waiter]
	turns         int  // given while both rings wait
	served        bool // by a goroutine, while connections wait
}

// waiter is a connection that waits. turn receives true for its turn, and false for its refusal.
type waiter struct{ turn chan bool }

// NewQueue returns a Queue of that rate. A connection waits for the longest time at most, and as
// many wait as have their turn within it.
func NewQueue(rate pace.Rate, longest time.Duration) *ConnectionQueue {
	return &ConnectionQueue{
		longest: longest, most: int(longest / rate.Interval), bucket: rate.NewBucket(),
		known: newRing[*waiter](), others: newRing[*waiter](),
	}
}

// Wait returns at the turn of a connection of that network. It returns ErrQueueFull at once when
// as many wait as can, unless another network has more: its last connection is refused instead.
// It also returns ErrQueueFull after the longest time.
func (q *ConnectionQueue) Wait(network string, known bool) error {
	w, err := q.enterQueue(network, known)
	if w == nil {
		return err
	}
	timer := time.NewTimer(q.longest)
	defer timer.Stop()
	select {
	case ok := <-w.turn:
		return queueFullUnless(ok)
	case <-timer.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case ok := <-w.turn: // at the same moment
		return queueFullUnless(ok)
	default:
		q.ringOf(known).removeWaiter(network, w)
		return ErrQueueFull
	}
}

func queueFullUnless(ok bool) error {
	if ok {
		return nil
	}
	return ErrQueueFull
}

// ReturnUnusedTurn returns a part of a turn that was not used.
func (q *ConnectionQueue) ReturnUnusedTurn(part float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bucket.ReturnTokenPart(part)
}

// enterQueue gives a turn at once, or adds the connection to those that wait.
func (q *ConnectionQueue) enterQueue(network string, known bool) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known.count+q.others.count == 0 && q.bucket.TakeToken(time.Now()) {
		return nil, nil
	}
	r := q.ringOf(known)
	if q.known.count+q.others.count >= q.most && !q.displaceWaiterFor(r, network) {
		return nil, ErrQueueFull
	}
	w := &waiter{turn: make(chan bool, 1)}
	r.addWaiter(network, w)
	if !q.served {
		q.served = true
		go q.giveTurns()
	}
	return w, nil
}

func (q *ConnectionQueue) ringOf(known bool) *ring[*waiter] {
	if known {
		return &q.known
	}
	return &q.others
}

// displaceWaiterFor refuses the last connection of the longest line, and reports whether it did. Each
// fourth place is for connections that are not known, the rest for known ones: below its part, a
// ring takes a place of the other one. Within a ring, the line must be longer than the newcomer's
// will be.
func (q *ConnectionQueue) displaceWaiterFor(r *ring[*waiter], network string) bool {
	from, part := r, q.most/otherTurns
	switch {
	case r == &q.known && q.others.count > part:
		from = &q.others
	case r == &q.others && q.others.count < part:
		from = &q.known
	}
	longest := from.longestLine()
	if from == r && len(from.waiting[longest]) <= len(r.waiting[network])+1 {
		return false
	}
	line := from.waiting[longest]
	last := line[len(line)-1]
	from.removeWaiter(longest, last)
	last.turn <- false
	return true
}

// giveTurns gives turns at the rate until no connection waits.
func (q *ConnectionQueue) giveTurns() {
	for {
		wait, ok := q.giveNextTurn()
		if !ok {
			return
		}
		time.Sleep(wait)
	}
}

// giveNextTurn gives the next turn if it has come, and returns how long until another try.
func (q *ConnectionQueue) giveNextTurn() (wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.nextRing()
	if r.count == 0 {
		q.served = false
		return 0, false
	}
	now := time.Now()
	if !q.bucket.TakeToken(now) {
		return q.bucket.WaitTime(now), true
	}
	if q.known.count > 0 && q.others.count > 0 {
		q.turns++
	}
	r.takeNext().turn <- true
	return 0, true
}

// nextRing returns the ring that has the next turn.
func (q *ConnectionQueue) nextRing() *ring[*waiter] {
	if q.known.count == 0 || q.others.count > 0 && q.turns%otherTurns == otherTurns-1 {
		return &q.others
	}
	return &q.known
}
