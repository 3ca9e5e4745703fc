package delivery

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// maxLeftBehind is how many objects an agent may report that it leaves behind.
	maxLeftBehind = 100
	// leaveRetryDelay is the pause before the deletion of a cluster that has left is tried
	// again, and between two writes of what an agent waits for.
	leaveRetryDelay = time.Second
)

// leaveState is how far the cluster of a session has left the fleet. The lock of the
// session guards it.
type leaveState struct {
	supported bool // the agent supports it
	ordered   bool
	clean     bool // the mode that was ordered
	answered  bool // the agent has answered
	// latestWait is what the agent waits for by its last report, until that is passed on.
	// reporting: a goroutine passes it on.
	latestWait *pb.Leaving
	reporting  bool
}

// clusterRemoval returns the removal of the session's cluster. It is nil if the cluster
// stays or its agent is not involved.
func (s *agentSession) clusterRemoval() *v1alpha1.ClusterRemoval {
	c, ok := s.gateway.options.Clusters.GetByUID(s.id.uid)
	if !ok || c.Spec.Removal == nil || c.Spec.Removal.Force {
		return nil
	}
	return c.Spec.Removal
}

// nextLeaveFrame returns the frame that orders the agent of a leaving cluster to release
// its member, once. Conditions: both ends have compared, no row is left except those that only
// record namespaces, and nothing else is to be sent. The caller holds the lock.
func (s *agentSession) nextLeaveFrame() (sendTask, bool) {
	if s.leaveState.ordered || !s.leaveState.supported || s.core == nil || !s.core.IsSynced() || s.recallPending {
		return sendTask{}, false
	}
	r := s.clusterRemoval()
	if r == nil {
		return sendTask{}, false
	}
	for _, row := range s.gateway.options.Rows.ListOfCluster(s.id.uid) {
		if !row.Bundle.IsNamespaceRef() {
			return sendTask{}, false
		}
	}
	s.leaveState.ordered, s.leaveState.clean = true, r.Mode == v1alpha1.ClusterClean
	return sendTask{frame: &pb.FromHub{Frame: &pb.FromHub_Leave{Leave: &pb.Leave{Clean: s.leaveState.clean}}}}, true
}

// applyRemovalChange reacts to a change of the removal. An agent that was ordered to leave
// compares again in a new session. The caller holds the lock.
func (s *agentSession) applyRemovalChange() {
	r := s.clusterRemoval()
	switch {
	case s.leaveState.ordered && (r == nil || (r.Mode == v1alpha1.ClusterClean) != s.leaveState.clean):
		s.endLocked(nil)
	case r != nil && !s.leaveState.ordered && s.core != nil:
		s.wakeSender()
	}
}

// handleLeaveBlocked takes what keeps the agent from leaving. The latest report counts.
func (s *agentSession) handleLeaveBlocked(f *pb.Leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaveState.ordered {
		return
	}
	s.leaveState.latestWait = f
	if !s.leaveState.reporting {
		s.leaveState.reporting = true
		go s.runContainingPanics(s.reportLeaveBlocked)
	}
}

// reportLeaveBlocked passes on what the agent waits for, until that succeeds or the
// session is over.
func (s *agentSession) reportLeaveBlocked() {
	for logged := false; ; {
		s.mu.Lock()
		f := s.leaveState.latestWait
		s.leaveState.latestWait, s.leaveState.reporting = nil, f != nil
		s.mu.Unlock()
		c, ok := s.gateway.options.Clusters.GetByUID(s.id.uid)
		if f == nil || !ok {
			return
		}
		if err := s.gateway.options.Departures.RecordDepartureBlocker(s.grpc.Context(), c, f.GetWaits(), time.Unix(f.GetSince(), 0)); err != nil {
			if !logged && !apierrors.IsConflict(err) { // a conflict: the table is about to change
				logged = true
				s.sessionLog().Warn("cannot record yet what keeps a cluster from leaving; the hub tries again", "waits", f.GetWaits(), "err", err)
			}
			s.mu.Lock()
			if s.leaveState.latestWait == nil {
				s.leaveState.latestWait = f
			}
			s.mu.Unlock()
		}
		select {
		case <-s.ended:
			return
		case <-time.After(leaveRetryDelay):
		}
	}
}

// handleLeft deletes the Cluster of an agent that holds nothing any more. The report
// counts only if the hub has ordered it.
func (s *agentSession) handleLeft(f *pb.Left) {
	s.mu.Lock()
	again := !s.leaveState.ordered || s.leaveState.answered
	s.leaveState.answered = s.leaveState.ordered
	s.mu.Unlock()
	if again {
		return
	}
	behind := f.GetBehind()
	go s.runContainingPanics(func() { s.deleteDepartedCluster(behind[:min(len(behind), maxLeftBehind)]) })
}

// deleteDepartedCluster deletes the Cluster, until that succeeds or the session is over.
func (s *agentSession) deleteDepartedCluster(behind []string) {
	for logged := false; ; {
		c, ok := s.gateway.options.Clusters.GetByUID(s.id.uid)
		if !ok || s.clusterRemoval() == nil {
			return // the change has ended the session
		}
		err := s.gateway.options.Departures.ForgetDepartedCluster(s.grpc.Context(), c, behind)
		if err != nil && !logged {
			logged = true
			s.sessionLog().Warn("a cluster has left the fleet and cannot be deleted yet; the hub tries again", "err", err)
		}
		select {
		case <-s.ended:
			return
		case <-time.After(leaveRetryDelay):
		}
	}
}
