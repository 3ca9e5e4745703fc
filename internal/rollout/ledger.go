package rollout

import (
	"maps"
	"slices"
	"time"
)

// RemovalLedger keeps removals for RemovalWindow, by tenant: removals of one tenant do
// not count for another. Deletes are added up per namespace. Clusters that an edit took out
// of a Bundle are listed per Bundle. The zero value is empty. It is not safe for concurrent
// use.
type RemovalLedger struct {
	deletesByNamespace map[string][]deleteRecord
	removedByBundle    map[string]map[string]time.Time
}

type deleteRecord struct {
	recordedAt time.Time
	rows       int
}

// RecordDeletes records that direct deletes took something out of so many rows of a
// namespace. Cluster-scoped Bundles have the empty namespace. A negative number takes back a
// record of something that did not happen.
func (l *RemovalLedger) RecordDeletes(namespace string, at time.Time, rows int) {
	if rows == 0 {
		return
	}
	if l.deletesByNamespace == nil {
		l.deletesByNamespace = map[string][]deleteRecord{}
	}
	all := l.deletesByNamespace[namespace]
	if n := len(all); n > 0 && all[n-1].recordedAt.Unix() == at.Unix() {
		all[n-1].rows += rows // what goes within a second is one entry
		return
	}
	l.deletesByNamespace[namespace] = append(all, deleteRecord{at, rows})
}

// CountDeletes returns the rows of the namespace within RemovalWindow before now, and drops older
// ones.
func (l *RemovalLedger) CountDeletes(namespace string, now time.Time) int {
	sum, recent := 0, l.deletesByNamespace[namespace][:0]
	for _, e := range l.deletesByNamespace[namespace] {
		if now.Sub(e.recordedAt) < RemovalWindow {
			recent, sum = append(recent, e), sum+e.rows
		}
	}
	if len(recent) == 0 {
		delete(l.deletesByNamespace, namespace)
		return 0
	}
	l.deletesByNamespace[namespace] = recent
	return max(sum, 0)
}

// RecordRemovedClusters records that an edit took clusters out of a Bundle.
func (l *RemovalLedger) RecordRemovedClusters(bundle string, at time.Time, clusters []string) {
	if len(clusters) == 0 {
		return
	}
	if l.removedByBundle == nil {
		l.removedByBundle = map[string]map[string]time.Time{}
	}
	if l.removedByBundle[bundle] == nil {
		l.removedByBundle[bundle] = map[string]time.Time{}
	}
	for _, c := range clusters {
		l.removedByBundle[bundle][c] = at
	}
}

// UndoRemovedClusters takes back a record of something that did not happen.
func (l *RemovalLedger) UndoRemovedClusters(bundle string, clusters []string) {
	for _, c := range clusters {
		delete(l.removedByBundle[bundle], c)
	}
}

// RemovedClusters lists the clusters of the Bundle within RemovalWindow before now, sorted, and
// drops older ones.
func (l *RemovalLedger) RemovedClusters(bundle string, now time.Time) []string {
	maps.DeleteFunc(l.removedByBundle[bundle], func(_ string, at time.Time) bool { return now.Sub(at) >= RemovalWindow })
	if len(l.removedByBundle[bundle]) == 0 {
		delete(l.removedByBundle, bundle)
		return nil
	}
	return slices.Sorted(maps.Keys(l.removedByBundle[bundle]))
}
