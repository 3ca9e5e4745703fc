package schedule

import (
	"cmp"
	"math"
	"slices"
)

// span of ordinals, the end not in it.
type span struct{ start, end int64 }

// lastOrdinal that an API server admits as a start.
const lastOrdinal = math.MaxInt32

// assignRanged divides a StatefulSet: every cluster that runs some has a range of
// ordinals of its own, of the size that the placement states, from multiples of which
// the ranges begin. A range stays where it is as long as its row is there, whatever
// share and size come to, and is nobody else's before its row is gone.
func (s *sharing) assignRanged(w Workload) (left int64) {
	key, size := w.Key.String(), int64(max(s.scheduling.Ordinals.Size, 1))
	starts, taken := s.ranges(w, size)
	free := s.free
	s.free, s.reach = slices.Clone(free), make(map[string]int64, len(free))
	reach := func(cluster string, has int64) int64 {
		most := size
		if start, ranged := starts[cluster]; ranged {
			most = max(size, has)
			if next := after(taken, start); next > start {
				most = min(most, next-start)
			}
		}
		s.reach[cluster] = most
		return most
	}
	for i := range s.free {
		c := &s.free[i]
		c.Max = min(c.Max, reach(c.Cluster, c.Has))
	}
	for _, cluster := range s.idle {
		reach(cluster, 0)
	}
	left = s.assignDivided(w)
	s.free, s.reach = free, nil
	for _, c := range s.inOrder() {
		share := s.out.Shares[c]
		start, has := starts[c]
		if !has && share.Replicas[key] > 0 {
			var ok bool
			if start, ok = gap(taken, w.Start, size); !ok {
				left += share.Replicas[key]
				share.Replicas[key] = 0
				continue
			}
			taken, has = insert(taken, span{start, start + size}), true
		}
		if has {
			if share.Ordinals == nil {
				share.Ordinals = map[string]int64{}
			}
			share.Ordinals[key] = start
			s.out.Shares[c] = share
		}
	}
	return left
}

// ranges that rows hold: where those of clusters begin, and all that is taken, by
// start. A StatefulSet that was whole begins at home where its template says.
func (s *sharing) ranges(w Workload, size int64) (starts map[string]int64, taken []span) {
	key := w.Key.String()
	starts = map[string]int64{}
	for cluster, row := range s.all {
		start, has := row.Ordinals[key]
		switch {
		case has:
			starts[cluster] = start
		case slices.Contains(row.Home, key):
			start, starts[cluster] = w.Start, w.Start
		case row.Assigned[key] > 0:
			start = w.Start
		default:
			continue
		}
		taken = append(taken, span{start, start + max(size, row.Assigned[key])})
	}
	slices.SortFunc(taken, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	return starts, taken
}

// inOrder gives the clusters that divide and have a share, in the order in which ranges
// are handed out.
func (s *sharing) inOrder() []string {
	out := make([]string, 0, len(s.out.Shares))
	for c := range s.out.Shares {
		out = append(out, c)
	}
	slices.SortFunc(out, s.byRank)
	return out
}

// after gives the first start above this one; 0: there is none.
func after(taken []span, start int64) int64 {
	i, _ := slices.BinarySearchFunc(taken, start+1, func(t span, at int64) int { return cmp.Compare(t.start, at) })
	if i == len(taken) {
		return 0
	}
	return taken[i].start
}

// gap gives the first multiple of size above base from which a range touches none that
// is taken; not ok where there are no more ordinals.
func gap(taken []span, base, size int64) (start int64, ok bool) {
	start = base
	for _, t := range taken {
		if t.start >= start+size {
			// Those behind begin later still.
			break
		}
		if t.end > start {
			start = base + (t.end-base+size-1)/size*size
		}
	}
	return start, start+size-1 <= lastOrdinal
}

func insert(taken []span, t span) []span {
	i, _ := slices.BinarySearchFunc(taken, t.start, func(o span, at int64) int { return cmp.Compare(o.start, at) })
	return slices.Insert(taken, i, t)
}
