package placer

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// maxCrowded is how many clusters are recorded per Bundle.
const (
	maxCrowded = 64
	anyCluster = ""
)

// capacityFreed touches the cluster in the Bundles that wait for its capacity.
func (r *PlacementReconciler) capacityFreed(cluster string) {
	u := r.usage
	u.mu.Lock()
	u.freedCounts[cluster]++
	waiting := slices.Concat(slices.Collect(maps.Keys(u.waitingBundles[cluster])), slices.Collect(maps.Keys(u.waitingBundles[anyCluster])))
	u.mu.Unlock()
	for _, uid := range waiting {
		if r.index.mayBePlacedOn(uid, cluster) {
			r.touchBundle(uid, cluster)
			continue
		}
		if _, has := r.Rows.Get(uid, cluster); has {
			r.touchBundle(uid, cluster)
		}
	}
}

// mayBePlacedOn reports whether a Bundle may be placed on the cluster, apart from capacity.
func (x *bundleIndex) mayBePlacedOn(uid, cluster string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, c := x.entries[uid], x.knownClusters[cluster]
	return e != nil && e.filter != nil && e.filter.AdmitsCluster(&c)
}

// recordCapacityWaits records for which clusters' capacity the Bundle waits, of all clusters or of
// only. A cluster whose capacity came free after the refusal is touched again.
func (r *PlacementReconciler) recordCapacityWaits(s *stepInput, out rollout.Output, only map[string]bool) {
	u, uid := r.usage, s.bundle.Ref.UID
	crowded := slices.Concat(s.rollout.Decision.CapacityBlocked, out.CapacityBlocked)
	slices.Sort(crowded)
	crowded = slices.Compact(crowded)
	if s.rollout.Deleting {
		crowded, only = nil, nil
	}
	var again []string
	u.mu.Lock()
	for _, c := range crowded {
		if a, asked := s.demand.answers[c]; asked && a.freedCount != u.freedCounts[c] {
			again = append(again, c)
		}
	}
	// A revision that came too late for some clusters leaves these to be checked.
	missed := only != nil && slices.ContainsFunc(u.crowdedClusters[uid], func(c string) bool { return !only[c] })
	if u.setCrowdedClusters(uid, crowded, only); len(u.crowdedClusters[uid]) > 0 && !missed {
		u.refusedRevisions[uid] = s.rollout.Revision
	}
	u.mu.Unlock()
	for _, c := range again {
		r.touchBundle(uid, c)
	}
}

// touchRefusedClusters touches the clusters that had no capacity for another revision than the latest,
// which may need less.
func (r *PlacementReconciler) touchRefusedClusters(uid string) {
	latest, ok := r.Revisions.LatestOfBundle(uid)
	if !ok {
		return
	}
	u := r.usage
	u.mu.Lock()
	var again []string
	if u.refusedRevisions[uid] != latest.Name {
		again = u.crowdedClusters[uid]
	}
	u.mu.Unlock()
	for _, c := range again {
		if c == anyCluster {
			r.index.requireWholeFleet(uid)
		} else {
			r.index.touchCluster(uid, c)
		}
	}
}

// clustersCoveredByCapacityCheck returns the clusters on which a step decides about capacity; nil: all.
func (v *bundleView) clustersCoveredByCapacityCheck(rows []state.Row) map[string]bool {
	if !v.isComplete && v.reserve == nil {
		return nil
	}
	out := make(map[string]bool, len(v.touchedClusters)+len(v.reserve)+len(rows))
	maps.Copy(out, v.touchedClusters)
	for _, c := range v.reserve {
		out[c] = true
	}
	for i := range rows {
		out[rows[i].Cluster] = true
	}
	return out
}

// setCrowdedClusters replaces the crowded clusters of a Bundle. The caller holds the lock.
func (u *capacityUsage) setCrowdedClusters(uid string, crowded []string, only map[string]bool) {
	was := u.crowdedClusters[uid]
	if len(was)+len(crowded) == 0 {
		return
	}
	for _, c := range was {
		if only != nil && !only[c] {
			crowded = append(crowded, c)
		}
		if delete(u.waitingBundles[c], uid); len(u.waitingBundles[c]) == 0 {
			delete(u.waitingBundles, c)
		}
	}
	if len(crowded) > maxCrowded || slices.Contains(crowded, anyCluster) {
		crowded = []string{anyCluster}
	}
	if u.crowdedClusters[uid] = crowded; len(crowded) == 0 {
		delete(u.crowdedClusters, uid)
		delete(u.refusedRevisions, uid)
	}
	for _, c := range crowded {
		if u.waitingBundles[c] == nil {
			u.waitingBundles[c] = map[string]bool{}
		}
		u.waitingBundles[c][uid] = true
	}
}

// clearCrowdedClusters drops a deleted Bundle.
func (u *capacityUsage) clearCrowdedClusters(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setCrowdedClusters(uid, nil, nil)
}

// capacityChanged handles a cluster that states another capacity. Running steps may have used
// the old one, and waiting Bundles may fit now.
func (r *PlacementReconciler) capacityChanged(was, is schedule.Cluster) {
	if len(was.Capacity) > 0 && !slices.Equal(was.Capacity, is.Capacity) {
		r.touchBundles(r.index.bundlesStepping(), is.Name)
		r.capacityFreed(is.Name)
	}
	if was.UID != is.UID || len(is.Capacity) == 0 {
		r.usage.removeMember(is.Name, was.UID)
	}
}
