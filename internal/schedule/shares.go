package schedule

import (
	"iter"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// ClusterShare is the replicas of one cluster.
type ClusterShare struct {
	Cluster string
	// Items are the keys of the workloads, the same for all clusters. Replicas is the
	// cluster's number for each.
	Items    []string
	Replicas []int64
	// Home lists undivided items whose only place is this cluster, also at 0 replicas.
	// Sorted.
	Home []string
	// FromScratch: the share was divided from scratch. The next division starts from its
	// target, not from what the row has so far.
	FromScratch bool
	// rangeStarts of the ordinals of each item, noRangeStart where it has none; nil: no item
	// has.
	rangeStarts []int64
}

const noRangeStart = -1

// AssignedReplicas returns replicas by item key; nil without workloads.
func (s ClusterShare) AssignedReplicas() map[string]int64 {
	if len(s.Items) == 0 {
		return nil
	}
	out := make(map[string]int64, len(s.Items))
	for i, item := range s.Items {
		out[item] = s.Replicas[i]
	}
	return out
}

// OrdinalStarts returns, by item key, where the ordinal ranges of StatefulSets begin; nil:
// no range begins here.
func (s ClusterShare) OrdinalStarts() (out map[string]int64) {
	for i, start := range s.rangeStarts {
		if start != noRangeStart {
			if out == nil {
				out = map[string]int64{}
			}
			out[s.Items[i]] = start
		}
	}
	return out
}

// ReplicaAssignment is the shares of all workloads. Every placed, kept and held cluster of the
// decision has a share, with 0 where it gets nothing. Without workloads there are none.
type ReplicaAssignment struct {
	// Shortages lists workloads of which not all replicas have a place, by key.
	Shortages []Shortage
	// CapacityBlocked names clusters whose stated capacity kept them from a larger share. Sorted.
	CapacityBlocked []string
	// The shares are columns: a struct for each of 10,000 clusters would be five times the memory.
	// clusters are their names, sorted; all other columns are by index in it.
	clusters []string
	items    []string
	// replicas and rangeStarts, by cluster and in it by item. rangeStarts is nil where no item has
	// ranges.
	replicas, rangeStarts []int64
	// homes are the Home of the clusters that have one, fromScratch the clusters that were divided from scratch.
	homes       map[int32][]string
	fromScratch map[int32]bool
}

// CountShares returns how many clusters have a share.
func (a *ReplicaAssignment) CountShares() int { return len(a.clusters) }

// Shares returns the shares by cluster name, sorted.
func (a ReplicaAssignment) Shares() iter.Seq[ClusterShare] {
	return func(yield func(ClusterShare) bool) {
		for at := range a.clusters {
			if !yield(a.shareAt(at)) {
				return
			}
		}
	}
}

// ShareOf returns the share of a cluster; an empty one for a cluster that has none.
func (a *ReplicaAssignment) ShareOf(cluster string) ClusterShare {
	at, ok := a.findShare(cluster)
	if !ok {
		return ClusterShare{Cluster: cluster}
	}
	return a.shareAt(at)
}

// findShare returns the index of a cluster's share; not ok: it has none.
func (a *ReplicaAssignment) findShare(cluster string) (at int, ok bool) {
	return slices.BinarySearch(a.clusters, cluster)
}

// shareAt returns the share of an index. Its lists are parts of the columns, and read-only.
func (a *ReplicaAssignment) shareAt(at int) ClusterShare {
	s := ClusterShare{
		Cluster: a.clusters[at], Items: a.items, Replicas: a.itemsOf(a.replicas, at),
		Home: a.homes[int32(at)], FromScratch: a.fromScratch[int32(at)],
	}
	if a.rangeStarts != nil {
		s.rangeStarts = a.itemsOf(a.rangeStarts, at)
	}
	return s
}

// itemsOf returns the part of a column that one cluster has.
func (a *ReplicaAssignment) itemsOf(column []int64, at int) []int64 {
	n := len(a.items)
	return column[at*n : (at+1)*n : (at+1)*n]
}

// itemKey returns the key of a workload; empty where no cluster has a share.
func (a *ReplicaAssignment) itemKey(item int) string {
	if len(a.clusters) == 0 {
		return ""
	}
	return a.items[item]
}

func (a *ReplicaAssignment) replicasOf(at int32, item int) int64 {
	return a.replicas[int(at)*len(a.items)+item]
}

func (a *ReplicaAssignment) setReplicas(at int32, item int, n int64) {
	a.replicas[int(at)*len(a.items)+item] = n
}

// setOrdinalRangeStart sets where the ordinals of a workload begin in a cluster.
func (a *ReplicaAssignment) setOrdinalRangeStart(at int32, item int, start int64) {
	if a.rangeStarts == nil {
		a.rangeStarts = slices.Repeat([]int64{noRangeStart}, len(a.replicas))
	}
	a.rangeStarts[int(at)*len(a.items)+item] = start
}

// addHome records that the only place of an item is the cluster.
func (a *ReplicaAssignment) addHome(at int32, key string) {
	if a.homes == nil {
		a.homes = map[int32][]string{}
	}
	i, _ := slices.BinarySearch(a.homes[at], key)
	a.homes[at] = slices.Insert(a.homes[at], i, key)
}

// addShare adds an empty share for the cluster of a verdict.
func (s *shareAssigner) addShare(verdict int) {
	v, a := &s.Verdicts[verdict], &s.assignment
	if v.FromScratch && v.Outcome == OutcomePlaced && s.method != ByWeight {
		if a.fromScratch == nil {
			a.fromScratch = map[int32]bool{}
		}
		a.fromScratch[int32(len(a.clusters))] = true
	}
	a.clusters, s.verdicts = append(a.clusters, v.Cluster), append(s.verdicts, int32(verdict))
}

// rowAt returns the row that a cluster with a share holds; an empty one where it holds none.
func (s *shareAssigner) rowAt(at int32) *atoll.RowSpec {
	if v := &s.Verdicts[s.verdicts[at]]; v.holdsRow {
		return v.storedRow
	}
	return &emptyRow
}
