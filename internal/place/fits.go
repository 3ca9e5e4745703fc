package place

import (
	"atoll.dev/atoll/internal/schedule"
)

// fits tells how many replicas of the workloads a cluster has room for beside what it
// promised to others, what it runs of them included; not where nobody knows its room.
func (x *rooms) fits(cluster string, workloads []schedule.Workload, assigned map[string]int64) (replicas int64, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[cluster]
	if m == nil {
		return 0, false
	}
	left, known := m.room()
	if !known {
		return 0, false
	}
	for _, p := range m.promises {
		left = schedule.Take(left, p.requests, p.replicas)
	}
	return schedule.FitAll(left, workloads, assigned), true
}
