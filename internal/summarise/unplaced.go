package summarise

import (
	"time"

	limit "golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// unplacedAfter is how long something must have been without a place before an Event says
// so: what a moment's edit or a cluster that comes back mends is no news.
const unplacedAfter = 15 * time.Second

const (
	// unplacedPerSecond is how many Bundles are told of, all together, after the first
	// unplacedAtOnce: what takes the place of all has one cause, and those behind hear of it
	// only if it lasts.
	unplacedPerSecond = 5
	unplacedAtOnce    = 50
)

func newUnplacedPace() *limit.Limiter { return limit.NewLimiter(unplacedPerSecond, unplacedAtOnce) }

// untold is what a memo has of conditions that say that something has no place.
type untold struct {
	// told: when the conditions turned of which an Event told, by type.
	told map[string]time.Time
	// turn to be told of; zero: it has not asked for one.
	turn time.Time
}

// warnUnplaced says by an Event that nothing fits, or that replicas have no place: people
// look at Events first, and the condition alone is on an object that they did not make.
// Once each time that the condition turns, whichever hub summarises: what had turned before
// this one began, another has told.
func (r *Reconciler) warnUnplaced(s *snapshot, m *memo, conditions []metav1.Condition, now time.Time) {
	r.mu.Lock()
	since := r.started.Add(-unplacedAfter).Truncate(time.Second)
	r.mu.Unlock()
	u := &m.unplaced
	for i := range conditions {
		c := &conditions[i]
		turned := c.LastTransitionTime.Time
		if !unplaced(c) || turned.Before(since) || u.told[c.Type].Equal(turned) {
			continue
		}
		left := turned.Add(unplacedAfter).Sub(now)
		if left <= 0 && u.turn.IsZero() {
			u.turn = now.Add(r.unplacedPace.ReserveN(now, 1).DelayFrom(now))
		}
		if left = max(left, u.turn.Sub(now)); left > 0 {
			m.wake(left)
			return
		}
		if u.told == nil {
			u.told = map[string]time.Time{}
		}
		u.told[c.Type], u.turn = turned, time.Time{}
		r.Events.Warn(s.bundle.Ref, c.Reason, c.Message)
	}
	u.turn = time.Time{}
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
