package placer

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/schedule"
)

// recordUnschedulable records whether the cluster is drained or cordoned. The caller holds the lock, or is the only one that uses the index.
func (x *bundleIndex) recordUnschedulable(c *schedule.Cluster) {
	if schedule.IsUnschedulable(c) {
		x.unschedulable[c.Name] = struct{}{}
	} else {
		delete(x.unschedulable, c.Name)
	}
}

// listUnschedulableClusters returns the drained and cordoned clusters by name. Only a decision that leaves a copy in one of them calls it.
func (x *bundleIndex) listUnschedulableClusters() []schedule.Cluster {
	x.mu.Lock()
	names := slices.Sorted(maps.Keys(x.unschedulable))
	x.mu.Unlock()
	return x.clustersNamed(names)
}
