package inventory

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"atoll.dev/atoll/api/v1alpha1"
)

const (
	// loadEvery is how often a status is written at most of which only what pods ask for
	// has changed, and by little: each application that comes to a cluster changes that, and
	// a write per row is what it must not cost. What was placed is known without it.
	loadEvery = 10 * time.Minute
	// loadMatters is the part of what nodes have, an eighth, that is more than little.
	loadMatters = 8
)

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
	if !matters(next.Resources.Allocatable, old.Resources.Requested, next.Resources.Requested) {
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

// onlyLoad tells whether what pods ask for is all that differs.
func onlyLoad(old, next v1alpha1.ClusterStatus) bool {
	if len(old.Resources.Allocatable) == 0 { // nothing is known yet
		return false
	}
	next.Resources.Requested = old.Resources.Requested
	return equal(old, next)
}

// matters tells whether requests have changed by a part of what there is that says more
// than that some application came or went.
func matters(allocatable, old, next corev1.ResourceList) bool {
	for name, all := range allocatable {
		was, is := old[name], next[name]
		if diff := amount(is) - amount(was); diff*loadMatters > amount(all) || -diff*loadMatters > amount(all) {
			return true
		}
	}
	return false
}

func amount(q resource.Quantity) float64 { return q.AsApproximateFloat64() }
