package delivery

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"atoll.dev/atoll/internal/wakeup"
)

// expiryTracker keeps the certificates of connected agents by the time at which they are
// overdue. The store has none of it. It is safe for concurrent use.
type expiryTracker struct {
	notify func(uid string, ends time.Time, generation int, overdue bool)

	mu      sync.Mutex
	due     expiryHeap
	overdue map[*agentSession]struct{} // overdue, and not in due
	wake    chan struct{}              // capacity 1: the first of due has changed
}

func newExpiryTracker(tell func(string, time.Time, int, bool)) *expiryTracker {
	return &expiryTracker{notify: tell, overdue: map[*agentSession]struct{}{}, wake: make(chan struct{}, 1)}
}

// put adds a session and its certificate.
func (t *expiryTracker) put(s *agentSession, c certificateInfo) {
	t.mu.Lock()
	s.certificate = c
	t.addLocked(s, time.Now())
	t.mu.Unlock()
	t.reportCertificateStatus(s)
}

// addLocked adds a session that is not in. The caller holds the lock.
func (t *expiryTracker) addLocked(s *agentSession, now time.Time) {
	if s.certificate.overdueAt <= now.Unix() {
		t.overdue[s] = struct{}{}
		s.expiryIndex = -1
		return
	}
	heap.Push(&t.due, s)
	if t.due[0] == s {
		wakeup.WakeReader(t.wake)
	}
}

// remove takes a session out, if it is in.
func (t *expiryTracker) remove(s *agentSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(s)
}

// removeLocked takes a session out and reports whether it was in. The caller holds the
// lock.
func (t *expiryTracker) removeLocked(s *agentSession) (was bool) {
	if _, overdue := t.overdue[s]; overdue {
		delete(t.overdue, s)
		return true
	}
	if i := s.expiryIndex; i >= 0 && i < len(t.due) && t.due[i] == s {
		heap.Remove(&t.due, i)
		return true
	}
	return false
}

// updateCertificate records the new certificate of a session.
func (t *expiryTracker) updateCertificate(s *agentSession, c certificateInfo) {
	t.mu.Lock()
	s.certificate = c
	in := t.removeLocked(s)
	if in {
		t.addLocked(s, time.Now())
	}
	t.mu.Unlock()
	if in {
		t.reportCertificateStatus(s)
	}
}

// reportCertificateStatus passes on what is known of the session's certificate.
func (t *expiryTracker) reportCertificateStatus(s *agentSession) {
	t.mu.Lock()
	_, overdue := t.overdue[s]
	ends, generation := time.Unix(s.certificate.notAfter, 0), int(s.certificate.generation)
	t.mu.Unlock()
	t.notify(s.id.uid, ends, generation, overdue)
}

// trustEditionOf returns the edition of the trust that came with the session's certificate.
func (t *expiryTracker) trustEditionOf(s *agentSession) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(s.certificate.edition)
}

// watchOverdue reports certificates that become overdue, until ctx ends.
func (t *expiryTracker) watchOverdue(ctx context.Context) {
	for {
		var timer <-chan time.Time
		for _, s := range t.takeOverdue(time.Now()) {
			t.reportCertificateStatus(s)
		}
		t.mu.Lock()
		if len(t.due) > 0 {
			timer = time.After(max(time.Until(time.Unix(t.due[0].certificate.overdueAt, 0)), time.Second))
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

// takeOverdue moves sessions whose certificates became overdue, and returns them.
func (t *expiryTracker) takeOverdue(now time.Time) (expired []*agentSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.due) > 0 && t.due[0].certificate.overdueAt <= now.Unix() {
		s := heap.Pop(&t.due).(*agentSession)
		t.overdue[s] = struct{}{}
		expired = append(expired, s)
	}
	return expired
}

// summarizeExpiries returns, for metrics, how many certificates are overdue and the first end in
// Unix seconds. The end is 0 while no agent is connected. Only the first of the certificates that
// are not overdue, in the order of renewal, counts.
func (t *expiryTracker) summarizeExpiries() (overdue int, soonest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.due) > 0 {
		soonest = t.due[0].certificate.notAfter
	}
	for s := range t.overdue {
		if soonest == 0 || s.certificate.notAfter < soonest {
			soonest = s.certificate.notAfter
		}
	}
	return len(t.overdue), soonest
}

// expiryHeap is a heap by when certificates are overdue.
type expiryHeap []*agentSession

func (h expiryHeap) Len() int { return len(h) }
func (h expiryHeap) Less(i, j int) bool {
	return h[i].certificate.overdueAt < h[j].certificate.overdueAt
}
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].expiryIndex, h[j].expiryIndex = i, j
}

// Push is heap.Push's.
func (h *expiryHeap) Push(x any) {
	s := x.(*agentSession)
	s.expiryIndex = len(*h)
	*h = append(*h, s)
}

// Pop is heap.Pop's.
func (h *expiryHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h, s.expiryIndex = old[:len(old)-1], -1
	return s
}
