package placer

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/schedule"
)

// recordDrain records whether the cluster is drained. The caller holds the lock, or is the only one that uses the index.
func (x *bundleIndex) recordDrain(c *schedule.Cluster) {
	if schedule.IsDrained(c) {
		x.drained[c.Name] = struct{}{}
	} else {
		delete(x.drained, c.Name)
	}
}

// listDrainedClusters returns the drained clusters by name. Only a decision that leaves a copy in one of them calls it.
func (x *bundleIndex) listDrainedClusters() []schedule.Cluster {
	x.mu.Lock()
	names := slices.Sorted(maps.Keys(x.drained))
	x.mu.Unlock()
	return x.clustersNamed(names)
}
