package statemetrics

import "container/heap"

// waitAges is a multiset of the times at which waits began, in Unix seconds. Adding and removing
// cost the logarithm of the number of different times.
type waitAges struct {
	counts map[int64]int // 0: in the heap, and no wait began then
	starts startHeap
	unused int // times in the heap at which no wait began
}

func newWaitAges() *waitAges { return &waitAges{counts: map[int64]int{}} }

func (w *waitAges) addStart(start int64) {
	count, inHeap := w.counts[start]
	switch {
	case !inHeap:
		heap.Push(&w.starts, start)
	case count == 0:
		w.unused--
	}
	w.counts[start] = count + 1
}

func (w *waitAges) removeStart(start int64) {
	if w.counts[start]--; w.counts[start] > 0 {
		return
	}
	if w.unused++; w.unused > len(w.starts)/2 {
		w.dropUnused()
	}
}

// dropUnused rebuilds the heap. It costs its size, once in as many removals.
func (w *waitAges) dropUnused() {
	used := w.starts[:0]
	for _, start := range w.starts {
		if w.counts[start] > 0 {
			used = append(used, start)
		} else {
			delete(w.counts, start)
		}
	}
	w.starts, w.unused = used, 0
	heap.Init(&w.starts)
}

// oldestStart returns the earliest time; false when nothing waits.
func (w *waitAges) oldestStart() (int64, bool) {
	for len(w.starts) > 0 && w.counts[w.starts[0]] == 0 {
		delete(w.counts, heap.Pop(&w.starts).(int64))
		w.unused--
	}
	if len(w.starts) == 0 {
		return 0, false
	}
	return w.starts[0], true
}

// startHeap is a heap of times, the earliest one first.
type startHeap []int64

// Len is heap.Interface's.
func (h startHeap) Len() int { return len(h) }

// Less is heap.Interface's.
func (h startHeap) Less(i, j int) bool { return h[i] < h[j] }

// Swap is heap.Interface's.
func (h startHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is heap.Interface's.
func (h *startHeap) Push(x any) { *h = append(*h, x.(int64)) }

// Pop is heap.Interface's.
func (h *startHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
