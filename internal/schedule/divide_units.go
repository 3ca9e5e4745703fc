package schedule

import "slices"

// minUnitsAtOnce is from how many units on they are moved at once.
const minUnitsAtOnce = 16

// giveOrTakeOneEach gives one unit to each of the n clusters with the best claims to a next one, or takes one
// from the n with the worst claims to their last. It moves nothing and reports false where this differs
// from moving n units one by one: some cluster's second unit would come before another one's first.
func (d *replicaDivision) giveOrTakeOneEach(n uint64, give bool) bool {
	if n < minUnitsAtOnce || n > uint64(len(d.roundShare)) {
		return false
	}
	isBefore, step := d.isLastAfter, ^uint64(0) // which takes one
	if give {
		isBefore, step = d.isNextBefore, 1
	}
	numbers := sequentialIndexes(len(d.roundShare))
	selectFirst(numbers, int(n), isBefore)
	numbers = numbers[:n]
	last := numbers[0]
	for _, i := range numbers {
		if isBefore(last, i) {
			last = i
		}
	}
	if !d.canReceiveOrLose(last, give) {
		return false
	}
	d.addToShares(numbers, step)
	if slices.ContainsFunc(numbers, func(i int32) bool {
		return i != last && d.canReceiveOrLose(i, give) && d.hasTwoMovesBefore(i, last, give)
	}) {
		d.addToShares(numbers, -step)
		return false
	}
	return true
}

// addToShares adds to the shares of the round; a step of ^0 subtracts one.
func (d *replicaDivision) addToShares(numbers []int32, step uint64) {
	for _, i := range numbers {
		d.roundShare[i] += step
	}
}

// canReceiveOrLose reports whether the bounds of a cluster let it get or lose a unit.
func (d *replicaDivision) canReceiveOrLose(i int32, give bool) bool {
	if give {
		return d.roundShare[i] < d.most[i]
	}
	return d.roundShare[i] > d.least[i]
}

// hasTwoMovesBefore reports whether, after both moved a unit, a's second unit comes before b's first.
func (d *replicaDivision) hasTwoMovesBefore(a, b int32, give bool) bool {
	if give {
		return d.isUnitBefore(a, d.roundShare[a], b, d.roundShare[b]-1)
	}
	return d.isUnitBefore(b, d.roundShare[b], a, d.roundShare[a]-1)
}

// sequentialIndexes returns the numbers from 0 below n.
func sequentialIndexes(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// selectFirst moves the first n of the numbers to the front, in any order. It takes linear time, and
// n log n in the worst case.
func selectFirst(numbers []int32, n int, isBefore func(a, b int32) bool) {
	for rounds := 0; len(numbers) > 1 && n > 0 && n < len(numbers); rounds++ {
		if rounds > 64 {
			h := numberHeap{numbers: numbers[:n], isBefore: func(a, b int32) bool { return isBefore(b, a) }}
			h.replaceWithEarlier(numbers[n:])
			return
		}
		if low := splitByPivot(numbers, isBefore); n <= low {
			numbers = numbers[:low]
		} else {
			numbers, n = numbers[low+1:], n-low-1
		}
	}
}

// splitByPivot arranges the numbers so that those below the pivot's index come before the pivot, and those
// above it after the pivot. The pivot is the middle one of three.
func splitByPivot(numbers []int32, isBefore func(a, b int32) bool) (low int) {
	end := len(numbers) - 1
	a, b, c := 0, len(numbers)/2, end
	if isBefore(numbers[b], numbers[a]) {
		a, b = b, a
	}
	if isBefore(numbers[c], numbers[b]) {
		if b = c; isBefore(numbers[c], numbers[a]) {
			b = a
		}
	}
	numbers[b], numbers[end] = numbers[end], numbers[b]
	for i, x := range numbers[:end] {
		if isBefore(x, numbers[end]) {
			numbers[i], numbers[low] = numbers[low], x
			low++
		}
	}
	numbers[low], numbers[end] = numbers[end], numbers[low]
	return low
}
