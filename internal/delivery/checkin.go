package delivery

import (
	"log/slog"
	"time"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// shortRetryLimit bounds the pauses before a failed order is tried again for which an
// agent that checks in is kept connected.
const shortRetryLimit = 4 * time.Second

// checkInState is the progress of a session whose agent checks in, or is about to. The
// lock of the session guards it.
type checkInState struct {
	intervalSeconds uint32 // seconds, as last sent to the agent
	idleSent        bool   // Idle was sent
	inventorySeen   bool   // the inventory came and is recorded
}

// checkInSeconds returns the agent's interval between check-ins, in seconds. 0: it holds
// its stream.
func (s *agentSession) checkInSeconds() uint32 {
	c, ok := s.gateway.options.Clusters.GetByUID(s.id.uid)
	if !ok {
		return 0
	}
	return uint32((c.Spec.CheckInInterval() + time.Second - 1) / time.Second)
}

// announcedCheckInInterval returns the interval between check-ins that was sent to the agent. 0:
// it holds its stream.
func (s *agentSession) announcedCheckInInterval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.checkInState.intervalSeconds) * time.Second
}

// recordIntervalToSend records the interval that is about to be sent to the agent, and returns
// it in seconds.
func (s *agentSession) recordIntervalToSend() uint32 {
	every := s.checkInSeconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkInState.intervalSeconds = every
	return every
}

// applyCheckInChange wakes the sender if the interval between check-ins has changed or the
// cluster is to leave.
func (s *agentSession) applyCheckInChange() {
	every := s.checkInSeconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applyRemovalChange()
	if every != s.checkInState.intervalSeconds && s.core != nil {
		s.wakeSender()
	}
}

// markInventorySeen notes that the inventory is recorded. The interval may have changed
// before, when it could not be sent yet.
func (s *agentSession) markInventorySeen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checkInState.inventorySeen {
		s.checkInState.inventorySeen = true
		if s.checkInState.intervalSeconds > 0 || s.checkInSeconds() > 0 {
			s.wakeSender()
		}
	}
}

// nextIdleFrame returns the frame that reports to an agent that checks in, once, that nothing waits
// for it. Any agent gets it when its interval has changed. Call it when nothing else
// is to be sent. The caller holds the lock.
func (s *agentSession) nextIdleFrame() (sendTask, bool) {
	if s.core == nil || !s.core.IsSynced() || s.recallPending || !s.checkInState.inventorySeen || s.hasShortRetry() || s.leaveState.ordered {
		return sendTask{}, false
	}
	every := s.checkInSeconds()
	if every == s.checkInState.intervalSeconds && (every == 0 || s.checkInState.idleSent) {
		return sendTask{}, false
	}
	s.checkInState.intervalSeconds, s.checkInState.idleSent = every, true
	return sendTask{frame: &pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: every}}}}, true
}

// hasShortRetry reports whether an order that failed is tried again soon.
func (s *agentSession) hasShortRetry() bool {
	for _, pause := range s.queue.retries {
		if pause < shortRetryLimit {
			return true
		}
	}
	return false
}

// connectionLogLevel is the level at which connects and disconnects are logged. Check-ins
// are logged at debug level.
func (s *agentSession) connectionLogLevel() slog.Level {
	if s.checkInSeconds() > 0 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
