package place

import (
	"slices"
	"sync"

	"atoll.dev/atoll/internal/schedule"
)

// fleetLoads are the pods that all clusters were assigned, kept beside the order of the
// fleet: a decision that chooses asks for those of each cluster, and asking the table one
// by one cost more than the rest of the decision.
type fleetLoads struct {
	mu      sync.Mutex
	version uint64 // of the fleet; 0: none was asked for
	order   []schedule.Cluster
	pods    []int64
}

// of the fleet of the view, with what others have reserved; nil where the clusters are not
// that fleet, or where loads make no difference.
func (l *fleetLoads) of(v *view, clusters []schedule.Cluster, rows Rows, reserved map[string]int64) []int64 {
	if l == nil || !v.isFleet(clusters) || !v.filter.AsksLoad() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version != v.version {
		l.version, l.order, l.pods = v.version, clusters, make([]int64, len(clusters))
		for i := range clusters {
			l.pods[i] = rows.PodsOf(clusters[i].UID)
		}
	}
	out := slices.Clone(l.pods)
	for name, n := range reserved {
		if i, there := search(l.order, name); there {
			out[i] += n
		}
	}
	return out
}

// changed reads anew what clusters were assigned, which rows that came, changed or went may
// have changed. The table has these changes already, and of two calls the later one reads
// what is newer.
func (l *fleetLoads) changed(names []string, rows Rows) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == 0 {
		return
	}
	for _, name := range names {
		if i, there := search(l.order, name); there {
			l.pods[i] = rows.PodsOf(l.order[i].UID)
		}
	}
}

// isFleet tells whether the clusters are all of the fleet, in its order.
func (v *view) isFleet(clusters []schedule.Cluster) bool {
	return len(clusters) > 0 && len(clusters) == len(v.fleet) && &clusters[0] == &v.fleet[0]
}
