package rollout

import (
	"fmt"
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// leavesFailed reports whether a row leaves because its application failed in the cluster.
func (s *rolloutStep) leavesFailed(c string) bool {
	v, _ := s.Decision.FindVerdict(c)
	return v.LeavesFailed
}

// leavesUnhealthy reports whether a row leaves because its application failed, and was not healthy by the last report. The order to leave
// changes nothing in the member, so that a report about the order before it counts, too.
func (s *rolloutStep) leavesUnhealthy(c string) bool {
	st := s.Rows[c].Status
	return s.leavesFailed(c) && (st == nil || st.State != atoll.RowReady)
}

// keepsFailedCopy reports whether purgeMode Never keeps a row that leaves, until a person confirms its removal.
func (s *rolloutStep) keepsFailedCopy(c string, spec *atoll.RowSpec) bool {
	if s.Deleting || s.confirmed || s.ApplicationFailover.Purge() != v1alpha1.PurgeNever || !s.leavesFailed(c) {
		return false
	}
	s.pendingRemoval.add(pendingRemovalEntry{
		cluster: c, reasonCode: atoll.ReasonFailedCopyKept, reasonText: spec.Reason,
		hashedText:  fmt.Sprintf("failed %s %s %d", c, spec.UID, spec.Since),
		displayLine: fmt.Sprintf("remove the failed copy from %s (%s)", c, spec.Reason),
	})
	return true
}

// goesBeforeReplacements reports whether a row goes although the rows that replace it are not healthy. A person confirms that, except for the
// copy of an application that failed.
func (s *rolloutStep) goesBeforeReplacements(c string, spec *atoll.RowSpec, blockers *blockerSet) bool {
	switch {
	case blockers.isSuspended:
		return false
	case s.leavesUnhealthy(c) && s.areConnected(blockers):
		return s.isGraceOver(spec)
	case !s.hasTimedOut(spec.Since, blockers):
		return false
	case !s.confirmed:
		s.pendingRemoval.addUnreadyReplacement(c, *spec, blockers)
		return false
	}
	return true
}

// areConnected reports whether no row that replaces another one is known to be in a disconnected cluster. A failed copy does not go for a cluster
// from which nothing is heard. The decision chose a row that this step orders, and avoids disconnected clusters.
func (s *rolloutStep) areConnected(blockers *blockerSet) bool {
	return !slices.ContainsFunc(blockers.clusters, func(c string) bool {
		row, isOrdered := s.Rows[c]
		return isOrdered && !row.Online && c != blockers.excluded
	})
}

// isGraceOver reports whether a failed copy waits no longer for a healthy replacement. If it does, a step is requested for the end of its time.
func (s *rolloutStep) isGraceOver(spec *atoll.RowSpec) bool {
	if s.ApplicationFailover.Purge() != v1alpha1.PurgeGracefully {
		return true
	}
	end := s.endOfGrace(spec)
	if s.Now.Before(end) {
		s.requeueNoLater(end)
		return false
	}
	return true
}

func (s *rolloutStep) endOfGrace(spec *atoll.RowSpec) time.Time {
	return time.Unix(spec.Since, 0).Add(s.ApplicationFailover.GracePeriod())
}

// describeGrace returns until when a failed copy waits at most; empty for others.
func (s *rolloutStep) describeGrace(c string) string {
	spec := s.nextSpecs[c]
	if spec == nil {
		row := s.Rows[c].Spec
		spec = &row
	}
	if !s.leavesUnhealthy(c) || s.ApplicationFailover.Purge() != v1alpha1.PurgeGracefully {
		return ""
	}
	return ", at most until " + phrase.FormatTime(s.endOfGrace(spec))
}

// failoverTexts has why an unhealthy copy stays, without the names of other applications.
var failoverTexts = map[atoll.Reason]string{
	atoll.ReasonFailoverUnreplaced:   "; no other cluster can take its place",
	atoll.ReasonFailoverLimitReached: "; as many clusters are avoided as maxAvoidedClusters allows",
	atoll.ReasonFailoverHeld:         "; its failover is held",
}

// describeFailover returns why the failover of an application leaves an unhealthy copy where it is; empty: it does not.
func describeFailover(spec atoll.RowSpec) string {
	return failoverTexts[atoll.ParseRowReason(spec.Reason).Reason]
}
