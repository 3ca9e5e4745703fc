package schedule

import (
	"cmp"
	"maps"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// Shortage is a workload that lacks places.
type Shortage struct {
	Key atoll.ItemKey
	// Replicas that the workload states, and how many of them have no place.
	Replicas, Unplaced int64
	// Fit is, in words, when the others fit by reported free capacity; empty: it is not known, or something
	// else holds them back.
	Fit string
}

// AssignReplicas divides the replicas of the workloads. held names clusters that keep their
// share although they are to leave, since their removal waits for a confirmation.
//
// Kept and held clusters keep the share that they have and get nothing new; the others
// divide the rest. Kept ones share again only where there is no placed cluster. If no placed
// cluster has a weight, all placed clusters weigh the same. A StatefulSet goes whole to one
// cluster, unless its ordinals are ranged. It stays there as long as that cluster may have
// it, at 0 replicas too: its data is there.
//
// Replicas without a place are listed, and nothing else waits for them. With onShortage:
// PlaceNothing such a workload grows nowhere.
func (d Decision) AssignReplicas(held map[string]bool) ReplicaAssignment {
	if len(d.workloads) == 0 {
		return ReplicaAssignment{}
	}
	s := d.newShareAssigner(held)
	for i := range d.workloads {
		s.assignWorkload(i)
		s.recordStatedCapacityUse(i)
		if i < len(d.workloads)-1 {
			s.consumeFreeCapacity(i)
		}
	}
	slices.Sort(s.assignment.CapacityBlocked)
	s.assignment.CapacityBlocked = slices.Compact(s.assignment.CapacityBlocked)
	return s.assignment
}

// KeepCurrentShares returns the decision in which items, by cluster and key, keep their
// share although overrides set another.
func (d Decision) KeepCurrentShares(items map[string][]string) Decision {
	if len(items) == 0 {
		return d
	}
	handed := maps.Clone(d.overriddenShares)
	for cluster, keys := range items {
		own := maps.Clone(handed[cluster])
		for _, key := range keys {
			if _, sets := own[key]; sets {
				own[key] = max(d.heldRowOrEmpty(cluster).Assigned[key], 0)
			}
		}
		if own != nil {
			handed[cluster] = own
		}
	}
	d.overriddenShares = handed
	return d
}

// heldRowOrEmpty returns the row that a cluster holds; an empty one where it holds none.
func (d Decision) heldRowOrEmpty(cluster string) *atoll.RowSpec {
	if v, ok := d.FindVerdict(cluster); ok && v.holdsRow {
		return v.storedRow
	}
	return &emptyRow
}

var emptyRow atoll.RowSpec // read-only

// DividedWorkloads returns the workloads whose replicas are divided.
func (d Decision) DividedWorkloads() []Workload { return d.workloads }

// shareAssigner is the work on one AssignReplicas. Clusters are numbered by their shares.
type shareAssigner struct {
	Decision
	method DivisionMethod
	// candidates divide; pinned clusters keep what they have, as far as a total reaches, in
	// this order.
	candidates []ShareCandidate
	pinned     []int32
	// idle clusters are placed, and take no part in divisions.
	idle []int32
	// verdicts are the indexes of the clusters' verdicts.
	verdicts []int32
	// remainingCapacity is the free capacity of each cluster, less what this assignment gave
	// away; nil where it is not known. The slice is nil while nothing was given away.
	remainingCapacity []freecapacity.NodeClasses
	// rangeLimits bound the workload in work by its ordinal ranges, by cluster; nil: it has
	// none.
	rangeLimits []int64
	// holdsDisconnected: some candidates get nothing new.
	holdsDisconnected bool
	// statedMax is the maximum that the placement states for each candidate; nil where the maximum is
	// the same for all workloads. capacityLimits is the maximum of the workload in work that
	// each cluster's stated capacity admits, Unbounded where it sets none; nil: no capacity
	// limits it. givenUsage is what was given away of that capacity, by cluster; nil:
	// nothing.
	statedMax      []int64
	capacityLimits []int64
	givenUsage     []ResourceUsage
	assignment     ReplicaAssignment
}

func (d Decision) newShareAssigner(held map[string]bool) *shareAssigner {
	s := &shareAssigner{Decision: d, method: methodOf(d.scheduling)}
	n := d.countHoldersOrHeld(held)
	a := &s.assignment
	a.items, a.clusters, s.verdicts = make([]string, len(d.workloads)), make([]string, 0, n), make([]int32, 0, n)
	for i := range d.workloads {
		a.items[i] = d.workloads[i].Key.String()
	}
	a.replicas = make([]int64, n*len(a.items))
	placed, kept := make([]ShareCandidate, 0, n), []ShareCandidate(nil)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		at := int32(len(a.clusters))
		switch {
		case d.isPinned(v, held):
			s.pinned = append(s.pinned, at)
		case v.Outcome == OutcomePlaced:
			placed = append(placed, newShareCandidate(v, at))
		case v.Outcome == OutcomeKept:
			c := newShareCandidate(v, at)
			c.Weight = max(c.Weight, 1)
			kept = append(kept, c)
		default:
			continue
		}
		s.addShare(i)
	}
	s.splitCandidates(placed, kept)
	for i := 0; i < len(s.candidates) && !s.holdsDisconnected; i++ {
		s.holdsDisconnected = s.getsNothingNew(&s.candidates[i])
	}
	if len(d.statedCapacity) > 0 || s.holdsDisconnected {
		s.statedMax = make([]int64, len(s.candidates))
		for i := range s.candidates {
			s.statedMax[i] = s.candidates[i].Max
		}
	}
	return s
}

func newShareCandidate(v *Verdict, at int32) ShareCandidate {
	return ShareCandidate{
		Cluster: v.Cluster, Weight: v.Weight, Min: v.Bounds.Min, Max: v.Bounds.maxReplicas(),
		FreeCapacity: -1, shareIndex: at, overflowStep: v.OverflowStep,
	}
}

// countHoldersOrHeld counts the clusters that have a share.
func (d *Decision) countHoldersOrHeld(held map[string]bool) (n int) {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.IsHolder() || held[v.Cluster] {
			n++
		}
	}
	return n
}

// currentShare returns how many replicas of the workload a cluster runs, or is to come to.
func (s *shareAssigner) currentShare(at int32, item string) int64 {
	return max(s.rowAt(at).TargetReplicas(item), 0)
}

// replicasAssignedByRow returns how many replicas of the workload a cluster runs.
func (s *shareAssigner) replicasAssignedByRow(at int32, item string) int64 {
	return max(s.rowAt(at).Assigned[item], 0)
}

// freeCapacityAt returns the free capacity of a cluster less what was given away; nil where it is not known.
func (s *shareAssigner) freeCapacityAt(at int32) freecapacity.NodeClasses {
	switch {
	case s.remainingCapacity != nil:
		return s.remainingCapacity[at]
	case s.freeCapacity != nil:
		return s.freeCapacity[s.Verdicts[s.verdicts[at]].capacityIndex]
	}
	return nil
}

// consumeFreeCapacity subtracts what clusters are given of the workload on top of what they
// have.
func (s *shareAssigner) consumeFreeCapacity(item int) {
	if s.freeCapacity == nil {
		return
	}
	if s.remainingCapacity == nil {
		left := make([]freecapacity.NodeClasses, len(s.verdicts))
		for at := range left {
			left[at] = s.freeCapacityAt(int32(at))
		}
		s.remainingCapacity = left
	}
	for i := range s.candidates {
		c := &s.candidates[i]
		free := s.remainingCapacity[c.shareIndex]
		if grown := s.assignment.replicasOf(c.shareIndex, item) - c.Current; free != nil && grown > 0 {
			s.remainingCapacity[c.shareIndex] = TakeCapacity(free, s.workloads[item].Requests, grown)
		}
	}
}

// splitCandidates splits the clusters into candidates, pinned and idle ones. It owns both
// lists from then on.
func (s *shareAssigner) splitCandidates(placed, kept []ShareCandidate) {
	idles := func(c ShareCandidate) bool { return s.method == ByWeight && c.Weight <= 0 }
	for _, c := range placed {
		if idles(c) {
			s.idle = append(s.idle, c.shareIndex)
		}
	}
	switch {
	case len(s.idle) == 0 && len(placed) > 0:
		s.candidates = placed
	case len(s.idle) < len(placed):
		s.candidates = slices.DeleteFunc(placed, idles)
	case len(placed) > 0 && !s.summedWeights:
		for i := range placed {
			placed[i].Weight = 1
		}
		s.candidates, s.idle = placed, nil
	case len(kept) > 0:
		s.candidates, kept = kept, nil
	default:
		kept, s.idle = placed, nil
	}
	for _, c := range kept {
		s.pinned = append(s.pinned, c.shareIndex)
	}
	s.sortByRank(s.pinned)
}

// sortByRank sorts clusters by their rank for this Bundle, which decides between equals.
func (s *shareAssigner) sortByRank(clusters []int32) {
	if len(clusters) < 2 {
		return
	}
	r, ranks := NewClusterRanking(s.tieSeed), make([]uint64, len(s.assignment.clusters))
	for _, at := range clusters {
		ranks[at] = r.RankOf(s.assignment.clusters[at])
	}
	slices.SortFunc(clusters, func(a, b int32) int { return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(a, b)) })
}

func methodOf(r v1alpha1.ReplicaScheduling) DivisionMethod {
	switch p := r.WeightPreference; {
	case r.ReplicaDivisionPreference == v1alpha1.DivideAggregated:
		return Aggregated
	case p != nil && p.DynamicWeight == v1alpha1.WeighAvailableReplicas:
		return ByFreeCapacity
	}
	return ByWeight
}

func (s *shareAssigner) assignWorkload(item int) {
	w, key := &s.workloads[item], s.assignment.itemKey(item)
	if s.keepsDecision {
		if left, isDecided := s.assignAsDecided(item); isDecided {
			if left > 0 {
				s.assignment.Shortages = append(s.assignment.Shortages, Shortage{Key: w.Key, Replicas: max(w.Replicas, 0), Unplaced: left, Fit: suspendedText})
			}
			return
		}
	}
	total := max(w.Replicas, 0)
	s.setCapacityLimits(item)
	looks := s.needsCurrentShares(w)
	whole, ranged := s.divisionOf(item)
	for i := range s.candidates {
		c := &s.candidates[i]
		if looks {
			c.Current = s.currentShare(c.shareIndex, key)
		}
		if s.statedMax != nil {
			c.Max = s.maxShare(c, s.statedMax[i], whole)
		}
		if free := s.freeCapacityAt(c.shareIndex); free != nil {
			c.FreeCapacity = CountFittingReplicas(free, w.Requests)
		}
	}
	var left int64
	switch {
	case whole:
		left = s.assignWhole(item, total)
	case ranged:
		left = s.assignRanged(item)
	default:
		left = s.assignDivided(item)
	}
	if left > 0 {
		s.assignment.Shortages = append(s.assignment.Shortages, Shortage{Key: w.Key, Replicas: total, Unplaced: left, Fit: s.judgeShortage(item)})
	}
}

// judgeShortage returns when one more replica fits in a candidate; empty where free capacity does not count.
func (s *shareAssigner) judgeShortage(item int) string {
	w := &s.workloads[item]
	if s.freeCapacity == nil {
		return ""
	}
	return JudgeShortage(w, func(yield func(string, freecapacity.NodeClasses) bool) {
		for i := range s.candidates {
			c := &s.candidates[i]
			left := s.freeCapacityAt(c.shareIndex)
			if grown := s.assignment.replicasOf(c.shareIndex, item) - c.Current; left != nil && grown > 0 {
				left = TakeCapacity(left, w.Requests, grown)
			}
			if !yield(s.assignment.clusters[c.shareIndex], left) {
				return
			}
		}
	})
}

// divisionOf reports whether a workload goes whole to one cluster, or by ranges of ordinals; neither: it is
// divided.
func (s *shareAssigner) divisionOf(item int) (whole, ranged bool) {
	w := &s.workloads[item]
	if !w.needsOneCluster() || s.isSplitDespiteVolumes(item) {
		return false, false
	}
	ranged = s.scheduling.Ordinals != nil && w.canRangeOrdinals()
	return !ranged, ranged
}

// needsCurrentShares reports whether the division of a workload depends on current shares. One by
// weights alone does not.
func (s *shareAssigner) needsCurrentShares(w *Workload) bool {
	return s.method != ByWeight || s.Overflows || s.holdsDisconnected || s.keepsShares || w.needsOneCluster() || s.scheduling.OnShortage == v1alpha1.PlaceNothing
}

// maxShare returns the maximum of a candidate for the workload in work. A whole workload may grow where
// it is.
func (s *shareAssigner) maxShare(c *ShareCandidate, stated int64, whole bool) int64 {
	most := s.limitByCapacity(c.shareIndex, stated)
	if !whole && s.getsNothingNew(c) {
		return min(most, c.Current)
	}
	return most
}

func (s *shareAssigner) getsNothingNew(c *ShareCandidate) bool {
	return s.Verdicts[s.verdicts[c.shareIndex]].GetsNothingNew
}

func (s *shareAssigner) assignDivided(item int) (left int64) {
	rest := s.pinCurrentShares(item, max(s.workloads[item].Replicas, 0))
	free, rest := s.applyOverriddenShares(item, rest)
	if s.Overflows && s.workloads[item].needsOneCluster() {
		free = withoutOverflow(free)
	}
	dividing := s.clearSharesDividedFromScratch(item, free)
	if s.keepsShares {
		dividing = withCurrentMinimum(dividing, rest)
	}
	shares, left := divideBySteps(rest, dividing, s.method, s.tieSeed)
	if left > 0 && s.scheduling.OnShortage == v1alpha1.PlaceNothing {
		shares, left = s.divideAsBefore(free, rest)
	}
	for i, n := range shares {
		s.assignment.setReplicas(free[i].shareIndex, item, n)
	}
	return left
}

// isSplitDespiteVolumes reports whether clusters run parts of a workload that its volumes
// make undividable, and none of them is its home. It was divided before it had volumes, or before
// the hub could read them. The parts stay where the volumes are.
func (s *shareAssigner) isSplitDespiteVolumes(item int) bool {
	if !s.workloads[item].OwnVolumes {
		return false
	}
	key, parts := s.assignment.itemKey(item), 0
	for at := range int32(len(s.verdicts)) {
		if slices.Contains(s.rowAt(at).HomeItems, key) {
			return false
		}
		if s.replicasAssignedByRow(at, key) > 0 {
			parts++
		}
	}
	return parts > 1
}

// applyOverriddenShares sets the shares that overrides state, as far as ordinal ranges and
// stated capacity allow. It returns the other candidates and the rest for them.
func (s *shareAssigner) applyOverriddenShares(item int, total int64) (free []ShareCandidate, rest int64) {
	if len(s.overriddenShares) == 0 {
		return s.candidates, total
	}
	key := s.assignment.itemKey(item)
	hands := func(at int32) bool {
		n, ok := s.overriddenShares[s.assignment.clusters[at]][key]
		if !ok {
			return false
		}
		if s.rangeLimits != nil {
			n = min(n, s.rangeLimits[at])
		}
		n = s.limitByCapacity(at, n)
		s.assignment.setReplicas(at, item, n)
		total -= min(n, total)
		return true
	}
	for _, c := range s.candidates {
		if !hands(c.shareIndex) {
			free = append(free, c)
		}
	}
	for _, at := range s.idle {
		hands(at)
	}
	return free, total
}

// pinCurrentShares leaves pinned clusters what they have, and returns the rest of the total.
func (s *shareAssigner) pinCurrentShares(item int, total int64) (rest int64) {
	key := s.assignment.itemKey(item)
	for _, at := range s.pinned {
		n := min(s.currentShare(at, key), total)
		s.assignment.setReplicas(at, item, n)
		total -= n
	}
	return total
}

// divideAsBefore leaves every candidate what it has, as far as the total reaches.
func (s *shareAssigner) divideAsBefore(free []ShareCandidate, total int64) (shares []int64, left int64) {
	candidates := slices.Clone(free)
	for i := range candidates {
		candidates[i].Max, candidates[i].FreeCapacity = min(candidates[i].Max, candidates[i].Current), 0
	}
	return DivideReplicas(total, candidates, ByFreeCapacity, s.tieSeed)
}

// assignWhole assigns all replicas to one cluster, as far as its bounds allow.
func (s *shareAssigner) assignWhole(item int, total int64) (left int64) {
	key := s.assignment.itemKey(item)
	home, most := s.findHomeCluster(key, total)
	if home < 0 {
		return total
	}
	row := s.rowAt(home)
	if n, ok := s.overriddenShares[s.assignment.clusters[home]][key]; ok {
		total, most = n, n
	}
	n := min(total, s.limitByCapacity(home, most))
	if n < total && s.scheduling.OnShortage == v1alpha1.PlaceNothing {
		n = min(n, max(row.Assigned[key], 0))
	}
	s.assignment.setReplicas(home, item, n)
	s.assignment.addHome(home, key)
	if start, ranged := row.OrdinalStarts[key]; ranged {
		// It was ranged before: its pods keep their names.
		s.assignment.setOrdinalRangeStart(home, item, start)
	}
	return total - n
}

// findHomeCluster returns the cluster of an undivided workload, and the most that it may have
// there. It is the current home, else the best candidate among those that may have most of
// it; negative: there is none. A cluster whose override sets 0 is no new home.
func (s *shareAssigner) findHomeCluster(key string, total int64) (at int32, most int64) {
	for _, c := range s.candidates {
		if slices.Contains(s.rowAt(c.shareIndex).HomeItems, key) {
			return c.shareIndex, s.maxReplicasOf(c)
		}
	}
	for _, at := range s.pinned {
		if slices.Contains(s.rowAt(at).HomeItems, key) {
			return at, Unbounded
		}
	}
	able := slices.DeleteFunc(withoutOverflow(s.candidates), func(c ShareCandidate) bool {
		n, handed := s.overriddenShares[c.Cluster][key]
		return handed && n == 0
	})
	if slices.ContainsFunc(able, func(c ShareCandidate) bool { return !s.getsNothingNew(&c) }) {
		able = slices.DeleteFunc(able, func(c ShareCandidate) bool { return s.getsNothingNew(&c) })
	}
	for _, c := range able {
		most = max(most, min(total, s.maxReplicasOf(c)))
	}
	able = slices.DeleteFunc(able, func(c ShareCandidate) bool { return s.maxReplicasOf(c) < most })
	for i := range able {
		able[i].Min, able[i].Max = 0, Unbounded
	}
	shares, _ := DivideReplicas(1, able, s.method, s.tieSeed)
	for i, n := range shares {
		if n == 1 {
			return able[i].shareIndex, most
		}
	}
	return -1, 0
}

// maxReplicasOf is the most that a candidate can come to.
func (s *shareAssigner) maxReplicasOf(c ShareCandidate) int64 {
	if s.method == ByWeight || c.FreeCapacity < 0 || c.FreeCapacity > Unbounded-c.Current {
		return c.Max
	}
	return min(c.Max, c.Current+c.FreeCapacity)
}
