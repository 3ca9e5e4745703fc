package schedule

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Share is what one cluster runs of the workloads.
type Share struct {
	Cluster string
	// Items are the keys of the workloads, the same for all clusters, and Replicas what
	// the cluster runs of each.
	Items    []string
	Replicas []int64
	// Home lists items that are not divided and whose one place this cluster is,
	// also while they have 0 replicas. Sorted.
	Home []string
	// Anew: it was divided from scratch, and the next division leaves it what it is to
	// come to, not what it has meanwhile.
	Anew bool
	// starts of the ranges of each item, noStart where it has none; nil: none has.
	starts []int64
}

const noStart = -1

// Assigned replicas by item key; nil without workloads.
func (s Share) Assigned() map[string]int64 {
	if len(s.Items) == 0 {
		return nil
	}
	out := make(map[string]int64, len(s.Items))
	for i, item := range s.Items {
		out[item] = s.Replicas[i]
	}
	return out
}

// Ordinals are where the ranges of StatefulSets begin, by item key, for those whose
// ordinals are ranged; nil: no range begins here.
func (s Share) Ordinals() (out map[string]int64) {
	for i, start := range s.starts {
		if start != noStart {
			if out == nil {
				out = map[string]int64{}
			}
			out[s.Items[i]] = start
		}
	}
	return out
}

// Assignment of all workloads.
type Assignment struct {
	// Shares by cluster name, sorted. Nil without workloads; otherwise every Placed, Kept
	// and held cluster of the decision has one, with 0 where it gets nothing.
	Shares []Share
	// Short lists workloads of which not all replicas have a place, by key.
	Short []Shortage
	// Crowded names clusters whose stated capacity kept them from a larger share. Sorted.
	Crowded []string
}

// Of a cluster; of one that has none, a share of nothing.
func (a *Assignment) Of(cluster string) Share {
	at, ok := a.at(cluster)
	if !ok {
		return Share{Cluster: cluster}
	}
	return a.Shares[at]
}

// at is where a cluster's share is; not ok: it has none.
func (a *Assignment) at(cluster string) (at int, ok bool) {
	return slices.BinarySearchFunc(a.Shares, cluster, func(s Share, name string) int { return strings.Compare(s.Cluster, name) })
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
	for i := range d.workloads {
		s.assign(i)
		s.spend(i)
		if i < len(d.workloads)-1 {
			s.use(i)
		}
	}
	slices.Sort(s.out.Crowded)
	s.out.Crowded = slices.Compact(s.out.Crowded)
	return s.out
}

// Keeping is the decision where items, by cluster and key, keep the share that they have
// although overrides set another.
func (d Decision) Keeping(items map[string][]string) Decision {
	if len(items) == 0 {
		return d
	}
	handed := maps.Clone(d.handed)
	for cluster, keys := range items {
		own := maps.Clone(handed[cluster])
		for _, key := range keys {
			if _, sets := own[key]; sets {
				own[key] = max(d.held(cluster).Assigned[key], 0)
			}
		}
		if own != nil {
			handed[cluster] = own
		}
	}
	d.handed = handed
	return d
}

// held is the row that a cluster holds; an empty one where it holds none.
func (d Decision) held(cluster string) *atoll.RowSpec {
	if v, ok := d.Verdict(cluster); ok && v.holds {
		return v.row
	}
	return &noRow
}

var noRow atoll.RowSpec // read-only

// Workloads that are shared out.
func (d Decision) Workloads() []Workload { return d.workloads }

// sharing is the work on one Assign. Clusters are numbered by their shares.
type sharing struct {
	Decision
	how Method
	// free clusters divide; pinned ones keep what they have, as far as a total reaches,
	// in this order.
	free   []Claim
	pinned []int32
	// idle clusters are placed, and have no part in divisions.
	idle []int32
	// rows that clusters hold, empty ones where they hold none, and verdicts on them, by
	// cluster.
	rows     []*atoll.RowSpec
	verdicts []int32
	// left is the room that clusters have, nil where nobody knows it, less what this Assign
	// gives away, by cluster; nil: it is not known of any, or does not matter.
	left []atoll.Room
	// reach of the ranges of the workload at hand, by cluster; nil: it has none.
	reach []int64
	// anew: some shares are divided from scratch.
	anew bool
	// most that placements state of each of the free clusters; nil where none states its
	// capacity. limits is the most of the workload at hand that the stated capacity of each
	// cluster admits, Unbounded where it does not bound that; nil: none does. own is what
	// was given away of that capacity, by cluster; nil: nothing.
	most   []int64
	limits []int64
	own    []Use
	out    Assignment
}

func (d Decision) sharing(held map[string]bool) *sharing {
	s := &sharing{Decision: d, how: methodOf(d.scheduling)}
	n, items := 0, make([]string, len(d.workloads))
	for i := range d.workloads {
		items[i] = d.workloads[i].Key.String()
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Outcome == Placed || v.Outcome == Kept || held[v.Cluster] {
			n++
		}
	}
	s.out.Shares, s.rows, s.verdicts = make([]Share, 0, n), make([]*atoll.RowSpec, 0, n), make([]int32, 0, n)
	if d.room != nil {
		s.left = make([]atoll.Room, 0, n)
	}
	replicas := make([]int64, n*len(items))
	placed, kept := make([]Claim, 0, n), []Claim(nil)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		at := len(s.out.Shares)
		c := Claim{Cluster: v.Cluster, Weight: v.Weight, Min: v.Bounds.Min, Max: v.Bounds.most(), Room: -1, at: int32(at)}
		switch {
		case v.Outcome == Placed:
			placed = append(placed, c)
		case held[v.Cluster]:
			s.pinned = append(s.pinned, c.at)
		case v.Outcome == Kept:
			c.Weight = max(c.Weight, 1)
			kept = append(kept, c)
		default:
			continue
		}
		anew := v.Anew && v.Outcome == Placed && s.how != ByWeight
		s.anew = s.anew || anew
		of := replicas[at*len(items) : (at+1)*len(items) : (at+1)*len(items)]
		s.out.Shares = append(s.out.Shares, Share{Cluster: v.Cluster, Items: items, Replicas: of, Anew: anew})
		row := &noRow
		if v.holds {
			row = v.row
		}
		s.rows, s.verdicts = append(s.rows, row), append(s.verdicts, int32(i))
		if s.left != nil {
			s.left = append(s.left, d.room[v.at])
		}
	}
	s.divideAmong(placed, kept)
	if len(d.stated) > 0 {
		s.most = make([]int64, len(s.free))
		for i := range s.free {
			s.most[i] = s.free[i].Max
		}
	}
	return s
}

// has tells how many of the workload a cluster runs, or is to come to.
func (s *sharing) has(at int32, item string) int64 { return max(s.rows[at].Share(item), 0) }

// assigned tells how many of the workload a cluster runs.
func (s *sharing) assigned(at int32, item string) int64 { return max(s.rows[at].Assigned[item], 0) }

// use the room of what clusters are given of the workload on top of what they have.
func (s *sharing) use(item int) {
	if s.left == nil {
		return
	}
	for i := range s.free {
		c := &s.free[i]
		room := s.left[c.at]
		if grown := s.out.Shares[c.at].Replicas[item] - c.Has; room != nil && grown > 0 {
			s.left[c.at] = Take(room, s.workloads[item].Requests, grown)
		}
	}
}

// divideAmong sorts the clusters into those that divide, those that keep what they
// have and those that get nothing. Both lists are the callee's from then on.
func (s *sharing) divideAmong(placed, kept []Claim) {
	idles := func(c Claim) bool { return s.how == ByWeight && c.Weight <= 0 }
	for _, c := range placed {
		if idles(c) {
			s.idle = append(s.idle, c.at)
		}
	}
	switch {
	case len(s.idle) == 0 && len(placed) > 0:
		s.free = placed
	case len(s.idle) < len(placed):
		s.free = slices.DeleteFunc(placed, idles)
	case len(kept) > 0:
		s.free, kept = kept, nil
	default:
		kept, s.idle = placed, nil
	}
	for _, c := range kept {
		s.pinned = append(s.pinned, c.at)
	}
	s.byRank(s.pinned)
}

// byRank sorts clusters by what decides between equals.
func (s *sharing) byRank(clusters []int32) {
	if len(clusters) < 2 {
		return
	}
	r, ranks := rankingOf(s.seed), make([]uint64, len(s.out.Shares))
	for _, at := range clusters {
		ranks[at] = r.of(s.out.Shares[at].Cluster)
	}
	slices.SortFunc(clusters, func(a, b int32) int { return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(a, b)) })
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

func (s *sharing) assign(item int) {
	w, key := &s.workloads[item], s.out.key(item)
	total := max(w.Replicas, 0)
	s.limit(item)
	// Weights alone do not look at what there is.
	looks := s.how != ByWeight || w.stateful() || s.scheduling.OnShortage == v1alpha1.PlaceNothing
	for i := range s.free {
		c := &s.free[i]
		if looks {
			c.Has = s.has(c.at, key)
		}
		if s.most != nil {
			c.Max = s.within(c.at, s.most[i])
		}
		if s.left != nil && s.left[c.at] != nil {
			c.Room = Fit(s.left[c.at], w.Requests)
		}
	}
	var left int64
	switch {
	case !w.stateful(), s.apart(item):
		left = s.assignDivided(item)
	case s.scheduling.Ordinals != nil && w.ranges():
		left = s.assignRanged(item)
	default:
		left = s.assignWhole(item, total)
	}
	if left > 0 {
		s.out.Short = append(s.out.Short, Shortage{Key: w.Key, Replicas: total, Unplaced: left})
	}
}

// key of a workload; empty where no cluster has a share.
func (a *Assignment) key(item int) string {
	if len(a.Shares) == 0 {
		return ""
	}
	return a.Shares[0].Items[item]
}

func (s *sharing) give(at int32, item int, n int64) { s.out.Shares[at].Replicas[item] = n }

func (s *sharing) assignDivided(item int) (left int64) {
	rest := s.pin(item, max(s.workloads[item].Replicas, 0))
	free, rest := s.hand(item, rest)
	shares, left := Divide(rest, s.fromScratch(item, free), s.how, s.seed)
	if left > 0 && s.scheduling.OnShortage == v1alpha1.PlaceNothing {
		shares, left = s.asBefore(free, rest)
	}
	for i, n := range shares {
		s.give(free[i].at, item, n)
	}
	return left
}

// apart tells whether clusters run parts of a workload that its volumes make a whole of, and
// that none of them is the home of: it was divided before it had volumes, or before the hub
// knew what they mean. The parts stay where the volumes are.
func (s *sharing) apart(item int) bool {
	if !s.workloads[item].OwnVolumes {
		return false
	}
	key, parts := s.out.key(item), 0
	for at := range s.rows {
		if slices.Contains(s.rows[at].Home, key) {
			return false
		}
		if s.assigned(int32(at), key) > 0 {
			parts++
		}
	}
	return parts > 1
}

// hand clusters the shares that overrides set, as far as ranges of ordinals and stated
// capacity reach, and give who is left to divide what is left.
func (s *sharing) hand(item int, total int64) (free []Claim, rest int64) {
	if len(s.handed) == 0 {
		return s.free, total
	}
	key := s.out.key(item)
	hands := func(at int32) bool {
		n, ok := s.handed[s.out.Shares[at].Cluster][key]
		if !ok {
			return false
		}
		if s.reach != nil {
			n = min(n, s.reach[at])
		}
		n = s.within(at, n)
		s.give(at, item, n)
		total -= min(n, total)
		return true
	}
	for _, c := range s.free {
		if !hands(c.at) {
			free = append(free, c)
		}
	}
	for _, at := range s.idle {
		hands(at)
	}
	return free, total
}

// pin gives pinned clusters what they have, and tells what that leaves of the total.
func (s *sharing) pin(item int, total int64) (rest int64) {
	key := s.out.key(item)
	for _, at := range s.pinned {
		n := min(s.has(at, key), total)
		s.give(at, item, n)
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
func (s *sharing) assignWhole(item int, total int64) (left int64) {
	key := s.out.key(item)
	home, most := s.home(key, total)
	if home < 0 {
		return total
	}
	share := &s.out.Shares[home]
	row := s.rows[home]
	if n, ok := s.handed[share.Cluster][key]; ok {
		total, most = n, n
	}
	n := min(total, s.within(home, most))
	if n < total && s.scheduling.OnShortage == v1alpha1.PlaceNothing {
		n = min(n, max(row.Assigned[key], 0))
	}
	s.give(home, item, n)
	share.Home = append(share.Home, key)
	slices.Sort(share.Home)
	if start, ranged := row.Ordinals[key]; ranged {
		// It was ranged before: its pods keep their names.
		s.begin(home, item, start)
	}
	return total - n
}

// begin the range of a workload in a cluster.
func (s *sharing) begin(at int32, item int, start int64) {
	share := &s.out.Shares[at]
	if share.starts == nil {
		share.starts = slices.Repeat([]int64{noStart}, len(share.Items))
	}
	share.starts[item] = start
}

// home of a workload that is not divided, and what it may have there: where it is at
// home, else, of those that may have most of it, who has the largest claim; negative:
// nowhere. Nowhere new where overrides would have none of it.
func (s *sharing) home(key string, total int64) (at int32, most int64) {
	for _, c := range s.free {
		if slices.Contains(s.rows[c.at].Home, key) {
			return c.at, s.mayHave(c)
		}
	}
	for _, at := range s.pinned {
		if slices.Contains(s.rows[at].Home, key) {
			return at, Unbounded
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
			return able[i].at, most
		}
	}
	return -1, 0
}

// mayHave is the most that a claim can come to.
func (s *sharing) mayHave(c Claim) int64 {
	if s.how == ByWeight || c.Room < 0 || c.Room > Unbounded-c.Has {
		return c.Max
	}
	return min(c.Max, c.Has+c.Room)
}
