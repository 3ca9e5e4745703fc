package schedule

import (
	"cmp"
	"math"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// ordinalSpan is a range of ordinals; end is not in it.
type ordinalSpan struct{ start, end int64 }

// lastOrdinal that an API server admits as a start.
const lastOrdinal = math.MaxInt32

// assignRanged divides a StatefulSet. Every cluster that runs some of it has a range of
// ordinals of its own, of the size that the placement states; ranges begin at multiples of
// it. A range stays as long as its row is there, whatever the share and the size. No other
// row gets it before.
func (s *shareAssigner) assignRanged(item int) (left int64) {
	w, key := &s.workloads[item], s.assignment.itemKey(item)
	size := int64(max(s.scheduling.Ordinals.Size, 1))
	starts, taken := s.currentOrdinalRanges(w, key, size)
	free := s.candidates
	s.candidates, s.rangeLimits = slices.Clone(free), make([]int64, len(s.assignment.clusters))
	reach := func(at int32, has int64) int64 {
		most := size
		if start := starts[at]; start != noRangeStart {
			most = max(size, has)
			if next := nextStartAfter(taken, start); next > start {
				most = min(most, next-start)
			}
		}
		s.rangeLimits[at] = most
		return most
	}
	for i := range s.candidates {
		c := &s.candidates[i]
		c.Max = min(c.Max, reach(c.shareIndex, c.Current))
	}
	for _, at := range s.idle {
		reach(at, 0)
	}
	left = s.assignDivided(item)
	s.candidates, s.rangeLimits = free, nil
	return left + s.assignOrdinalRanges(item, starts, ordinalGaps{usedSpans: taken, base: w.Start, size: size, start: w.Start})
}

// assignOrdinalRanges gives ranges to clusters that have a share and no range, in the order of
// their ranks. It returns how many replicas there are no ordinals for.
func (s *shareAssigner) assignOrdinalRanges(item int, starts []int64, free ordinalGaps) (left int64) {
	a := &s.assignment
	var without []int32
	for at, start := range starts {
		switch {
		case start != noRangeStart:
			a.setOrdinalRangeStart(int32(at), item, start)
		case a.replicasOf(int32(at), item) > 0:
			without = append(without, int32(at))
		}
	}
	s.sortByRank(without)
	for _, at := range without {
		if start, ok := free.nextGap(); ok {
			a.setOrdinalRangeStart(at, item, start)
			continue
		}
		left += a.replicasOf(at, item)
		a.setReplicas(at, item, 0)
	}
	return left
}

// currentOrdinalRanges returns where the ranges of clusters with a share begin, noRangeStart for those
// without one, and all taken ranges, by start. A StatefulSet that was whole begins at home
// where its template states it.
func (s *shareAssigner) currentOrdinalRanges(w *Workload, key string, size int64) (starts []int64, taken []ordinalSpan) {
	starts = slices.Repeat([]int64{noRangeStart}, len(s.assignment.clusters))
	if len(s.allRows) == 0 {
		return starts, nil
	}
	at := func(row *atoll.RowSpec) int64 {
		start, has := row.OrdinalStarts[key]
		switch {
		case has:
			return start
		case slices.Contains(row.HomeItems, key):
			return w.Start
		}
		return noRangeStart
	}
	for i := range starts {
		if row := s.Verdicts[s.verdicts[i]].storedRow; row != nil {
			starts[i] = at(row)
		}
	}
	taken = make([]ordinalSpan, 0, len(s.allRows))
	for _, row := range s.allRows {
		start, has := at(&row), row.Assigned[key]
		if start == noRangeStart && has <= 0 {
			continue
		}
		if start == noRangeStart {
			start = w.Start
		}
		taken = append(taken, ordinalSpan{start, start + max(size, has)})
	}
	slices.SortFunc(taken, func(a, b ordinalSpan) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	return starts, taken
}

// nextStartAfter returns the first start above this one; 0: there is none.
func nextStartAfter(taken []ordinalSpan, start int64) int64 {
	i, _ := slices.BinarySearchFunc(taken, start+1, func(t ordinalSpan, at int64) int { return cmp.Compare(t.start, at) })
	if i == len(taken) {
		return 0
	}
	return taken[i].start
}

// ordinalGaps are the multiples of size above base whose ranges touch no taken one, one
// after the other.
type ordinalGaps struct {
	usedSpans         []ordinalSpan // by start
	base, size, start int64
}

// nextGap returns the next gap; not ok where there are no more ordinals.
func (g *ordinalGaps) nextGap() (start int64, ok bool) {
	for len(g.usedSpans) > 0 && g.usedSpans[0].start < g.start+g.size {
		if end := g.usedSpans[0].end; end > g.start {
			g.start = g.base + (end-g.base+g.size-1)/g.size*g.size
		}
		g.usedSpans = g.usedSpans[1:]
	}
	start = g.start
	if ok = start+g.size-1 <= lastOrdinal; ok {
		g.start += g.size
	}
	return start, ok
}
