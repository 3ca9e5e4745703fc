package summarise

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// unplacedAfter is how long something must have been without a place before an Event says
// so: what a moment's edit or a cluster that comes back mends is no news.
const unplacedAfter = 15 * time.Second

// warnUnplaced says by an Event that nothing fits, or that replicas have no place: people
// look at Events first, and the condition alone is on an object that they did not make.
// Once each time that the condition turns, whichever hub summarises: what had turned before
// this one began, another has told.
func (r *Reconciler) warnUnplaced(s *snapshot, m *memo, conditions []metav1.Condition, now time.Time) {
	r.mu.Lock()
	since := r.started.Add(-unplacedAfter).Truncate(time.Second)
	r.mu.Unlock()
	for i := range conditions {
		c := &conditions[i]
		turned := c.LastTransitionTime.Time
		if !unplaced(c) || turned.Before(since) || m.unplaced[c.Type].Equal(turned) {
			continue
		}
		if left := turned.Add(unplacedAfter).Sub(now); left > 0 {
			m.wake(left)
			continue
		}
		if m.unplaced == nil {
			m.unplaced = map[string]time.Time{}
		}
		m.unplaced[c.Type] = turned
		r.Events.Warn(s.bundle.Ref, c.Reason, c.Message)
	}
}

func unplaced(c *metav1.Condition) bool {
	if c.Status != metav1.ConditionFalse {
		return false
	}
	switch c.Type {
	case v1alpha1.BundleScheduled:
		return c.Reason == ReasonNoClusterFits || c.Reason == ReasonSpreadUnmet
	case v1alpha1.BundleReplicasPlaced:
		return c.Reason == ReasonNoPlace
	}
	return false
}
