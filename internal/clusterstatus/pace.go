package clusterstatus

import (
	"math"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/freecapacity"
)

// loadEvery is the shortest interval of status writes with a small change of the load alone, which
// is the pods' requests and the nodes' free capacity. Each application that comes to a cluster
// changes that, and it must not cost a write for each row. Placed workloads are known without it.
const loadEvery = 10 * time.Minute

// statusWriteDelay returns the time until a status may be written.
func (r *ClusterStatusReconciler) statusWriteDelay(m *member, old, next v1alpha1.ClusterStatus, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !equalConditionStatuses(old.Conditions, next.Conditions) {
		return m.conditions.WaitTime(now)
	}
	if !differsOnlyInLoad(old, next) {
		return m.wrote.Add(settle).Sub(now)
	}
	every, since := settle, m.wrote
	if !isLoadChangeRelevant(old.Resources, next.Resources) {
		every = loadEvery
	}
	if since.IsZero() { // a hub that starts does not write all of the fleet
		since = m.met
	}
	if left := since.Add(every).Sub(now); left > 0 {
		return left
	}
	if m.nextCheckIn.IsZero() {
		m.nextCheckIn = r.upkeep.ReserveToken(now)
	}
	return m.nextCheckIn.Sub(now)
}

// differsOnlyInLoad reports whether the load is all that differs.
func differsOnlyInLoad(old, next v1alpha1.ClusterStatus) bool {
	is, was := &next.Resources, &old.Resources
	_, known := freecapacity.FreeCapacityOf(is)
	if _, before := freecapacity.FreeCapacityOf(was); len(was.Allocatable) == 0 || known != before { // more is known
		return false
	}
	is.Requested, is.FreeCapacity, is.Room = was.Requested, was.FreeCapacity, was.Room
	return equalStatuses(old, next)
}

// isLoadChangeRelevant reports whether the load has changed by a larger part of the capacity than one
// application that came or went.
func isLoadChangeRelevant(old, next v1alpha1.ResourceSummary) bool {
	for name, all := range next.Allocatable {
		was, is := old.Requested[name], next.Requested[name]
		if diff := math.Abs(is.AsApproximateFloat64() - was.AsApproximateFloat64()); diff*freecapacity.SignificantFraction > all.AsApproximateFloat64() {
			return true
		}
	}
	was, _ := freecapacity.FreeCapacityOf(&old)
	is, _ := freecapacity.FreeCapacityOf(&next)
	return is.DiffersSignificantly(was)
}
