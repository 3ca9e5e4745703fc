package schedule

import (
	"cmp"
	"math"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// span of ordinals, the end not in it.
type span struct{ start, end int64 }

// lastOrdinal that an API server admits as a start.
const lastOrdinal = math.MaxInt32

// assignRanged divides a StatefulSet: every cluster that runs some has a range of
// ordinals of its own, of the size that the placement states, from multiples of which
// the ranges begin. A range stays where it is as long as its row is there, whatever
// share and size come to, and is nobody else's before its row is gone.
func (s *sharing) assignRanged(item int) (left int64) {
	w, key := &s.workloads[item], s.out.key(item)
	size := int64(max(s.scheduling.Ordinals.Size, 1))
	starts, taken := s.ranges(w, key, size)
	free := s.free
	s.free, s.reach = slices.Clone(free), make([]int64, len(s.out.Shares))
	reach := func(at int32, has int64) int64 {
		most := size
		if start := starts[at]; start != noStart {
			most = max(size, has)
			if next := after(taken, start); next > start {
				most = min(most, next-start)
			}
		}
		s.reach[at] = most
		return most
	}
	for i := range s.free {
		c := &s.free[i]
		c.Max = min(c.Max, reach(c.at, c.Has))
	}
	for _, at := range s.idle {
		reach(at, 0)
	}
	left = s.assignDivided(item)
	s.free, s.reach = free, nil
	return left + s.begins(item, starts, gaps{taken: taken, base: w.Start, size: size, start: w.Start})
}

// begins gives clusters that have a share and no range one, in the order of their ranks,
// and tells how many replicas there are no ordinals for.
func (s *sharing) begins(item int, starts []int64, free gaps) (left int64) {
	// As many as there are items for each cluster, in one piece.
	var begin []int64
	var without []int32
	for at := range s.out.Shares {
		share := &s.out.Shares[at]
		n := len(share.Items)
		if share.starts == nil && (starts[at] != noStart || share.Replicas[item] > 0) {
			if len(begin) < n {
				begin = slices.Repeat([]int64{noStart}, n*(len(s.out.Shares)-at))
			}
			share.starts, begin = begin[:n:n], begin[n:]
		}
		switch {
		case starts[at] != noStart:
			share.starts[item] = starts[at]
		case share.Replicas[item] > 0:
			without = append(without, int32(at))
		}
	}
	s.byRank(without)
	for _, at := range without {
		share := &s.out.Shares[at]
		if start, ok := free.next(); ok {
			share.starts[item] = start
			continue
		}
		left += share.Replicas[item]
		share.Replicas[item] = 0
	}
	return left
}

// ranges that rows hold: where those of clusters that have a share begin, noStart for
// those that hold none, and all that is taken, by start. A StatefulSet that was whole
// begins at home where its template says.
func (s *sharing) ranges(w *Workload, key string, size int64) (starts []int64, taken []span) {
	starts = slices.Repeat([]int64{noStart}, len(s.out.Shares))
	if len(s.all) == 0 {
		return starts, nil
	}
	at := func(row *atoll.RowSpec) int64 {
		start, has := row.Ordinals[key]
		switch {
		case has:
			return start
		case slices.Contains(row.Home, key):
			return w.Start
		}
		return noStart
	}
	for i := range starts {
		if row := s.Verdicts[s.verdicts[i]].row; row != nil {
			starts[i] = at(row)
		}
	}
	taken = make([]span, 0, len(s.all))
	for _, row := range s.all {
		start, has := at(&row), row.Assigned[key]
		if start == noStart && has <= 0 {
			continue
		}
		if start == noStart {
			start = w.Start
		}
		taken = append(taken, span{start, start + max(size, has)})
	}
	slices.SortFunc(taken, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	return starts, taken
}

// after gives the first start above this one; 0: there is none.
func after(taken []span, start int64) int64 {
	i, _ := slices.BinarySearchFunc(taken, start+1, func(t span, at int64) int { return cmp.Compare(t.start, at) })
	if i == len(taken) {
		return 0
	}
	return taken[i].start
}

// gaps are the multiples of size above base from which ranges touch none that is taken,
// one after the other.
type gaps struct {
	taken             []span // by start
	base, size, start int64
}

// next gap; not ok where there are no more ordinals.
func (g *gaps) next() (start int64, ok bool) {
	for len(g.taken) > 0 && g.taken[0].start < g.start+g.size {
		if end := g.taken[0].end; end > g.start {
			g.start = g.base + (end-g.base+g.size-1)/g.size*g.size
		}
		g.taken = g.taken[1:]
	}
	start = g.start
	if ok = start+g.size-1 <= lastOrdinal; ok {
		g.start += g.size
	}
	return start, ok
}
