package fairness

import "sync"

// WorkSlots bounds how much work runs at a time. The keys whose work waits take turns, and within a
// key the order is that of arrival. It is safe for concurrent use. Make it with NewSlots.
type WorkSlots struct {
	mu      sync.Mutex
	free    int
	waiting ring[chan struct{}]
}

// NewSlots returns so many free slots.
func NewSlots(most int) *WorkSlots { return &WorkSlots{free: most, waiting: newRing[chan struct{}]()} }

// Acquire waits for a slot for work of the key. The caller calls release once, after the work.
func (s *WorkSlots) Acquire(key string) (release func()) {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return s.releaseSlot
	}
	turn := make(chan struct{})
	s.waiting.addWaiter(key, turn)
	s.mu.Unlock()
	<-turn
	return s.releaseSlot
}

func (s *WorkSlots) releaseSlot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting.count == 0 {
		s.free++
		return
	}
	close(s.waiting.takeNext())
}
