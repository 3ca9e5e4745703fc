package state

import (
	"maps"
	"slices"
	"sync"
)

// DriftedRows is an index of the rows whose clusters report observed objects that differ or are missing. It
// takes the memory of these rows alone.
type DriftedRows struct {
	mu sync.RWMutex
	// counts are RowStatus.Drifted by Bundle UID and cluster name.
	counts map[string]map[string]int32
}

// newDriftedRows subscribes an index to a table without rows.
func newDriftedRows(rows *RowTable) *DriftedRows {
	d := &DriftedRows{counts: map[string]map[string]int32{}}
	rows.SubscribeTransitions(d.countTransitions)
	return d
}

func (d *DriftedRows) countTransitions(changes []RowTransition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range changes {
		of := d.counts[c.Bundle]
		switch n := c.After.Drifted; {
		case n > 0 && of == nil:
			d.counts[c.Bundle] = map[string]int32{c.Cluster: n}
		case n > 0:
			of[c.Cluster] = n
		case of != nil:
			if delete(of, c.Cluster); len(of) == 0 {
				delete(d.counts, c.Bundle)
			}
		}
	}
}

// ClustersOf returns the clusters of the Bundle's drifted rows, by name.
func (d *DriftedRows) ClustersOf(bundleUID string) []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Sorted(maps.Keys(d.counts[bundleUID]))
}

// Bundles returns the UIDs of the Bundles with drifted rows, sorted.
func (d *DriftedRows) Bundles() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Sorted(maps.Keys(d.counts))
}
