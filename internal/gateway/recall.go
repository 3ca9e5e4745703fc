package gateway

import (
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// rememberedLimit is how many tombstones an agent may tell; honest ones remember
// 5,000 at most.
const rememberedLimit = 20_000

// Remembered is what one agent remembers of removals.
type Remembered struct {
	// Cluster name, and its UID.
	Cluster, UID string
	Tombstones   []*pb.RememberedTombstone
	// Settled is to be called when all that follows from it is written: until then
	// nothing is ordered of the cluster. Nil where the gateway holds anyway. It may
	// be called after the session's end, and does not block.
	Settled func()
}

// held tells whether nothing may be ordered in this session: the hub holds, or did
// when the session began.
func (s *stream) held() bool { return s.g.Holding() || s.era != s.g.era() }

// remembered takes a frame of the answer. What was not asked for is ignored.
func (s *stream) remembered(r *pb.Remembered) {
	s.mu.Lock()
	if !s.asked || s.done {
		s.mu.Unlock()
		return
	}
	if s.told = append(s.told, r.GetTombstones()...); len(s.told) > rememberedLimit {
		s.endLocked(&pb.Refused{Reason: "Flooding", Message: "the agent remembers more removals than an agent keeps; its version may be damaged", Final: true})
		s.mu.Unlock()
		return
	}
	if !r.GetComplete() {
		s.mu.Unlock()
		return
	}
	out := Remembered{Cluster: s.cluster, UID: s.id.uid, Tombstones: s.told}
	if s.hello != nil {
		out.Settled = s.settled
	}
	s.asked, s.told = false, nil
	s.mu.Unlock()
	s.g.o.OnRemembered(out)
}

// settled lets the session go on.
func (s *stream) settled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hello := s.hello; hello != nil && !s.done {
		s.hello = nil
		s.start(hello, false)
	}
}
