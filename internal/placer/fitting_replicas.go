package placer

import (
	"atoll.dev/atoll/internal/schedule"
)

// totalFittingReplicas returns how many replicas of the workloads fit in a cluster, with its running
// replicas and without the capacity promised to other rows. It returns false when the free
// capacity is unknown.
func (x *capacityLedger) totalFittingReplicas(cluster string, workloads []schedule.Workload, assigned map[string]int64) (replicas int64, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[cluster]
	if m == nil || !m.isKnown {
		return 0, false
	}
	left := m.reported
	for _, p := range m.promises {
		left = schedule.TakeCapacity(left, p.requests, p.replicas)
	}
	return schedule.CountFittingWorkloads(left, workloads, assigned), true
}
