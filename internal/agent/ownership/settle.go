package ownership

import (
	"cmp"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// resolveClaims brings the claims on one key to rest: parked ones end when their target
// came or will not come, leaving ones are released while another claim lives,
// and an owner is chosen.
func (b *OwnershipRecords) resolveClaims(key atoll.ItemKey) {
	r := b.records[key]
	if r == nil {
		return
	}
	b.resolveParkedClaims(r)
	live, parked := 0, 0
	for _, c := range r.Claims {
		switch {
		case c.isLive():
			live++
		case c.State == Parked:
			parked++
		}
	}
	// While it is not known whether an object exists, it may carry the label of a
	// leaving claim; the claim stays until that is known.
	if r.UID != "" && live+parked > 0 {
		b.dropLeavingClaims(r)
	}
	if owner := b.pickOwner(r); owner != r.Owner {
		r.Owner = owner
		b.markDirty(key)
	}
	b.endApprovals(r)
	if parked == 0 {
		delete(b.parked, key)
	}
	if len(r.Claims) == 0 && !r.Implicit && r.UID == "" {
		b.dropRecord(key)
	}
}

// dropLeavingClaims ends the leaving claims of a record.
func (b *OwnershipRecords) dropLeavingClaims(r *Record) {
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		if r.Claims[uid].State == Leaving {
			b.setClaim(r, uid, nil)
		}
	}
}

// resolveParkedClaims ends the parked claims whose wait is over.
func (b *OwnershipRecords) resolveParkedClaims(r *Record) {
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		c := r.Claims[uid]
		if c.State != Parked {
			continue
		}
		targets, taken := b.followMoveTargets(r, uid, c)
		if taken || len(targets) == 0 {
			c.State, c.MovedTo = Leaving, nil
			b.setClaim(r, uid, &c)
		}
	}
}

// followMoveTargets follows the moves of a parked claim through the tombstones of the
// Bundles that it moved to, and lists those that may still take it. taken: one of
// them claims the object.
//
// Moves that lead in a circle mean that one of the manifests is old: the newer one
// is on its way, and is waited for.
func (b *OwnershipRecords) followMoveTargets(r *Record, from string, c Claim) (waiting []string, taken bool) {
	const onPath, done = 1, 2
	state := map[string]int{from: onPath}
	var visit func(uid string)
	visit = func(uid string) {
		switch {
		case state[uid] == onPath:
			waiting = append(waiting, uid)
			return
		case state[uid] == done:
			return
		case r.Claims[uid].isLive() && r.Claims[uid].Template == c.Template:
			taken = true
			return
		}
		state[uid] = onPath
		defer func() { state[uid] = done }()
		if _, gone := b.buried[uid]; gone {
			return
		}
		nb := b.bundles[uid]
		if nb == nil {
			waiting = append(waiting, uid)
			return
		}
		if t, dead := nb.tombstoneFor(r.Key, c.Template); dead {
			for _, next := range t.MovedTo {
				visit(next)
			}
		} else {
			// Also a Bundle that is being removed may come back, until the hub has received that it is gone.
			waiting = append(waiting, uid)
		}
	}
	for _, uid := range c.MovedTo {
		visit(uid)
	}
	return waiting, taken
}

// pickOwner keeps the current owner while its claim exists, its content is known, and it writes. Otherwise
// it prefers a claim that writes, then one on the template from which the object was created, then one that
// is not a mere dependency, then the lowest UID.
func (b *OwnershipRecords) pickOwner(r *Record) string {
	if c := r.Claims[r.Owner]; (c.State == Wanted || c.State == Kept && b.bundles[r.Owner] != nil) && !b.isObserver(r.Owner, r.Key) {
		return r.Owner
	}
	best, bestScore := "", -1
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		c := r.Claims[uid]
		if !c.isLive() {
			continue
		}
		if r.UID != "" && c.Template != r.Template && r.isKeptForOtherBundle(r.Template) {
			continue // kept for a Bundle that takes this very object over
		}
		score := r.ownerScore(c)
		if !b.isObserver(uid, r.Key) {
			score += 8
		}
		if score > bestScore {
			best, bestScore = uid, score
		}
	}
	return cmp.Or(best, r.Owner)
}

// isObserver reports whether the Bundle observes the key's object instead of writing it.
func (b *OwnershipRecords) isObserver(uid string, key atoll.ItemKey) bool {
	nb := b.bundles[uid]
	return nb != nil && nb.listed[key] != nil && nb.listed[key].Observe != ""
}

// ownerScore returns how much a claim is preferred as the owner.
func (r *Record) ownerScore(c Claim) (score int) {
	if c.Template == r.Template && r.UID != "" {
		score += 4
	}
	if c.State == Wanted {
		score += 2
	}
	if !c.Dependency {
		score++
	}
	return score
}
