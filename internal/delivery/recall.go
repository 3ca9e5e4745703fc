package delivery

import (
	"fmt"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// maxRemembered is how many tombstones an agent may report. Agents store 5,000 at most.
const maxRemembered = 10_000

// Remembered is the recorded removals of one agent.
type Remembered struct {
	// Cluster name, and its UID.
	Cluster, UID string
	Tombstones   []*pb.RememberedTombstone
	// Settled must be called when everything that follows is written. Until then nothing is
	// ordered of the cluster. It is nil where the gateway holds anyway. It may be called after
	// the session's end, and does not block.
	Settled func()
}

// areOrdersHeld reports whether nothing may be ordered in this session: the hub holds, or held
// when the session began.
func (s *agentSession) areOrdersHeld() bool {
	return s.gateway.IsHolding() || s.restoreEpoch != s.gateway.restoreDecisionMark()
}

// handleRememberedRemovals takes a frame of the answer. Answers without a question are ignored.
func (s *agentSession) handleRememberedRemovals(r *pb.Remembered) {
	s.mu.Lock()
	if !s.recallPending || s.done {
		s.mu.Unlock()
		return
	}
	if s.rememberedTombstones = append(s.rememberedTombstones, r.GetTombstones()...); len(s.rememberedTombstones) > maxRemembered {
		s.endLocked(s.recordMisbehaviour(fmt.Sprintf("more than %d remembered removals", maxRemembered)))
		s.mu.Unlock()
		return
	}
	if !r.GetComplete() {
		s.mu.Unlock()
		return
	}
	out := Remembered{Cluster: s.cluster, UID: s.id.uid, Tombstones: s.rememberedTombstones}
	if s.pendingHello != nil {
		out.Settled = func() { s.runContainingPanics(s.resumeAfterRecall) }
	}
	s.recallPending, s.rememberedTombstones = false, nil
	s.mu.Unlock()
	s.gateway.options.Restore.OnRemembered(out)
}

// resumeAfterRecall continues the session.
func (s *agentSession) resumeAfterRecall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hello := s.pendingHello; hello != nil && !s.done {
		s.pendingHello = nil
		s.startResync(hello, false)
	}
}
