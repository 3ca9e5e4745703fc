package placer

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/schedule"
)

// totalFittingReplicas returns how many replicas of the workloads fit in a cluster, with its running
// replicas and without the capacity promised to other rows. It returns false when the free
// capacity is unknown.
func (x *capacityLedger) totalFittingReplicas(cluster string, workloads []schedule.Workload, assigned map[string]int64) (replicas int64, known bool) {
	left, known := x.unpromisedCapacity(cluster)
	if !known {
		return 0, false
	}
	return schedule.CountFittingWorkloads(left, workloads, assigned), true
}

// judgeFitOf returns the answers whether undivided pods fit in a cluster, without the capacity promised to other
// rows; nil where there are no pods.
func (x *capacityLedger) judgeFitOf(undivided []schedule.PodDemand) func(c *schedule.Cluster, explain bool) schedule.PodFit {
	if len(undivided) == 0 {
		return nil
	}
	return func(c *schedule.Cluster, explain bool) schedule.PodFit {
		left, known := x.unpromisedCapacity(c.Name)
		if !known {
			return schedule.PodFit{}
		}
		return schedule.JudgePodFit(left, undivided, explain)
	}
}

// ExplainShortage returns in words when one more replica of a workload fits in a cluster that has a row of the Bundle;
// empty: it is not known, or one fits now.
func (r *PlacementReconciler) ExplainShortage(bundleUID string, w *schedule.Workload) string {
	return schedule.JudgeShortage(w, func(yield func(string, freecapacity.NodeClasses) bool) {
		for _, row := range r.Rows.ListOfBundle(bundleUID) {
			if row.Spec.Phase != atoll.RowActive {
				continue
			}
			left, known := r.capacity.unpromisedCapacity(row.Cluster)
			if known && left == nil {
				left = freecapacity.NodeClasses{}
			}
			if !yield(row.Cluster, left) {
				return
			}
		}
	})
}

// unpromisedCapacity returns the reported free capacity of a cluster without what was promised to rows; known is
// false when there is no report.
func (x *capacityLedger) unpromisedCapacity(cluster string) (left freecapacity.NodeClasses, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[cluster]
	if m == nil || !m.isKnown {
		return nil, false
	}
	m.updateFreeCapacity()
	return m.freeCapacity, true
}
