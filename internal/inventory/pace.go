package inventory

import (
	"math"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// loadEvery is how often a status is written at most of which only the load has changed,
// which is what pods ask for and what nodes have left, and by little: each application that
// comes to a cluster changes that, and a write per row is what it must not cost. What was
// placed is known without it.
const loadEvery = 10 * time.Minute

// wait tells for how long a status has to wait until it may be written. What a member's
// conditions say is written at once. The caller holds the lock.
func (r *Reconciler) wait(m *member, old, next v1alpha1.ClusterStatus, now time.Time) time.Duration {
	if !sameConditions(old.Conditions, next.Conditions) {
		return 0
	}
	if !onlyLoad(old, next) {
		return m.wrote.Add(settle).Sub(now)
	}
	every, since := settle, m.wrote
	if !matters(old.Resources, next.Resources) {
		every = loadEvery
	}
	if since.IsZero() { // a hub that starts does not write all of the fleet
		since = m.met
	}
	if left := since.Add(every).Sub(now); left > 0 {
		return left
	}
	if m.turn.IsZero() {
		m.turn = now.Add(r.upkeep.ReserveN(now, 1).DelayFrom(now))
	}
	return m.turn.Sub(now)
}

// onlyLoad tells whether the load is all that differs.
func onlyLoad(old, next v1alpha1.ClusterStatus) bool {
	is, was := &next.Resources, &old.Resources
	if len(was.Allocatable) == 0 || (is.Room == nil) != (was.Room == nil) { // more is known
		return false
	}
	is.Requested, is.Room = was.Requested, was.Room
	return equal(old, next)
}

// matters tells whether the load has changed by a part of what there is that says more than
// that some application came or went.
func matters(old, next v1alpha1.ResourceSummary) bool {
	for name, all := range next.Allocatable {
		was, is := old.Requested[name], next.Requested[name]
		if diff := math.Abs(is.AsApproximateFloat64() - was.AsApproximateFloat64()); diff*atoll.LoadMatters > all.AsApproximateFloat64() {
			return true
		}
	}
	was, err := atoll.ParseRoom(classes(old.Room))
	if err != nil { // an older hub's: nobody reads it
		return true
	}
	is, err := atoll.ParseRoom(classes(next.Room))
	return err != nil || is.DiffersFrom(was)
}

func classes(r *v1alpha1.NodeRoom) []string {
	if r == nil {
		return nil
	}
	return r.Classes
}
