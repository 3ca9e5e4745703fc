package schedule

import (
	"cmp"
	"container/heap"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Claim of a cluster in the division of one workload.
type Claim struct {
	Cluster string
	// Weight, for ByWeight. Weights of 0 and less get nothing; above MaxWeight they
	// count as MaxWeight.
	Weight int64
	// Min and Max bound the share. A Max below Min counts; Unbounded is none.
	Min, Max int64
	// Has is the share that the cluster has now, for ByRoom and Aggregated.
	Has int64
	// Room is how many more fit there, for ByRoom and Aggregated; negative: nobody
	// knows.
	Room int64
	// at is where the caller keeps the share.
	at int32
}

// MaxWeight is far above what the API admits (1,000 entries of 1,000,000), and low
// enough that the weights of four million clusters have a sum.
const MaxWeight = 1 << 40

// Unbounded is a Claim's Max that bounds nothing.
const Unbounded = math.MaxInt64

// Method of a division.
type Method int

// The methods.
const (
	// ByWeight divides all of the total by weight. What clusters have makes no
	// difference, so that a restart, a preview and another hub see the same division.
	ByWeight Method = iota
	// ByRoom leaves what clusters have, and divides what comes on top by their room.
	// A smaller total takes from each in proportion to what it has.
	ByRoom
	// Aggregated leaves what clusters have, fills those that have something, the
	// fullest first, and then those with the most room: the fewest that it takes. A
	// smaller total takes from those first that have the least.
	Aggregated
)

// Divide total among the claims: shares[i] is what claims[i] gets, and left is what no
// claim has room for. A negative total counts as 0. seed decides between clusters
// that have equal claims. Clusters whose room nobody knows get, beyond what they have,
// only what no other has room for.
//
// Where the total does not reach for all minimums, it is divided up to them.
func Divide(total int64, claims []Claim, how Method, seed string) (shares []int64, left int64) {
	d := newDivision(claims, seed)
	shares = make([]int64, len(claims))
	rest := uint64(max(total, 0))
	switch how {
	case ByWeight:
		rest = d.byWeight(rest)
	case ByRoom:
		rest = d.onTop(rest, d.shrinkEvenly, d.growByRoom)
	case Aggregated:
		rest = d.onTop(rest, d.shrinkLeast, d.growFewest)
	}
	for i, n := range d.share {
		shares[i] = int64(n)
	}
	return shares, int64(rest)
}

// division is the work on one Divide. Apportioning raises share by what is handed out.
type division struct {
	claims []Claim
	rank   []uint64
	share  []uint64
	// weight, least and most of the present round; part is what it hands out.
	weight, least, most, part []uint64
	// fixed parts of the present round.
	fixed []bool
}

func newDivision(claims []Claim, seed string) *division {
	n := len(claims)
	words := make([]uint64, 6*n)
	d := &division{
		claims: claims, rank: words[:n:n], share: words[n : 2*n : 2*n],
		weight: words[2*n : 3*n : 3*n], least: words[3*n : 4*n : 4*n], most: words[4*n : 5*n : 5*n], part: words[5*n:],
		fixed: make([]bool, n),
	}
	r := rankingOf(seed)
	for i := range claims {
		d.rank[i] = r.of(claims[i].Cluster)
	}
	return d
}

func (c *Claim) bounds() (least, most uint64) {
	most = uint64(max(c.Max, 0))
	return min(uint64(max(c.Min, 0)), most), most
}

// byWeight hands out units one by one to the cluster with the largest
// weight/(2·share+1), the method of Sainte-Laguë, minimums first and nobody beyond a
// maximum: it rounds like largest remainders do, but the order of the units does not
// depend on the total, so growing the total never takes from anyone and losing a
// cluster moves its units only. Largest remainders alone promise neither.
func (d *division) byWeight(total uint64) (left uint64) {
	for i := range d.claims {
		c := &d.claims[i]
		d.least[i], d.most[i], d.weight[i] = 0, 0, 0
		if c.Weight > 0 {
			d.weight[i] = uint64(min(c.Weight, MaxWeight))
			d.least[i], d.most[i] = c.bounds()
		}
	}
	return d.apportion(total)
}

// onTop leaves what clusters have, where the total and their bounds allow that.
func (d *division) onTop(total uint64, shrink func(uint64), grow func(uint64) uint64) (left uint64) {
	var kept uint64
	for i := range d.claims {
		c := &d.claims[i]
		_, most := c.bounds()
		d.share[i] = min(uint64(max(c.Has, 0)), most)
		kept = plus(kept, d.share[i])
	}
	if kept >= total {
		shrink(total)
		return 0
	}
	return grow(d.reachMinimums(total - kept))
}

// reachMinimums hands out what clusters lack of their minimums and have room for.
func (d *division) reachMinimums(rest uint64) uint64 {
	lacking := false
	for i := range d.claims {
		least, _ := d.claims[i].bounds()
		lack := min(least-min(d.share[i], least), d.room(i))
		d.weight[i], d.least[i], d.most[i] = min(lack, MaxWeight), 0, lack
		lacking = lacking || lack > 0
	}
	if !lacking {
		return rest
	}
	return d.apportion(rest)
}

// room that a claim has on top of its share; without end where nobody knows it and
// nothing bounds it.
func (d *division) room(i int) uint64 {
	c := &d.claims[i]
	_, most := c.bounds()
	room := most - min(d.share[i], most)
	if c.Room < 0 {
		return room
	}
	grown := d.share[i] - min(d.share[i], uint64(max(c.Has, 0)))
	return min(room, uint64(c.Room)-min(uint64(c.Room), grown))
}

func (d *division) shrinkEvenly(total uint64) {
	for i := range d.claims {
		has := d.share[i]
		least, _ := d.claims[i].bounds()
		d.weight[i], d.least[i], d.most[i] = min(has, MaxWeight), min(least, has), has
		d.share[i] = 0
	}
	d.apportion(total)
}

// growByRoom divides among those whose room is known, and the rest evenly among the
// others.
func (d *division) growByRoom(rest uint64) uint64 {
	for _, known := range []bool{true, false} {
		for i := range d.claims {
			d.weight[i], d.least[i], d.most[i] = 0, 0, 0
			if (d.claims[i].Room >= 0) != known {
				continue
			}
			if d.most[i] = d.room(i); d.most[i] > 0 {
				d.weight[i] = 1
				if known {
					d.weight[i] = min(d.most[i], MaxWeight)
				}
			}
		}
		rest = d.apportion(rest)
	}
	return rest
}

// turn of a claim: lower classes first, in each the larger measure, ties by rank.
type turn struct {
	class         int
	measure, rank uint64
	i             int
}

// turns of the claims, by number.
func (d *division) turns(of func(i int) turn) []turn {
	all := make([]turn, len(d.claims))
	for i := range all {
		all[i] = of(i)
		all[i].rank, all[i].i = d.rank[i], i
	}
	return all
}

func (d *division) inTurn(a, b *turn) int {
	switch {
	case a.class != b.class:
		return a.class - b.class
	case a.measure != b.measure:
		return cmp.Compare(b.measure, a.measure)
	case a.rank != b.rank:
		return cmp.Compare(a.rank, b.rank)
	}
	return strings.Compare(d.claims[a.i].Cluster, d.claims[b.i].Cluster)
}

// shrinkLeast takes from the smallest shares first, and of none goes below its minimum
// while there are others to take from.
func (d *division) shrinkLeast(total uint64) {
	var sum uint64
	for _, n := range d.share {
		sum = plus(sum, n)
	}
	over := sum - total
	order := d.turns(func(i int) turn { return turn{measure: math.MaxUint64 - d.share[i]} })
	slices.SortFunc(order, func(a, b turn) int { return d.inTurn(&a, &b) })
	for _, spare := range []bool{true, false} {
		for _, t := range order {
			i := t.i
			can := d.share[i]
			if least, _ := d.claims[i].bounds(); spare {
				can -= min(can, least)
			}
			n := min(over, can)
			d.share[i] -= n
			over -= n
		}
	}
}

// growFewest fills in turn: those of known room that are used, those that are not, and
// the same of those whose room nobody knows.
func (d *division) growFewest(rest uint64) uint64 {
	turns := d.turns(func(i int) turn {
		known, used := d.claims[i].Room >= 0, d.share[i] > 0
		switch {
		case known && used:
			return turn{class: 0, measure: d.share[i]}
		case known:
			return turn{class: 1, measure: d.room(i)}
		case used:
			return turn{class: 2, measure: d.share[i]}
		}
		return turn{class: 3, measure: d.room(i)}
	})
	// Mostly few are filled: the others need not be in order.
	h := newHeap(len(turns), func(a, b int) bool { return d.inTurn(&turns[a], &turns[b]) < 0 })
	for ; rest > 0 && h.Len() > 0; heap.Pop(h) {
		i := h.items[0]
		n := min(rest, d.room(i))
		d.share[i] += n
		rest -= n
	}
	return rest
}

// plus without running over.
func plus(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// apportion total by this round's weights, between least and most of each, and add it
// to the shares; left is what is above all that they may get. Where total does not
// reach for what they are to have at least, it is divided up to that.
func (d *division) apportion(total uint64) (left uint64) {
	var least, most uint64
	for i := range d.claims {
		if d.weight[i] == 0 {
			d.least[i], d.most[i] = 0, 0
		}
		least, most = plus(least, d.least[i]), plus(most, d.most[i])
	}
	switch {
	case total >= most:
		left, total = total-most, most
		copy(d.part, d.most)
	case total < least:
		copy(d.most, d.least)
		clear(d.least)
		d.near(total)
		d.settle(total)
	default:
		d.near(total)
		d.settle(total)
	}
	for i, n := range d.part {
		d.share[i] += n
	}
	return left
}

// near sets parts to the rounded quotas, which are next to the end result: those that
// their bounds hold back are fixed, and the others share what that leaves.
func (d *division) near(total uint64) {
	rest := total
	for i := range d.claims {
		d.part[i], d.fixed[i] = d.least[i], d.least[i] == d.most[i]
		if d.fixed[i] {
			rest -= min(rest, d.part[i])
		}
	}
	for {
		var sum, under, over uint64
		for i, w := range d.weight {
			if !d.fixed[i] {
				sum += w
			}
		}
		if sum == 0 {
			return
		}
		for i, w := range d.weight {
			if d.fixed[i] {
				continue
			}
			hi, lo := bits.Mul64(rest, w)
			lo, carry := bits.Add64(lo, sum/2, 0)
			d.part[i], _ = bits.Div64(hi+carry, lo, sum)
			under = plus(under, d.least[i]-min(d.least[i], d.part[i]))
			over = plus(over, d.part[i]-min(d.most[i], d.part[i]))
		}
		for i := range d.weight {
			if d.fixed[i] {
				continue
			}
			below, above := d.part[i] < d.least[i], d.part[i] > d.most[i]
			if under == over || below && under > over || above && over > under {
				d.part[i], d.fixed[i] = min(max(d.part[i], d.least[i]), d.most[i]), true
				rest -= min(rest, d.part[i])
			}
		}
		if under == over {
			return
		}
	}
}

// settle hands out what the rounding left, or takes back what it gave too much, and
// swaps until no cluster has a better claim to its next unit than another to its last.
func (d *division) settle(total uint64) {
	var given uint64
	for _, n := range d.part {
		given += n
	}
	if given < total {
		for h := newHeap(len(d.part), d.nextBefore); given < total; given++ {
			d.part[h.items[0]]++
			heap.Fix(h, 0)
		}
	}
	if given > total {
		for h := newHeap(len(d.part), d.lastAfter); given > total; given-- {
			d.part[h.items[0]]--
			heap.Fix(h, 0)
		}
	}
	for {
		to, from := 0, 0
		for i := range d.part {
			if d.nextBefore(i, to) {
				to = i
			}
			if d.lastAfter(i, from) {
				from = i
			}
		}
		if to == from || d.part[to] == d.most[to] || d.part[from] == d.least[from] || !d.before(to, d.part[to], from, d.part[from]-1) {
			return
		}
		d.part[to]++
		d.part[from]--
	}
}

// nextBefore tells whether a's next unit is handed out before b's; those who may have
// no more are last.
func (d *division) nextBefore(a, b int) bool {
	switch {
	case d.part[a] == d.most[a]:
		return false
	case d.part[b] == d.most[b]:
		return true
	}
	return d.before(a, d.part[a], b, d.part[b])
}

// lastAfter tells whether a's last unit was handed out after b's; those who may lose
// none are last.
func (d *division) lastAfter(a, b int) bool {
	switch {
	case d.part[a] == d.least[a]:
		return false
	case d.part[b] == d.least[b]:
		return true
	}
	return d.before(b, d.part[b]-1, a, d.part[a]-1)
}

// before tells whether cluster a's unit number k (from 0) is handed out before
// cluster b's unit number l.
func (d *division) before(a int, k uint64, b int, l uint64) bool {
	ahi, alo := bits.Mul64(d.weight[a], 2*l+1)
	bhi, blo := bits.Mul64(d.weight[b], 2*k+1)
	if ahi != bhi {
		return ahi > bhi
	}
	if alo != blo {
		return alo > blo
	}
	return d.byRank(a, b) < 0
}

func (d *division) byRank(a, b int) int {
	if c := cmp.Compare(d.rank[a], d.rank[b]); c != 0 {
		return c
	}
	return strings.Compare(d.claims[a].Cluster, d.claims[b].Cluster)
}

// ranking of clusters for one Bundle: ties fall differently in every Bundle, so that
// odd replicas do not pile up on the cluster that is first in the alphabet. It is the
// state of FNV-1a behind the seed.
type ranking uint64

func (r ranking) write(s string) ranking {
	for i := range len(s) {
		r = (r ^ ranking(s[i])) * 1099511628211
	}
	return r
}

// fnvBasis is where FNV-1a begins.
const fnvBasis ranking = 14695981039346656037

func rankingOf(seed string) ranking { return fnvBasis.write(seed).write("\x00") }

func (r ranking) of(cluster string) uint64 { return mix(uint64(r.write(cluster))) }

// indexHeap is a heap of the numbers 0..n-1.
type indexHeap struct {
	items []int
	less  func(a, b int) bool
}

func newHeap(n int, less func(a, b int) bool) *indexHeap {
	h := &indexHeap{items: make([]int, n), less: less}
	for i := range n {
		h.items[i] = i
	}
	heap.Init(h)
	return h
}

func (h *indexHeap) Len() int           { return len(h.items) }
func (h *indexHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *indexHeap) Swap(i, j int)      { h.items[i], h.items[j] = h.items[j], h.items[i] }
func (h *indexHeap) Push(any)           {}

// Pop takes the last away, which heap.Pop has made the first of all.
func (h *indexHeap) Pop() any {
	h.items = h.items[:len(h.items)-1]
	return nil
}
