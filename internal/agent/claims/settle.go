package claims

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// settle brings the claims on one key to rest: parked ones end when their target
// came or will not come, leaving ones are released while another claim lives,
// and an owner is chosen.
func (b *Book) settle(key atoll.ItemKey) {
	r := b.records[key]
	if r == nil {
		return
	}
	b.settleParked(r)
	live, parked := 0, 0
	for _, c := range r.Claims {
		switch {
		case c.live():
			live++
		case c.State == Parked:
			parked++
		}
	}
	if live > 0 || parked > 0 {
		for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
			if r.Claims[uid].State == Leaving {
				b.setClaim(r, uid, nil)
			}
		}
	}
	if owner := b.pickOwner(r); owner != r.Owner {
		r.Owner = owner
		b.soil(key)
	}
	if parked == 0 {
		delete(b.parked, key)
	}
	if len(r.Claims) == 0 && !r.Implicit && r.UID == "" {
		b.forget(key)
	}
}

// settleParked ends the parked claims whose wait is over.
func (b *Book) settleParked(r *Record) {
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		c := r.Claims[uid]
		if c.State != Parked {
			continue
		}
		targets, taken := b.targets(r, uid, c)
		switch {
		case taken:
			b.setClaim(r, uid, nil)
		case len(targets) == 0:
			c.State, c.MovedTo = Leaving, nil
			b.setClaim(r, uid, &c)
		}
	}
}

// targets follows the moves of a parked claim through the tombstones of the
// Bundles that it moved to. taken: one of them claims the object.
func (b *Book) targets(r *Record, from string, c Claim) (waiting []string, taken bool) {
	seen := map[string]bool{from: true}
	for queue := slices.Clone(c.MovedTo); len(queue) > 0; queue = queue[1:] {
		uid := queue[0]
		if seen[uid] {
			continue
		}
		seen[uid] = true
		if r.Claims[uid].live() {
			return nil, true
		}
		if _, gone := b.buried[uid]; gone {
			continue
		}
		nb := b.bundles[uid]
		if nb == nil {
			waiting = append(waiting, uid)
			continue
		}
		if t, dead := nb.tombstone(r.Key, c.Template); dead {
			queue = append(queue, t.MovedTo...)
		} else if !nb.holding.Manifest.Remove {
			waiting = append(waiting, uid)
		}
	}
	return waiting, false
}

// pickOwner keeps the owner while its claim lives; then it prefers a claim on the
// template that the object was made for, then one that is more than a
// dependency, then the lowest UID.
func (b *Book) pickOwner(r *Record) string {
	if r.Claims[r.Owner].live() {
		return r.Owner
	}
	best, bestScore := "", -1
	for _, uid := range slices.Sorted(maps.Keys(r.Claims)) {
		c := r.Claims[uid]
		if !c.live() || slices.Contains(r.Past, c.Template) {
			continue
		}
		score := 0
		if c.Template == r.Template && r.UID != "" {
			score += 4
		}
		if c.State == Wanted {
			score += 2
		}
		if !c.Dependency {
			score++
		}
		if score > bestScore {
			best, bestScore = uid, score
		}
	}
	if best == "" {
		return r.Owner
	}
	return best
}
