package clusterstatus

import "time"

// window in which losses count as one event.
const window = time.Minute

// lossCounter counts streams that were lost and are not back, by the second.
type lossCounter map[int64]int

func (l lossCounter) add(at time.Time) { l[at.Unix()]++ }

func (l lossCounter) remove(at time.Time) {
	if l[at.Unix()]--; l[at.Unix()] <= 0 {
		delete(l, at.Unix())
	}
}

// mostPerMinute returns the most losses in any minute up to now that includes the given time.
func (l lossCounter) mostPerMinute(at, now time.Time) int {
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

// overdueCounter counts members that have missed a check-in and are neither back nor reported as
// silent. A step in time costs the seconds since the last one, whatever the fleet.
type overdueCounter struct {
	until  int64         // in Unix seconds: up to here n counts
	n      int           // of those that are overdue
	future map[int64]int // those that will be, by the second
}

func newOverdueCounter() *overdueCounter { return &overdueCounter{future: map[int64]int{}} }

// expectUntil expects a member back until then.
func (o *overdueCounter) expectUntil(until time.Time) {
	if s := until.Unix(); s > o.until {
		o.future[s]++
	} else {
		o.n++
	}
}

// removeOne removes a member that was expected until then.
func (o *overdueCounter) removeOne(until time.Time) {
	s := until.Unix()
	if s <= o.until {
		o.n--
	} else if o.future[s]--; o.future[s] <= 0 {
		delete(o.future, s)
	}
}

// countAt returns the number at that time: how many are overdue.
func (o *overdueCounter) countAt(now time.Time) int {
	s := now.Unix()
	if s-o.until > int64(len(o.future)) {
		for second, n := range o.future {
			if second <= s {
				o.n += n
				delete(o.future, second)
			}
		}
		o.until = max(o.until, s)
	}
	for ; o.until < s; o.until++ {
		o.n += o.future[o.until+1]
		delete(o.future, o.until+1)
	}
	return o.n
}
