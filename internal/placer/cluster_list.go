package placer

import (
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/schedule"
)

// clusterList holds all clusters by name. It is sorted at the next read, which visits all
// clusters anyway.
type clusterList struct {
	sorted  []schedule.Cluster // shared with readers; never changed
	changed map[string]struct{}
	// version counts the changes of sorted.
	version uint64
}

// markChanged records that a cluster came, changed or went.
func (f *clusterList) markChanged(name string) {
	if f.changed == nil {
		f.changed = map[string]struct{}{}
	}
	f.changed[name] = struct{}{}
}

// findCluster finds a cluster in a list that is sorted by name.
func findCluster(order []schedule.Cluster, name string) (at int, there bool) {
	return slices.BinarySearchFunc(order, name, func(c schedule.Cluster, name string) int { return strings.Compare(c.Name, name) })
}

// listAll returns the known clusters by name. The caller must not change the slice.
func (f *clusterList) listAll(known map[string]schedule.Cluster) []schedule.Cluster {
	if len(f.changed) == 0 {
		return f.sorted
	}
	next, old := make([]schedule.Cluster, 0, len(known)), f.sorted
	for _, name := range slices.Sorted(maps.Keys(f.changed)) {
		i, has := findCluster(old, name)
		if next, old = append(next, old[:i]...), old[i:]; has {
			old = old[1:]
		}
		if c, ok := known[name]; ok {
			next = append(next, c)
		}
	}
	f.sorted, f.changed = append(next, old...), nil
	f.version++
	return f.sorted
}
