package bundlestatus

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// unplacedAfter is how long something must have been without a place before an Event is recorded:
// what a moment's edit or a cluster that comes back mends is no news.
const unplacedAfter = 15 * time.Second

// untold is the part of a memo about conditions of missing places.
type untold struct {
	// reported: when the conditions of earlier Events turned, by type.
	reportedAt map[string]time.Time
	// nextReport of its Event; zero: it has not requested one.
	nextReport time.Time
}

// warnUnplaced sends an Event that nothing fits, or that replicas have no place: people look at
// Events first, and the condition alone is on an object that they did not make. It is sent once
// each time that the condition turns, on whichever hub: a condition that turned before this hub
// began has another hub's Event.
func (r *BundleReconciler) warnUnplaced(s *bundleSnapshot, m *bundleMemo, conditions []metav1.Condition, now time.Time) {
	r.mu.Lock()
	since := r.started.Add(-unplacedAfter).Truncate(time.Second)
	r.mu.Unlock()
	u := &m.unplaced
	for i := range conditions {
		c := &conditions[i]
		turned := c.LastTransitionTime.Time
		if !isUnplaced(c) || turned.Before(since) || u.reportedAt[c.Type].Equal(turned) {
			continue
		}
		left := turned.Add(unplacedAfter).Sub(now)
		if left <= 0 && u.nextReport.IsZero() {
			u.nextReport = r.unplacedEvents.ReserveToken(now)
		}
		if left = max(left, u.nextReport.Sub(now)); left > 0 {
			m.wakeAfter(left)
			return
		}
		if u.reportedAt == nil {
			u.reportedAt = map[string]time.Time{}
		}
		u.reportedAt[c.Type], u.nextReport = turned, time.Time{}
		r.Events.Warn(s.bundle.Ref, atoll.Reason(c.Reason), c.Message)
	}
	u.nextReport = time.Time{}
}

func isUnplaced(c *metav1.Condition) bool {
	if c.Status != metav1.ConditionFalse {
		return false
	}
	switch c.Type {
	case v1alpha1.BundleScheduled:
		return isNoFit(atoll.Reason(c.Reason)) || atoll.Reason(c.Reason) == ReasonSpreadUnmet
	case v1alpha1.BundleReplicasPlaced:
		return atoll.Reason(c.Reason) == ReasonNoPlace
	}
	return false
}

// isNoFit reports whether the reason of the condition Scheduled means that no cluster fits.
func isNoFit(reason atoll.Reason) bool {
	return reason == ReasonNoClusterFits || reason == atoll.ReasonKeptApart || reason == atoll.ReasonGroupElsewhere
}

// affinityRefusal returns the condition by which workloadAffinity refuses all clusters that fit otherwise; nil: it does not.
func (in StatusInput) affinityRefusal() *metav1.Condition {
	c := meta.FindStatusCondition(in.Bundle.Status.Conditions, v1alpha1.BundleAffinityMet)
	if c == nil || c.Status != metav1.ConditionFalse || in.Bundle.Spec.Placement.WorkloadAffinity == nil {
		return nil
	}
	return c
}
