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
	// bundles counts the Bundles with drifted rows by cluster name.
	bundles map[string]int
	// The subscribers are notified of clusters with another number of such Bundles.
	notifier[string]
}

// newDriftedRows subscribes an index to a table without rows.
func newDriftedRows(rows *RowTable) *DriftedRows {
	d := &DriftedRows{counts: map[string]map[string]int32{}, bundles: map[string]int{}}
	rows.SubscribeTransitions(d.countTransitions)
	return d
}

func (d *DriftedRows) countTransitions(changes []RowTransition) {
	var changed []string
	runLocked(&d.mu, func() {
		for _, c := range changes {
			if d.setCount(c.Bundle, c.Cluster, c.After.Drifted) {
				changed = append(changed, c.Cluster)
			}
		}
	})
	d.notifyEach(changed)
}

// setCount stores the count of a row, and reports whether the cluster has another number of Bundles with drifted rows. d.mu is
// held.
func (d *DriftedRows) setCount(bundle, cluster string, n int32) bool {
	of := d.counts[bundle]
	_, had := of[cluster]
	switch {
	case n > 0 && of == nil:
		d.counts[bundle] = map[string]int32{cluster: n}
	case n > 0:
		of[cluster] = n
	case had:
		if delete(of, cluster); len(of) == 0 {
			delete(d.counts, bundle)
		}
	}
	switch {
	case n > 0 && !had:
		d.bundles[cluster]++
	case n <= 0 && had:
		if d.bundles[cluster]--; d.bundles[cluster] == 0 {
			delete(d.bundles, cluster)
		}
	default:
		return false
	}
	return true
}

// CountOfCluster returns the number of Bundles with a drifted row of the cluster.
func (d *DriftedRows) CountOfCluster(cluster string) int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.bundles[cluster]
}

// Subscribe subscribes to clusters with another number of Bundles with drifted rows.
func (d *DriftedRows) Subscribe(fn func(cluster string)) { d.addSubscriber(fn) }

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
