package ownership

import (
	"cmp"
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
	turns  map[leavingTurn]*turnClaims
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

// indexLeaving notes whether a Bundle's claim on a key leaves, and in which turn. nil: there is no claim.
func (b *OwnershipRecords) indexLeaving(key atoll.ItemKey, uid string, c *Claim) {
	l := b.leaving[uid]
	if l != nil {
		b.removeLeaving(l, key)
	}
	if c != nil && c.State == Leaving {
		if l == nil {
			l = &leavingClaims{turnOf: map[atoll.ItemKey]leavingTurn{}, turns: map[leavingTurn]*turnClaims{}}
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
	}
	t.keys[key], l.turnOf[key] = true, turn
	if leavesAfterOthers(key) {
		return
	}
	t.awaited++
	if !l.hasFront || turn.compareTurns(l.front) < 0 {
		l.front, l.hasFront = turn, true
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
	if len(t.keys) == 0 {
		delete(l.turns, turn)
	}
	if leavesAfterOthers(key) {
		return
	}
	if t.awaited--; t.awaited > 0 || turn != l.front {
		return
	}
	l.moveFront()
	for next, claims := range l.turns {
		if next.compareTurns(turn) > 0 && !l.isBlocked(next) {
			maps.Copy(b.unblocked, claims.keys)
		}
	}
}

// moveFront finds the first turn with objects that others wait for.
func (l *leavingClaims) moveFront() {
	l.hasFront = false
	for turn, t := range l.turns {
		if t.awaited > 0 && (!l.hasFront || turn.compareTurns(l.front) < 0) {
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
