package placer

import (
	"slices"
	"sync"

	"atoll.dev/atoll/internal/schedule"
)

// fleetLoads holds the pods assigned to every cluster, in the order of the fleet. A decision needs
// all of them, and reading each from the table cost more than the rest of the decision.
type fleetLoads struct {
	mu      sync.Mutex
	version uint64 // of the fleet; 0: none was read
	order   []schedule.Cluster
	pods    []int64
}

// loadsOf returns the loads of the view's fleet plus reserved pods; nil when the clusters are
// not that fleet, or when loads do not matter.
func (l *fleetLoads) loadsOf(v *bundleView, clusters []schedule.Cluster, rows Rows, reserved map[string]int64) []int64 {
	if l == nil || !v.isFleet(clusters) || !v.filter.NeedsPodLoad() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version != v.fleetVersion {
		l.version, l.order, l.pods = v.fleetVersion, clusters, make([]int64, len(clusters))
		for i := range clusters {
			l.pods[i] = rows.RequestedPodsOf(clusters[i].UID)
		}
	}
	out := slices.Clone(l.pods)
	for name, n := range reserved {
		if i, there := findCluster(l.order, name); there {
			out[i] += n
		}
	}
	return out
}

// updateLoads reads the loads of clusters whose rows changed. The table has the changes already,
// and a later call reads newer values.
func (l *fleetLoads) updateLoads(names []string, rows Rows) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == 0 {
		return
	}
	for _, name := range names {
		if i, there := findCluster(l.order, name); there {
			l.pods[i] = rows.RequestedPodsOf(l.order[i].UID)
		}
	}
}

// isFleet reports whether the clusters are the whole fleet, in its order.
func (v *bundleView) isFleet(clusters []schedule.Cluster) bool {
	return len(clusters) > 0 && len(clusters) == len(v.fleet) && &clusters[0] == &v.fleet[0]
}
