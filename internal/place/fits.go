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
	for i := range workloads {
		w := &workloads[i]
		has := min(max(assigned[w.Key.String()], 0), max(w.Replicas, 0))
		more := min(schedule.Fit(left, w.Requests), w.Replicas-has)
		if replicas += has + more; i < len(workloads)-1 && more > 0 {
			left = schedule.Take(left, w.Requests, more)
		}
	}
	return replicas, true
}
