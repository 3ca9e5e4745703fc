package ownership

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// leavingTurn is when a leaving object of a Bundle is deleted: later waves first, and those that go last after all waves.
type leavingTurn struct {
	last bool
	wave int32
}

// compareTurns returns a negative number for a turn before the other.
func (t leavingTurn) compareTurns(o leavingTurn) int {
	switch {
	case t.last == o.last:
		return cmp.Compare(o.wave, t.wave)
	case o.last:
		return -1
	}
	return 1
}

// leavingClaims are the leaving claims of one Bundle.
type leavingClaims struct {
	turnOf map[atoll.ItemKey]leavingTurn
	// turns with claims, and empty ones that are still in waiting.
	turns map[leavingTurn]*turnClaims
	// waiting has the blocked turns, each once. Turns outside of it are in open.
	waiting turnHeap
	open    map[leavingTurn]bool
	// front is the first turn with objects that others wait for, if there is one.
	front    leavingTurn
	hasFront bool
}

// turnClaims are the claims of one turn.
type turnClaims struct {
	keys map[atoll.ItemKey]bool
	// awaited counts those keys that later turns wait for.
	awaited int
}

// turnHeap has the first turn at its top.
type turnHeap []leavingTurn

// Len implements heap.Interface.
func (h turnHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h turnHeap) Less(i, j int) bool { return h[i].compareTurns(h[j]) < 0 }

// Swap implements heap.Interface.
func (h turnHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *turnHeap) Push(turn any) { *h = append(*h, turn.(leavingTurn)) }

// Pop implements heap.Interface.
func (h *turnHeap) Pop() any {
	last := len(*h) - 1
	turn := (*h)[last]
	*h = (*h)[:last]
	return turn
}

// indexLeaving notes whether a Bundle's claim on a key leaves, and in which turn. nil: there is no claim.
func (b *OwnershipRecords) indexLeaving(key atoll.ItemKey, uid string, c *Claim) {
	l := b.leaving[uid]
	if l != nil {
		b.removeLeaving(l, key)
	}
	if c != nil && c.State == Leaving {
		if l == nil {
			l = &leavingClaims{turnOf: map[atoll.ItemKey]leavingTurn{}, turns: map[leavingTurn]*turnClaims{}, open: map[leavingTurn]bool{}}
			b.leaving[uid] = l
		}
		l.addClaim(key, leavingTurn{c.Last, c.Wave})
	}
	if l != nil && len(l.turnOf) == 0 {
		delete(b.leaving, uid)
	}
}

// addClaim adds a claim to its turn.
func (l *leavingClaims) addClaim(key atoll.ItemKey, turn leavingTurn) {
	t := l.turns[turn]
	if t == nil {
		t = &turnClaims{keys: map[atoll.ItemKey]bool{}}
		l.turns[turn] = t
		if l.isBlocked(turn) {
			heap.Push(&l.waiting, turn)
		} else {
			l.open[turn] = true
		}
	}
	t.keys[key], l.turnOf[key] = true, turn
	if leavesAfterOthers(key) {
		return
	}
	t.awaited++
	if !l.hasFront || turn.compareTurns(l.front) < 0 {
		l.setFront(turn)
	}
}

// setFront makes a turn the front, so that those after it wait.
func (l *leavingClaims) setFront(turn leavingTurn) {
	l.front, l.hasFront = turn, true
	for other := range l.open {
		if l.isBlocked(other) {
			delete(l.open, other)
			heap.Push(&l.waiting, other)
		}
	}
}

// removeLeaving takes a claim out of its turn, and notes the keys whose turn comes by that.
func (b *OwnershipRecords) removeLeaving(l *leavingClaims, key atoll.ItemKey) {
	turn, leaves := l.turnOf[key]
	if !leaves {
		return
	}
	t := l.turns[turn]
	delete(t.keys, key)
	delete(l.turnOf, key)
	if len(t.keys) == 0 && l.open[turn] {
		delete(l.turns, turn)
		delete(l.open, turn)
	}
	if leavesAfterOthers(key) {
		return
	}
	if t.awaited--; t.awaited == 0 && turn == l.front {
		b.openTurns(l)
	}
}

// openTurns opens the turns that no longer wait, up to the new front, and notes their keys. It costs what it opens.
func (b *OwnershipRecords) openTurns(l *leavingClaims) {
	for l.hasFront = false; len(l.waiting) > 0 && !l.hasFront; {
		turn := heap.Pop(&l.waiting).(leavingTurn)
		t := l.turns[turn]
		if len(t.keys) == 0 {
			delete(l.turns, turn)
			continue
		}
		maps.Copy(b.unblocked, t.keys)
		l.open[turn] = true
		if t.awaited > 0 {
			l.front, l.hasFront = turn, true
		}
	}
}

// isBlocked reports whether a turn waits for another one.
func (l *leavingClaims) isBlocked(turn leavingTurn) bool {
	return l.hasFront && l.front.compareTurns(turn) < 0
}

// leavesAfterOthers reports whether an object itself stays until others are gone, which may be those of later turns: a
// definition until the objects of its kind are, a namespace until all in it are, and a volume claim until its Pods are.
// So nothing waits for it.
func leavesAfterOthers(key atoll.ItemKey) bool {
	return IsCRD(key) || key.IsNamespace() || key.Group == "" && key.Kind == "PersistentVolumeClaim"
}

// LeavingWait is what the deletion of an object waits for.
type LeavingWait struct {
	// Objects is the number of objects in the turn that it waits for; 0: it waits for none.
	Objects int
	// Wave of that turn.
	Wave int32
	// IsLast: the object leaves after those of all waves.
	IsLast bool
}

// LeavingBefore returns what the deletion of the key's object waits for. It waits while each Bundle that takes it out
// has others to take out before.
func (b *OwnershipRecords) LeavingBefore(key atoll.ItemKey) (wait LeavingWait) {
	r := b.records[key]
	if r == nil {
		return LeavingWait{}
	}
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		c := r.Claims[uid]
		if c.State != Leaving {
			continue
		}
		l := b.leaving[uid]
		if l == nil || !l.isBlocked(leavingTurn{c.Last, c.Wave}) {
			return LeavingWait{}
		}
		wait.Objects += l.turns[l.front].awaited
		wait.Wave, wait.IsLast = l.front.wave, c.Last
	}
	return wait
}

// TakeUnblocked returns the keys of objects that waited for others to leave, and no longer do. Sorted.
func (b *OwnershipRecords) TakeUnblocked() []atoll.ItemKey {
	if len(b.unblocked) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.unblocked), CompareKeys)
	clear(b.unblocked)
	return keys
}
