package schedule

import (
	"cmp"
	"maps"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Share is what one cluster runs of the workloads.
type Share struct {
	// Replicas by item key.
	Replicas map[string]int64
	// Home lists items that are not divided and whose one place this cluster is,
	// also while they have 0 replicas. Sorted.
	Home []string
	// Ordinals are where the ranges of StatefulSets begin, by item key, for those whose
	// ordinals are ranged.
	Ordinals map[string]int64
	// Anew: it was divided from scratch, and the next division leaves it what it is to
	// come to, not what it has meanwhile.
	Anew bool
}

// Assignment of all workloads.
type Assignment struct {
	// Shares by cluster name. Nil without workloads; otherwise every Placed, Kept and
	// held cluster of the decision has one, with 0 where it gets nothing.
	Shares map[string]Share
	// Short lists workloads of which not all replicas have a place, by key.
	Short []Shortage
	// Crowded names clusters whose stated capacity kept them from a larger share. Sorted.
	Crowded []string
}

// Shortage of places for a workload.
type Shortage struct {
	Key atoll.ItemKey
	// Replicas that the workload states, and those of them that have no place.
	Replicas, Unplaced int64
}

// Assign shares out the workloads. held names clusters that keep what they run
// although they are to leave, since their removal waits for a confirmation.
//
// Kept and held clusters keep the share that they have, nothing new goes there;
// the others divide the rest. Only where no placed cluster has a weight
// do Kept ones share again, and where there are none either everybody keeps what
// they have. A StatefulSet goes whole to one cluster, unless its ordinals are ranged, and
// stays there as long as that cluster may have it, at 0 replicas too: its data is there.
//
// What has no place is listed, and nothing else waits for it, unless the placement
// says onShortage: PlaceNothing: then such a workload grows nowhere.
func (d Decision) Assign(held map[string]bool) Assignment {
	if len(d.workloads) == 0 {
		return Assignment{}
	}
	s := d.sharing(held)
	for i, w := range d.workloads {
		s.assign(w)
		s.spend(&w)
		if i < len(d.workloads)-1 {
			s.use(w)
		}
	}
	slices.Sort(s.out.Crowded)
	s.out.Crowded = slices.Compact(s.out.Crowded)
	return s.out
}

// Keeping is the decision where items, by cluster and key, keep the share that they have
// although overrides set another.
func (d Decision) Keeping(items map[string][]string) Decision {
	handed := maps.Clone(d.handed)
	for cluster, keys := range items {
		own := maps.Clone(handed[cluster])
		for _, key := range keys {
			if _, sets := own[key]; sets {
				own[key] = max(d.rows[cluster].Assigned[key], 0)
			}
		}
		if own != nil {
			handed[cluster] = own
		}
	}
	d.handed = handed
	return d
}

// Workloads that are shared out.
func (d Decision) Workloads() []Workload { return d.workloads }

// sharing is the work on one Assign.
type sharing struct {
	Decision
	how Method
	// free clusters divide; pinned ones keep what they have, as far as a total reaches,
	// in this order.
	free   []Claim
	pinned []string
	// idle clusters are placed, and have no part in divisions.
	idle []string
	// left is the room that clusters have, as far as it is known and matters, less what
	// this Assign gives away.
	left map[string]atoll.Room
	// reach of the ranges of the workload at hand, by cluster; nil: it has none.
	reach map[string]int64
	// anew are clusters whose share is divided from scratch; nil: none.
	anew map[string]bool
	// most that placements state of each of the free clusters. limits is the most of the
	// workload at hand that a cluster's stated capacity admits, where it bounds that; own
	// is what was given away of that capacity, by cluster.
	most   []int64
	limits map[string]int64
	own    map[string]Use
	out    Assignment
}

func (d Decision) sharing(held map[string]bool) *sharing {
	s := &sharing{Decision: d, how: methodOf(d.scheduling)}
	s.out.Shares = make(map[string]Share, len(d.Verdicts))
	var placed, kept []Claim
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		c := Claim{Cluster: v.Cluster, Weight: v.Weight, Min: v.Bounds.Min, Max: v.Bounds.most(), Room: -1}
		switch {
		case v.Outcome == Placed:
			placed = append(placed, c)
		case held[v.Cluster]:
			s.pinned = append(s.pinned, v.Cluster)
		case v.Outcome == Kept:
			c.Weight = max(c.Weight, 1)
			kept = append(kept, c)
		default:
			continue
		}
		anew := v.Anew && v.Outcome == Placed && s.how != ByWeight
		if anew && s.anew == nil {
			s.anew = map[string]bool{}
		}
		if anew {
			s.anew[v.Cluster] = true
		}
		s.out.Shares[v.Cluster] = Share{Replicas: make(map[string]int64, len(d.workloads)), Anew: anew}
	}
	s.divideAmong(placed, kept)
	for i := range s.free {
		s.most = append(s.most, s.free[i].Max)
	}
	if s.how != ByWeight {
		if s.left = d.room; len(d.workloads) > 1 {
			s.left = maps.Clone(d.room)
		}
	}
	return s
}

// use the room of what clusters are given of the workload on top of what they have.
func (s *sharing) use(w Workload) {
	for i := range s.free {
		c := &s.free[i]
		room, known := s.left[c.Cluster]
		if grown := s.out.Shares[c.Cluster].Replicas[w.Key.String()] - c.Has; known && grown > 0 {
			s.left[c.Cluster] = Take(room, w.Requests, grown)
		}
	}
}

// divideAmong sorts the clusters into those that divide, those that keep what they
// have and those that get nothing.
func (s *sharing) divideAmong(placed, kept []Claim) {
	for _, c := range placed {
		if s.how == ByWeight && c.Weight <= 0 {
			s.idle = append(s.idle, c.Cluster)
		} else {
			s.free = append(s.free, c)
		}
	}
	switch {
	case len(s.free) > 0:
	case len(kept) > 0:
		s.free, kept = kept, nil
	default:
		kept, s.idle = placed, nil
	}
	for _, c := range kept {
		s.pinned = append(s.pinned, c.Cluster)
	}
	slices.SortFunc(s.pinned, s.byRank)
}

func (s *sharing) byRank(a, b string) int {
	return cmp.Or(cmp.Compare(rank(s.seed, a), rank(s.seed, b)), cmp.Compare(a, b))
}

func methodOf(r v1alpha1.ReplicaScheduling) Method {
	switch p := r.WeightPreference; {
	case r.ReplicaDivisionPreference == v1alpha1.DivideAggregated:
		return Aggregated
	case p != nil && p.DynamicWeight == v1alpha1.WeighAvailableReplicas:
		return ByRoom
	}
	return ByWeight
}

func (s *sharing) assign(w Workload) {
	key, total := w.Key.String(), max(w.Replicas, 0)
	s.limit(&w)
	for i := range s.free {
		c := &s.free[i]
		c.Has, c.Max = max(s.rows[c.Cluster].Share(key), 0), s.within(c.Cluster, s.most[i])
		if room, known := s.left[c.Cluster]; known {
			c.Room = Fit(room, w.Requests)
		}
	}
	var left int64
	switch {
	case !w.stateful():
		left = s.assignDivided(w)
	case s.scheduling.Ordinals != nil:
		left = s.assignRanged(w)
	default:
		left = s.assignWhole(key, total)
	}
	if left > 0 {
		s.out.Short = append(s.out.Short, Shortage{Key: w.Key, Replicas: total, Unplaced: left})
	}
}

func (s *sharing) assignDivided(w Workload) (left int64) {
	key := w.Key.String()
	rest := s.pin(key, max(w.Replicas, 0))
	for _, cluster := range s.idle {
		s.out.Shares[cluster].Replicas[key] = 0
	}
	free, rest := s.hand(key, rest)
	shares, left := Divide(rest, s.fromScratch(w, free), s.how, s.seed)
	if left > 0 && s.scheduling.OnShortage == v1alpha1.PlaceNothing {
		shares, left = s.asBefore(free, rest)
	}
	for i, n := range shares {
		s.out.Shares[free[i].Cluster].Replicas[key] = n
	}
	return left
}

// hand clusters the shares that overrides set, as far as ranges of ordinals and stated
// capacity reach, and give who is left to divide what is left.
func (s *sharing) hand(key string, total int64) (free []Claim, rest int64) {
	if len(s.handed) == 0 {
		return s.free, total
	}
	give := func(cluster string) bool {
		n, ok := s.handed[cluster][key]
		if !ok {
			return false
		}
		if most, ranged := s.reach[cluster]; ranged {
			n = min(n, most)
		}
		n = s.within(cluster, n)
		s.out.Shares[cluster].Replicas[key] = n
		total -= min(n, total)
		return true
	}
	for _, c := range s.free {
		if !give(c.Cluster) {
			free = append(free, c)
		}
	}
	for _, cluster := range s.idle {
		give(cluster)
	}
	return free, total
}

// pin gives pinned clusters what they have, and tells what that leaves of the total.
func (s *sharing) pin(key string, total int64) (rest int64) {
	for _, cluster := range s.pinned {
		n := min(max(s.rows[cluster].Share(key), 0), total)
		s.out.Shares[cluster].Replicas[key] = n
		total -= n
	}
	return total
}

// asBefore leaves every free cluster what it has, as far as the total reaches.
func (s *sharing) asBefore(free []Claim, total int64) (shares []int64, left int64) {
	claims := slices.Clone(free)
	for i := range claims {
		claims[i].Max, claims[i].Room = min(claims[i].Max, claims[i].Has), 0
	}
	return Divide(total, claims, ByRoom, s.seed)
}

// assignWhole gives all to one cluster, as far as its bounds allow.
func (s *sharing) assignWhole(key string, total int64) (left int64) {
	home, most := s.home(key, total)
	if n, ok := s.handed[home][key]; ok {
		total, most = n, n
	}
	n := min(total, s.within(home, most))
	if n < total && s.scheduling.OnShortage == v1alpha1.PlaceNothing {
		n = min(n, max(s.rows[home].Assigned[key], 0))
	}
	for cluster, share := range s.out.Shares {
		share.Replicas[key] = 0
		if cluster == home {
			share.Replicas[key] = n
			share.Home = append(share.Home, key)
			slices.Sort(share.Home)
			if start, ranged := s.rows[home].Ordinals[key]; ranged {
				// It was ranged before: its pods keep their names.
				share.Ordinals = map[string]int64{key: start}
			}
			s.out.Shares[cluster] = share
		}
	}
	return total - n
}

// home of a workload that is not divided, and what it may have there: where it is at
// home, else, of those that may have most of it, who has the largest claim. Nowhere new
// where overrides would have none of it.
func (s *sharing) home(key string, total int64) (cluster string, most int64) {
	for _, c := range s.free {
		if slices.Contains(s.rows[c.Cluster].Home, key) {
			return c.Cluster, s.mayHave(c)
		}
	}
	for _, cluster := range s.pinned {
		if slices.Contains(s.rows[cluster].Home, key) {
			return cluster, Unbounded
		}
	}
	able := slices.DeleteFunc(slices.Clone(s.free), func(c Claim) bool {
		n, handed := s.handed[c.Cluster][key]
		return handed && n == 0
	})
	for _, c := range able {
		most = max(most, min(total, s.mayHave(c)))
	}
	able = slices.DeleteFunc(able, func(c Claim) bool { return s.mayHave(c) < most })
	for i := range able {
		able[i].Min, able[i].Max = 0, Unbounded
	}
	shares, _ := Divide(1, able, s.how, s.seed)
	for i, n := range shares {
		if n == 1 {
			return able[i].Cluster, most
		}
	}
	return "", 0
}

// mayHave is the most that a claim can come to.
func (s *sharing) mayHave(c Claim) int64 {
	if s.how == ByWeight || c.Room < 0 || c.Room > Unbounded-c.Has {
		return c.Max
	}
	return min(c.Max, c.Has+c.Room)
}
