package history

import "container/heap"

// timeQueue is a heap of changes, the oldest first. Changes that are removed from the index stay in it until
// they come first.
type timeQueue []*Change

func (q timeQueue) Len() int           { return len(q) }
func (q timeQueue) Less(i, j int) bool { return q[i].At.Before(q[j].At) }
func (q timeQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *timeQueue) Push(c any) { *q = append(*q, c.(*Change)) }

// Pop implements heap.Interface.
func (q *timeQueue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return c
}

// FindOldest returns the oldest kept change; nil: there is none.
func (x *Index) FindOldest() *Change {
	for len(x.byTime) > 0 {
		if c := x.byTime[0]; x.byID[c.ID] == c {
			return c
		}
		heap.Pop(&x.byTime)
	}
	return nil
}

// noteTime adds a change to the queue. It drops removed changes when they are most of the queue.
func (x *Index) noteTime(c *Change) {
	heap.Push(&x.byTime, c)
	if len(x.byTime) > 2*len(x.byID)+64 {
		x.byTime = x.byTime[:0:0]
		for _, c := range x.byID {
			x.byTime = append(x.byTime, c)
		}
		heap.Init(&x.byTime)
	}
}
