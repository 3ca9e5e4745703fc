package gateway

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// behindMost is how much an agent may tell of what it left behind.
	behindMost = 100
	// leaveRetry is the pause before a cluster that has left is forgotten again, where that
	// failed, and between two writes of what an agent waits for.
	leaveRetry = time.Second
)

// leaving is how far a session is in which the cluster leaves the fleet. Its stream's lock
// guards it.
type leaving struct {
	can   bool // the agent knows what to do
	told  bool
	clean bool // as it was told
	left  bool // it has answered
	// waits is what the agent said last that it waits for, until that is handed on; telling:
	// a goroutine does that.
	waits   *pb.Leaving
	telling bool
}

// removal of the session's cluster; nil: it stays, or is to be given up by somebody else.
func (s *stream) removal() *v1alpha1.ClusterRemoval {
	c, ok := s.g.o.Clusters.ByUID(s.id.uid)
	if !ok || c.Spec.Removal == nil || c.Spec.Removal.Force {
		return nil
	}
	return c.Spec.Removal
}

// lastOrder tells the agent of a cluster that leaves the fleet, once, to let go of its
// member: when both ends have compared, no row is left but those that remember where
// namespaces stay, and nothing else is to be sent. The caller holds the lock.
func (s *stream) lastOrder() (task, bool) {
	if s.leaving.told || !s.leaving.can || s.core == nil || !s.core.Synced() || s.asked {
		return task{}, false
	}
	r := s.removal()
	if r == nil {
		return task{}, false
	}
	for _, row := range s.g.o.Rows.OfCluster(s.id.uid) {
		if !row.Bundle.OfNamespace() {
			return task{}, false
		}
	}
	s.leaving.told, s.leaving.clean = true, r.Mode == v1alpha1.ClusterClean
	return task{frame: &pb.FromHub{Frame: &pb.FromHub_Leave{Leave: &pb.Leave{Clean: s.leaving.clean}}}}, true
}

// reconsiderLeaving: the cluster is to leave, or not any more, or otherwise. An agent that
// was told so before compares anew in a session of its own. The caller holds the lock.
func (s *stream) reconsiderLeaving() {
	r := s.removal()
	switch {
	case s.leaving.told && (r == nil || (r.Mode == v1alpha1.ClusterClean) != s.leaving.clean):
		s.endLocked(nil)
	case r != nil && !s.leaving.told && s.core != nil:
		s.poke()
	}
}

// agentLeaves: the agent says what keeps it from letting go. The last word counts.
func (s *stream) agentLeaves(f *pb.Leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving.told {
		return
	}
	s.leaving.waits = f
	if !s.leaving.telling {
		s.leaving.telling = true
		go s.tellWaits()
	}
}

// tellWaits hands on what the agent waits for, until that is done or the session is over.
func (s *stream) tellWaits() {
	for told := false; ; {
		s.mu.Lock()
		f := s.leaving.waits
		s.leaving.waits, s.leaving.telling = nil, f != nil
		s.mu.Unlock()
		c, ok := s.g.o.Clusters.ByUID(s.id.uid)
		if f == nil || !ok {
			return
		}
		if err := s.g.o.OnLeaving(s.grpc.Context(), c, f.GetWaits(), time.Unix(f.GetSince(), 0)); err != nil {
			if !told && !apierrors.IsConflict(err) { // else the table is about to tell
				told = true
				s.log().Warn("what keeps a cluster from leaving cannot be said yet; the hub tries again", "waits", f.GetWaits(), "err", err)
			}
			s.mu.Lock()
			if s.leaving.waits == nil {
				s.leaving.waits = f
			}
			s.mu.Unlock()
		}
		select {
		case <-s.ended:
			return
		case <-time.After(leaveRetry):
		}
	}
}

// left: the agent holds nothing any more, so that its cluster can be forgotten. That it
// was asked to is not taken from what it says.
func (s *stream) left(f *pb.Left) {
	s.mu.Lock()
	again := !s.leaving.told || s.leaving.left
	s.leaving.left = s.leaving.told
	s.mu.Unlock()
	if again {
		return
	}
	behind := f.GetBehind()
	go s.forget(behind[:min(len(behind), behindMost)])
}

// forget the cluster, until that is done or the session is over.
func (s *stream) forget(behind []string) {
	for told := false; ; {
		c, ok := s.g.o.Clusters.ByUID(s.id.uid)
		if !ok || s.removal() == nil {
			return // who changed that has ended the session
		}
		err := s.g.o.OnLeft(s.grpc.Context(), c, behind)
		if err != nil && !told {
			told = true
			s.log().Warn("a cluster has left the fleet and cannot be forgotten yet; the hub tries again", "err", err)
		}
		select {
		case <-s.ended:
			return
		case <-time.After(leaveRetry):
		}
	}
}
