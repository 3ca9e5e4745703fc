package schedule

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// ShareCandidate is a cluster in the division of one workload.
type ShareCandidate struct {
	Cluster string
	// Weight, for ByWeight. A weight of 0 or less gets nothing; above MaxWeight it counts as
	// MaxWeight.
	Weight int64
	// Min and Max bound the share. A Max below Min counts; Unbounded sets no bound.
	Min, Max int64
	// Current share of the cluster, for ByFreeCapacity and Aggregated.
	Current int64
	// FreeCapacity is how many more replicas fit, for ByFreeCapacity and Aggregated;
	// negative: not known.
	FreeCapacity int64
	// shareIndex is where the caller keeps the share, overflowStep for divideBySteps.
	shareIndex, overflowStep int32
}

// MaxWeight is far above what the API admits (1,000 entries of 1,000,000), and low
// enough that the weights of four million clusters have a sum.
const MaxWeight = 1 << 40

// Unbounded is a ShareCandidate.Max that sets no bound.
const Unbounded = math.MaxInt64

// DivisionMethod is how replicas are divided.
type DivisionMethod int

// The methods.
const (
	// ByWeight divides all of the total by weight. Current shares make no difference, so
	// that a restart, a preview and another hub see the same division.
	ByWeight DivisionMethod = iota
	// ByFreeCapacity leaves clusters what they have, and divides the rest by free capacity.
	// A smaller total takes from each in proportion to its share.
	ByFreeCapacity
	// Aggregated uses the fewest clusters. It leaves clusters what they have, fills the used
	// ones, the fullest first, and then the ones with the most free capacity. A smaller
	// total takes from the smallest shares first.
	Aggregated
)

// DivideReplicas divides total among the candidates: shares[i] is for candidates[i], and
// left is what no candidate has capacity for. A negative total counts as 0. seed decides
// between equal candidates. Candidates of unknown capacity get, beyond what they have, only
// what no other takes.
//
// A total that does not reach for all minimums is divided up to them.
func DivideReplicas(total int64, candidates []ShareCandidate, how DivisionMethod, seed string) (shares []int64, left int64) {
	d := newDivision(candidates, seed)
	shares = make([]int64, len(candidates))
	rest := uint64(max(total, 0))
	switch how {
	case ByWeight:
		rest = d.divideByWeight(rest)
	case ByFreeCapacity:
		rest = d.divideKeepingCurrent(rest, d.shrinkEvenly, d.growByFreeCapacity)
	case Aggregated:
		rest = d.divideKeepingCurrent(rest, d.shrinkSmallestFirst, d.growFewestClusters)
	}
	for i, n := range d.share {
		shares[i] = int64(n)
	}
	return shares, int64(rest)
}

// replicaDivision is the work on one DivideReplicas. Apportioning raises share by what is
// handed out.
type replicaDivision struct {
	candidates []ShareCandidate
	ranking    ClusterRanking
	// rank of each candidate; 0: not computed yet, since most divisions compare few.
	rank  []uint64
	share []uint64
	// weight, least and most of the present round; roundShare is what it hands out.
	weight, least, most, roundShare []uint64
	// fixedRound: the part is fixed in the present round.
	fixedRound []bool
}

func newDivision(candidates []ShareCandidate, seed string) *replicaDivision {
	n := len(candidates)
	words := make([]uint64, 6*n)
	column := func(i int) []uint64 { return words[i*n : (i+1)*n : (i+1)*n] }
	return &replicaDivision{
		candidates: candidates, ranking: NewClusterRanking(seed), rank: column(0), share: column(1),
		weight: column(2), least: column(3), most: column(4), roundShare: column(5), fixedRound: make([]bool, n),
	}
}

// rankOf returns the rank of a candidate.
func (d *replicaDivision) rankOf(i int32) uint64 {
	if d.rank[i] == 0 {
		d.rank[i] = d.ranking.RankOf(d.candidates[i].Cluster)
	}
	return d.rank[i]
}

func (c *ShareCandidate) replicaBounds() (least, most uint64) {
	most = uint64(max(c.Max, 0))
	return min(uint64(max(c.Min, 0)), most), most
}

// divideByWeight hands out units one by one to the cluster with the largest
// weight/(2·share+1), the method of Sainte-Laguë, minimums first and within maximums. It
// rounds like largest remainders. The order of the units does not depend on the total, so
// that growing the total takes from no cluster, and losing a cluster moves its units only.
// Largest remainders alone promise neither.
func (d *replicaDivision) divideByWeight(total uint64) (left uint64) {
	for i := range d.candidates {
		c := &d.candidates[i]
		d.least[i], d.most[i], d.weight[i] = 0, 0, 0
		if c.Weight > 0 {
			d.weight[i] = uint64(min(c.Weight, MaxWeight))
			d.least[i], d.most[i] = c.replicaBounds()
		}
	}
	return d.apportionTotal(total)
}

// divideKeepingCurrent leaves what clusters have, where the total and their bounds allow that.
func (d *replicaDivision) divideKeepingCurrent(total uint64, shrink func(uint64), grow func(uint64) uint64) (left uint64) {
	var kept uint64
	for i := range d.candidates {
		c := &d.candidates[i]
		_, most := c.replicaBounds()
		d.share[i] = min(uint64(max(c.Current, 0)), most)
		kept = saturatingAdd(kept, d.share[i])
	}
	if kept >= total {
		shrink(total)
		return 0
	}
	return grow(d.reachMinimums(total - kept))
}

// reachMinimums hands out what clusters lack of their minimums and have capacity for.
func (d *replicaDivision) reachMinimums(rest uint64) uint64 {
	if !d.lacksMinimum() {
		return rest
	}
	lacking := false
	for i := range d.candidates {
		least, _ := d.candidates[i].replicaBounds()
		lack := min(least-min(d.share[i], least), d.freeCapacity(i))
		d.weight[i], d.least[i], d.most[i] = min(lack, MaxWeight), 0, lack
		lacking = lacking || lack > 0
	}
	if !lacking {
		return rest
	}
	return d.apportionTotal(rest)
}

// lacksMinimum reports whether a candidate has less than its minimum.
func (d *replicaDivision) lacksMinimum() bool {
	for i := range d.candidates {
		if least, _ := d.candidates[i].replicaBounds(); d.share[i] < least {
			return true
		}
	}
	return false
}

// freeCapacity returns the free capacity of a candidate on top of its share; unbounded where it is not known and no
// maximum is set.
func (d *replicaDivision) freeCapacity(i int) uint64 {
	c := &d.candidates[i]
	_, most := c.replicaBounds()
	free := most - min(d.share[i], most)
	if c.FreeCapacity < 0 {
		return free
	}
	grown := d.share[i] - min(d.share[i], uint64(max(c.Current, 0)))
	return min(free, uint64(c.FreeCapacity)-min(uint64(c.FreeCapacity), grown))
}

func (d *replicaDivision) shrinkEvenly(total uint64) {
	for i := range d.candidates {
		has := d.share[i]
		least, _ := d.candidates[i].replicaBounds()
		d.weight[i], d.least[i], d.most[i] = min(has, MaxWeight), min(least, has), has
		d.share[i] = 0
	}
	d.apportionTotal(total)
}

// growByFreeCapacity divides among candidates of known capacity, and the rest evenly among
// the others.
func (d *replicaDivision) growByFreeCapacity(rest uint64) uint64 {
	for _, known := range []bool{true, false} {
		for i := range d.candidates {
			d.weight[i], d.least[i], d.most[i] = 0, 0, 0
			if (d.candidates[i].FreeCapacity >= 0) != known {
				continue
			}
			if d.most[i] = d.freeCapacity(i); d.most[i] > 0 {
				d.weight[i] = 1
				if known {
					d.weight[i] = min(d.most[i], MaxWeight)
				}
			}
		}
		rest = d.apportionTotal(rest)
	}
	return rest
}

// divisionTurn orders candidates: lower classes first, in each the larger measure, ties by
// the rank of candidate i.
type divisionTurn struct {
	measure uint64
	class   int32
	i       int32
}

// buildTurns returns the turns of the candidates, by number.
func (d *replicaDivision) buildTurns(of func(i int) divisionTurn) []divisionTurn {
	all := make([]divisionTurn, len(d.candidates))
	for i := range all {
		all[i] = of(i)
		all[i].i = int32(i)
	}
	return all
}

func (d *replicaDivision) compareTurns(a, b *divisionTurn) int {
	switch {
	case a.class != b.class:
		return cmp.Compare(a.class, b.class)
	case a.measure != b.measure:
		return cmp.Compare(b.measure, a.measure)
	}
	return d.compareRanks(a.i, b.i)
}

// shrinkSmallestFirst takes from the smallest shares first. It goes below a minimum only
// when nothing else is left to take.
func (d *replicaDivision) shrinkSmallestFirst(total uint64) {
	var sum uint64
	for _, n := range d.share {
		sum = saturatingAdd(sum, n)
	}
	over := sum - total
	order := d.buildTurns(func(i int) divisionTurn { return divisionTurn{measure: math.MaxUint64 - d.share[i]} })
	slices.SortFunc(order, func(a, b divisionTurn) int { return d.compareTurns(&a, &b) })
	for _, spare := range []bool{true, false} {
		for _, t := range order {
			i := t.i
			can := d.share[i]
			if least, _ := d.candidates[i].replicaBounds(); spare {
				can -= min(can, least)
			}
			n := min(over, can)
			d.share[i] -= n
			over -= n
		}
	}
}

// growFewestClusters fills in this order: used candidates of known capacity, unused ones,
// and the same of those of unknown capacity.
func (d *replicaDivision) growFewestClusters(rest uint64) uint64 {
	turns := d.buildTurns(func(i int) divisionTurn {
		known, used := d.candidates[i].FreeCapacity >= 0, d.share[i] > 0
		switch {
		case known && used:
			return divisionTurn{class: 0, measure: d.share[i]}
		case known:
			return divisionTurn{class: 1, measure: d.freeCapacity(i)}
		case used:
			return divisionTurn{class: 2, measure: d.share[i]}
		}
		return divisionTurn{class: 3, measure: d.freeCapacity(i)}
	})
	// Usually only a few are filled: the others need no order.
	h := newNumberHeap(len(turns), func(a, b int32) bool { return d.compareTurns(&turns[a], &turns[b]) < 0 })
	for ; rest > 0 && len(h.numbers) > 0; h.pop() {
		i := int(h.numbers[0])
		n := min(rest, d.freeCapacity(i))
		d.share[i] += n
		rest -= n
	}
	return rest
}

// saturatingAdd adds without overflow.
func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// apportionTotal divides total by this round's weights, between least and most of each, and
// adds the parts to the shares. left is what exceeds all maximums. A total below the sum of
// minimums is divided up to them.
func (d *replicaDivision) apportionTotal(total uint64) (left uint64) {
	var least, most uint64
	for i := range d.candidates {
		if d.weight[i] == 0 {
			d.least[i], d.most[i] = 0, 0
		}
		least, most = saturatingAdd(least, d.least[i]), saturatingAdd(most, d.most[i])
	}
	switch {
	case total >= most:
		left, total = total-most, most
		copy(d.roundShare, d.most)
	case total < least:
		copy(d.most, d.least)
		clear(d.least)
		d.setRoundedQuotas(total)
		d.settleRemainder(total)
	default:
		d.setRoundedQuotas(total)
		d.settleRemainder(total)
	}
	for i, n := range d.roundShare {
		d.share[i] += n
	}
	return left
}

// setRoundedQuotas sets parts to the rounded quotas, which are close to the end result.
// Parts that break their bounds are fixed, and the others share the rest.
func (d *replicaDivision) setRoundedQuotas(total uint64) {
	rest := total
	for i := range d.candidates {
		d.roundShare[i], d.fixedRound[i] = d.least[i], d.least[i] == d.most[i]
		if d.fixedRound[i] {
			rest -= min(rest, d.roundShare[i])
		}
	}
	for {
		under, over, ok := d.roundOpenQuotas(rest)
		if !ok {
			return
		}
		if rest = d.fixBrokenBounds(under, over, rest); under == over {
			return
		}
	}
}

// fixBrokenBounds fixes the parts that break the bounds which are broken by more, minimums
// or maximums, and returns the remaining rest. All are fixed where both are equal.
func (d *replicaDivision) fixBrokenBounds(under, over, rest uint64) uint64 {
	for i := range d.weight {
		if d.fixedRound[i] {
			continue
		}
		below, above := d.roundShare[i] < d.least[i], d.roundShare[i] > d.most[i]
		if under == over || below && under > over || above && over > under {
			d.roundShare[i], d.fixedRound[i] = min(max(d.roundShare[i], d.least[i]), d.most[i]), true
			rest -= min(rest, d.roundShare[i])
		}
	}
	return rest
}

// roundOpenQuotas divides the rest by the weights of the parts that are not fixed, and sums
// up by how much they break their bounds; not ok: all are fixed.
func (d *replicaDivision) roundOpenQuotas(rest uint64) (under, over uint64, ok bool) {
	var sum uint64
	for i, w := range d.weight {
		if !d.fixedRound[i] {
			sum += w
		}
	}
	if sum == 0 {
		return 0, 0, false
	}
	for i, w := range d.weight {
		if d.fixedRound[i] {
			continue
		}
		hi, lo := bits.Mul64(rest, w)
		lo, carry := bits.Add64(lo, sum/2, 0)
		d.roundShare[i], _ = bits.Div64(hi+carry, lo, sum)
		under = saturatingAdd(under, d.least[i]-min(d.least[i], d.roundShare[i]))
		over = saturatingAdd(over, d.roundShare[i]-min(d.most[i], d.roundShare[i]))
	}
	return under, over, true
}

// settleRemainder hands out what the rounding left, or takes back what it gave too much.
// Then it swaps units until no cluster has a better claim to its next unit than another to
// its last.
func (d *replicaDivision) settleRemainder(total uint64) {
	var given uint64
	for _, n := range d.roundShare {
		given += n
	}
	if given < total && d.giveOrTakeOneEach(total-given, true) || given > total && d.giveOrTakeOneEach(given-total, false) {
		given = total
	}
	if given < total {
		for h := newNumberHeap(len(d.roundShare), d.isNextBefore); given < total; given++ {
			d.roundShare[h.numbers[0]]++
			h.siftDown(0)
		}
	}
	if given > total {
		for h := newNumberHeap(len(d.roundShare), d.isLastAfter); given > total; given-- {
			d.roundShare[h.numbers[0]]--
			h.siftDown(0)
		}
	}
	for d.swapOneUnit() {
	}
}

// swapOneUnit moves a unit from the cluster that got its last one latest to the cluster that
// gets its next one first, if that is the better claim.
func (d *replicaDivision) swapOneUnit() bool {
	var to, from int32
	for i := range int32(len(d.roundShare)) {
		if d.isNextBefore(i, to) {
			to = i
		}
		if d.isLastAfter(i, from) {
			from = i
		}
	}
	if to == from || d.roundShare[to] == d.most[to] || d.roundShare[from] == d.least[from] || !d.isUnitBefore(to, d.roundShare[to], from, d.roundShare[from]-1) {
		return false
	}
	d.roundShare[to]++
	d.roundShare[from]--
	return true
}

// isNextBefore reports whether a's next unit is handed out before b's. Candidates at their
// maximum come last.
func (d *replicaDivision) isNextBefore(a, b int32) bool {
	switch {
	case d.roundShare[a] == d.most[a]:
		return false
	case d.roundShare[b] == d.most[b]:
		return true
	}
	return d.isUnitBefore(a, d.roundShare[a], b, d.roundShare[b])
}

// isLastAfter reports whether a's last unit was handed out after b's. Candidates at their
// minimum come last.
func (d *replicaDivision) isLastAfter(a, b int32) bool {
	switch {
	case d.roundShare[a] == d.least[a]:
		return false
	case d.roundShare[b] == d.least[b]:
		return true
	}
	return d.isUnitBefore(b, d.roundShare[b]-1, a, d.roundShare[a]-1)
}

// isUnitBefore reports whether cluster a's unit number k (from 0) is handed out before
// cluster b's unit number l.
func (d *replicaDivision) isUnitBefore(a int32, k uint64, b int32, l uint64) bool {
	ahi, alo := bits.Mul64(d.weight[a], 2*l+1)
	bhi, blo := bits.Mul64(d.weight[b], 2*k+1)
	if ahi != bhi {
		return ahi > bhi
	}
	if alo != blo {
		return alo > blo
	}
	return d.compareRanks(a, b) < 0
}

func (d *replicaDivision) compareRanks(a, b int32) int {
	if c := cmp.Compare(d.rankOf(a), d.rankOf(b)); c != 0 {
		return c
	}
	return strings.Compare(d.candidates[a].Cluster, d.candidates[b].Cluster)
}

// ClusterRanking ranks clusters for one Bundle. Ties fall differently in every Bundle, so
// that odd replicas do not pile up on the first cluster in the alphabet. It is the state of
// FNV-1a after the seed.
type ClusterRanking uint64

func (r ClusterRanking) hashString(s string) ClusterRanking {
	for i := range len(s) {
		r = (r ^ ClusterRanking(s[i])) * 1099511628211
	}
	return r
}

// fnvBasis is the initial state of FNV-1a.
const fnvBasis ClusterRanking = 14695981039346656037

// NewClusterRanking returns the ranking of a seed.
func NewClusterRanking(seed string) ClusterRanking {
	return fnvBasis.hashString(seed).hashString("\x00")
}

// RankOf returns the rank of a cluster.
func (r ClusterRanking) RankOf(cluster string) uint64 { return mixHash(uint64(r.hashString(cluster))) }
