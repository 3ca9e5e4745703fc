package schedule

// numberHeap is a heap of numbers, the first on top.
type numberHeap struct {
	numbers  []int32
	isBefore func(a, b int32) bool
}

// newNumberHeap returns a heap of the numbers from 0 below n.
func newNumberHeap(n int, isBefore func(a, b int32) bool) *numberHeap {
	h := &numberHeap{numbers: sequentialIndexes(n), isBefore: isBefore}
	h.buildHeap()
	return h
}

func (h *numberHeap) buildHeap() {
	for i := len(h.numbers)/2 - 1; i >= 0; i-- {
		h.siftDown(i)
	}
}

// replaceWithEarlier exchanges the numbers of the heap for those of others that do not come before the top, so
// that it has as many as before.
func (h *numberHeap) replaceWithEarlier(others []int32) {
	h.buildHeap()
	for _, x := range others {
		if len(h.numbers) > 0 && h.isBefore(h.numbers[0], x) {
			h.numbers[0] = x
			h.siftDown(0)
		}
	}
}

func (h *numberHeap) siftDown(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.numbers) {
			return
		}
		if r := child + 1; r < len(h.numbers) && h.isBefore(h.numbers[r], h.numbers[child]) {
			child = r
		}
		if !h.isBefore(h.numbers[child], h.numbers[i]) {
			return
		}
		h.numbers[i], h.numbers[child] = h.numbers[child], h.numbers[i]
		i = child
	}
}

func (h *numberHeap) push(x int32) {
	h.numbers = append(h.numbers, x)
	for i := len(h.numbers) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.isBefore(h.numbers[i], h.numbers[parent]) {
			return
		}
		h.numbers[i], h.numbers[parent] = h.numbers[parent], h.numbers[i]
		i = parent
	}
}

func (h *numberHeap) pop() int32 {
	x, last := h.numbers[0], len(h.numbers)-1
	h.numbers[0] = h.numbers[last]
	h.numbers = h.numbers[:last]
	h.siftDown(0)
	return x
}
