package gateway

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// expiries of the certificates of agents whose streams are here, by when they are overdue. Nothing
// of them is in the store: whoever wants to know asks. It is safe for concurrent use.
type expiries struct {
	tell func(uid string, ends time.Time, generation int, overdue bool)

	mu   sync.Mutex
	due  dueStreams
	late map[*stream]struct{} // that are overdue, and not in due
	wake chan struct{}        // capacity 1: the first of due is another
}

func newExpiries(tell func(string, time.Time, int, bool)) *expiries {
	return &expiries{tell: tell, late: map[*stream]struct{}{}, wake: make(chan struct{}, 1)}
}

// put a stream in whose certificate is known.
func (t *expiries) put(s *stream, c certified) {
	t.mu.Lock()
	s.certificate = c
	t.add(s, time.Now())
	t.mu.Unlock()
	t.told(s)
}

// add a stream that is not in; the caller holds the lock.
func (t *expiries) add(s *stream, now time.Time) {
	if s.certificate.overdue <= now.Unix() {
		t.late[s] = struct{}{}
		s.dueAt = -1
		return
	}
	heap.Push(&t.due, s)
	if t.due[0] == s {
		t.poke()
	}
}

func (t *expiries) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// remove a stream; one that is not in stays out.
func (t *expiries) remove(s *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s)
}

// drop a stream; the caller holds the lock.
func (t *expiries) drop(s *stream) (was bool) {
	if _, late := t.late[s]; late {
		delete(t.late, s)
		return true
	}
	if i := s.dueAt; i >= 0 && i < len(t.due) && t.due[i] == s {
		heap.Remove(&t.due, i)
		return true
	}
	return false
}

// renewed: the agent was given another certificate.
func (t *expiries) renewed(s *stream, c certified) {
	t.mu.Lock()
	s.certificate = c
	in := t.drop(s)
	if in {
		t.add(s, time.Now())
	}
	t.mu.Unlock()
	if in {
		t.told(s)
	}
}

// told whoever wants to know what is known of the stream's certificate.
func (t *expiries) told(s *stream) {
	t.mu.Lock()
	_, late := t.late[s]
	ends, generation := time.Unix(s.certificate.ends, 0), int(s.certificate.generation)
	t.mu.Unlock()
	t.tell(s.id.uid, ends, generation, late)
}

// edition of the trust that came with the stream's certificate.
func (t *expiries) edition(s *stream) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(s.certificate.edition)
}

// watch which certificates become overdue, until ctx ends.
func (t *expiries) watch(ctx context.Context) {
	for {
		var timer <-chan time.Time
		for _, s := range t.pass(time.Now()) {
			t.told(s)
		}
		t.mu.Lock()
		if len(t.due) > 0 {
			timer = time.After(max(time.Until(time.Unix(t.due[0].certificate.overdue, 0)), time.Second))
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer:
		}
	}
}

// pass gives those that became overdue.
func (t *expiries) pass(now time.Time) (late []*stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.due) > 0 && t.due[0].certificate.overdue <= now.Unix() {
		s := heap.Pop(&t.due).(*stream)
		t.late[s] = struct{}{}
		late = append(late, s)
	}
	return late
}

// summary for metrics: how many are overdue, and the end that comes first, 0 where nobody
// is connected. Of those that are not overdue, that is the end of the one that is first.
func (t *expiries) summary() (overdue int, soonest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.due) > 0 {
		soonest = t.due[0].certificate.ends
	}
	for s := range t.late {
		if soonest == 0 || s.certificate.ends < soonest {
			soonest = s.certificate.ends
		}
	}
	return len(t.late), soonest
}

// dueStreams is a heap by when certificates are overdue.
type dueStreams []*stream

func (h dueStreams) Len() int           { return len(h) }
func (h dueStreams) Less(i, j int) bool { return h[i].certificate.overdue < h[j].certificate.overdue }
func (h dueStreams) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dueAt, h[j].dueAt = i, j
}

// Push is heap.Push's.
func (h *dueStreams) Push(x any) {
	s := x.(*stream)
	s.dueAt = len(*h)
	*h = append(*h, s)
}

// Pop is heap.Pop's.
func (h *dueStreams) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h, s.dueAt = old[:len(old)-1], -1
	return s
}
