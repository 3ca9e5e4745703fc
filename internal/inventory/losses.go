package inventory

import "time"

// window in which losses count as one event.
const window = time.Minute

// losses counts streams that were lost and are not back, by the second.
type losses map[int64]int

func (l losses) add(at time.Time) { l[at.Unix()]++ }

func (l losses) remove(at time.Time) {
	if l[at.Unix()]--; l[at.Unix()] <= 0 {
		delete(l, at.Unix())
	}
}

// most losses in any minute up to now that includes the given moment.
func (l losses) most(at, now time.Time) int {
	size := int64(window / time.Second)
	first, last := at.Unix()-size+1, min(now.Unix(), at.Unix()+size-1)
	best := 0
	for from := first; from <= at.Unix(); from++ {
		n := 0
		for s := from; s < from+size && s <= last; s++ {
			n += l[s]
		}
		best = max(best, n)
	}
	return best
}
