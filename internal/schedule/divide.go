package schedule

import (
	"container/heap"
	"hash/fnv"
	"math/bits"
	"slices"
	"strings"
)

// Weighted is a cluster and its weight in a division. Weights of 0 and less get
// nothing; above MaxWeight they count as MaxWeight.
type Weighted struct {
	Cluster string
	Weight  int64
}

// MaxWeight is far above what the API admits (1,000 entries of 1,000,000), and low
// enough that the weights of four million clusters have a sum.
const MaxWeight = 1 << 40

// Divide total among clusters by weight. The shares add up to total, or are all
// absent when no weight is positive; a negative total counts as 0. seed decides
// between clusters that have equal claims.
//
// Units go one by one to the cluster with the largest weight/(2·share+1), the
// method of Sainte-Laguë: it rounds like largest remainders do, but the order of
// the units does not depend on the total, so growing the total never takes from
// anyone and losing a cluster moves its units only. Largest remainders alone
// promise neither. No history is needed for that, so a restart, a preview and
// another hub all see the same division.
func Divide(total int64, clusters []Weighted, seed string) map[string]int64 {
	d := newDivision(clusters, seed)
	if len(d.weight) == 0 {
		return map[string]int64{}
	}
	d.fill(uint64(max(total, 0)))
	out := make(map[string]int64, len(d.name))
	for i, name := range d.name {
		out[name] = int64(d.share[i])
	}
	return out
}

// division holds clusters in the order in which ties are broken.
type division struct {
	name   []string
	weight []uint64
	share  []uint64
}

func newDivision(clusters []Weighted, seed string) *division {
	type entry struct {
		Weighted
		rank uint64
	}
	es := make([]entry, 0, len(clusters))
	for _, c := range clusters {
		if c.Weight > 0 {
			es = append(es, entry{c, rank(seed, c.Cluster)})
		}
	}
	slices.SortFunc(es, func(a, b entry) int {
		if a.rank != b.rank {
			if a.rank < b.rank {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Cluster, b.Cluster)
	})
	d := &division{name: make([]string, 0, len(es)), weight: make([]uint64, 0, len(es)), share: make([]uint64, len(es))}
	for _, e := range es {
		d.name = append(d.name, e.Cluster)
		d.weight = append(d.weight, uint64(min(e.Weight, MaxWeight)))
	}
	return d
}

// rank of a cluster for one Bundle: ties fall differently in every Bundle, so that
// odd replicas do not pile up on the cluster that is first in the alphabet.
func rank(seed, cluster string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(seed))
	h.Write([]byte{0})
	h.Write([]byte(cluster))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// fill starts from the rounded-down quotas, which are near the end result, hands
// out the rest, and swaps until no cluster has a better claim to its next unit
// than another has to its last.
func (d *division) fill(total uint64) {
	var sum, given uint64
	for _, w := range d.weight {
		sum += w
	}
	for i, w := range d.weight {
		hi, lo := bits.Mul64(total, w)
		d.share[i], _ = bits.Div64(hi, lo, sum)
		given += d.share[i]
	}
	next := newHeap(len(d.weight), func(a, b int) bool { return d.before(a, d.share[a], b, d.share[b]) })
	last := newHeap(len(d.weight), func(a, b int) bool {
		switch {
		case d.share[a] == 0:
			return false
		case d.share[b] == 0:
			return true
		}
		return d.before(b, d.share[b]-1, a, d.share[a]-1)
	})
	give := func(i int, n uint64) {
		d.share[i] += n
		next.fix(i)
		last.fix(i)
	}
	for ; given < total; given++ {
		give(next.top(), 1)
	}
	for {
		to, from := next.top(), last.top()
		if to == from || d.share[from] == 0 || !d.before(to, d.share[to], from, d.share[from]-1) {
			return
		}
		give(to, 1)
		give(from, ^uint64(0))
	}
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
	return a < b
}

// indexHeap is a heap of the numbers 0..n-1 in which a number can be moved to its
// place after what it is compared by has changed.
type indexHeap struct {
	items, at []int
	less      func(a, b int) bool
}

func newHeap(n int, less func(a, b int) bool) *indexHeap {
	h := &indexHeap{items: make([]int, n), at: make([]int, n), less: less}
	for i := range n {
		h.items[i], h.at[i] = i, i
	}
	heap.Init(h)
	return h
}

func (h *indexHeap) top() int           { return h.items[0] }
func (h *indexHeap) fix(i int)          { heap.Fix(h, h.at[i]) }
func (h *indexHeap) Len() int           { return len(h.items) }
func (h *indexHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *indexHeap) Push(any)           {}
func (h *indexHeap) Pop() any           { return nil }
func (h *indexHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.at[h.items[i]], h.at[h.items[j]] = i, j
}
