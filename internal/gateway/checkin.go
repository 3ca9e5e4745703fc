package gateway

import (
	"log/slog"
	"time"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// postponedFor is how often an order may fail, by the pause before the next try,
// before an agent that checks in is no longer kept for it.
const postponedFor = 4 * time.Second

// visit is what a session of an agent that checks in, or is to, has come to. Its
// stream's lock guards it.
type visit struct {
	every       uint32 // seconds, as the agent was told last
	idle        bool   // it was told that there is nothing more
	inventoried bool   // its inventory came, and was looked at
}

// checkIn is how often the session's agent is to check in, in seconds.
func (s *stream) checkIn() uint32 {
	c, ok := s.g.o.Clusters.ByUID(s.id.uid)
	if !ok {
		return 0
	}
	return uint32((c.Spec.CheckIn() + time.Second - 1) / time.Second)
}

// rhythm in which the agent knows that it is to check in; 0: it is to hold the stream.
func (s *stream) rhythm() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.visit.every) * time.Second
}

// promised notes what the agent is about to be told, and gives it.
func (s *stream) promised() uint32 {
	every := s.checkIn()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visit.every = every
	return every
}

// reconsider has the agent told if it is to check in otherwise than it knows, or to leave.
func (s *stream) reconsider() {
	every := s.checkIn()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconsiderLeaving()
	if every != s.visit.every && s.core != nil {
		s.poke()
	}
}

// looked: what the agent's member is has been looked at. How it is to keep in touch may
// have changed before, when it could not be told yet.
func (s *stream) looked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.visit.inventoried {
		s.visit.inventoried = true
		if s.visit.every > 0 || s.checkIn() > 0 {
			s.poke()
		}
	}
}

// nothingMore tells an agent that checks in, once, that nothing waits for it, and any
// agent how it is to keep in touch where that changed. It is asked when nothing else
// is to be sent. The caller holds the lock.
func (s *stream) nothingMore() (task, bool) {
	if s.core == nil || !s.core.Synced() || s.asked || !s.visit.inventoried || s.postponed() || s.leaving.told {
		return task{}, false
	}
	every := s.checkIn()
	if every == s.visit.every && (every == 0 || s.visit.idle) {
		return task{}, false
	}
	s.visit.every, s.visit.idle = every, true
	return task{frame: &pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: every}}}}, true
}

// postponed tells whether an order that failed is about to be tried again.
func (s *stream) postponed() bool {
	for _, pause := range s.queue.retries {
		if pause < postponedFor {
			return true
		}
	}
	return false
}

// level at which the coming and going of the stream is logged: of agents that check in
// it is nothing to read about.
func (s *stream) level() slog.Level {
	if s.checkIn() > 0 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
