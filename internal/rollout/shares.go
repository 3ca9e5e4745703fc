package rollout

import (
	"maps"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// grow raises shares at once, gives shares that the row does not state yet and
// drops those of items that are not divided any more. Smaller shares wait for
// gateShares.
func (s *step) grow(c string, spec *atoll.RowSpec, want schedule.Share) {
	spec.Home, spec.Ordinals = want.Home, want.Ordinals()
	due := spec.Due
	if spec.Due = nil; len(want.Replicas) == 0 {
		spec.Assigned, spec.Moving = nil, 0
		return
	}
	next, shrinks := make(map[string]int64, len(want.Replicas)), false
	for i, item := range want.Items {
		n := want.Replicas[i]
		old, has := spec.Assigned[item]
		switch {
		case !has || n == old:
			next[item] = n
		case n > old:
			next[item] = n
			spec.Grown, s.came[c] = s.now, true
		default:
			next[item], shrinks = old, true
			if _, was := due[item]; was || want.Anew {
				if spec.Due == nil {
					spec.Due = map[string]int64{}
				}
				spec.Due[item] = n
			}
		}
	}
	spec.Assigned = next
	switch {
	case !shrinks:
		spec.Moving = 0
	case spec.Moving == 0:
		spec.Moving = s.moving
	}
	if spec.Grown <= spec.Since {
		spec.Grown = 0
	}
}

// keepShare is what a row that is to go keeps: what it has, and nothing of items
// that were divided later.
func (s *step) keepShare(old map[string]int64) map[string]int64 {
	workloads := s.Decision.Workloads()
	if len(workloads) == 0 {
		return old
	}
	next := make(map[string]int64, len(workloads))
	for _, w := range workloads {
		next[w.Key.String()] = old[w.Key.String()]
	}
	return next
}

// keepOrdinals of items that are still divided.
func keepOrdinals(old, assigned map[string]int64) map[string]int64 {
	gone := func(item string, _ int64) bool { _, has := assigned[item]; return !has }
	next := maps.Clone(old)
	if maps.DeleteFunc(next, gone); len(next) == 0 {
		return nil
	}
	return next
}

// gateShares lets shares shrink where every share that grew since is healthy. All
// are judged before any shrinks, since a row that changes is not known to be
// healthy.
func (s *step) gateShares() {
	g, blockers := gate{step: s}, map[string]*crowd{}
	for _, c := range s.stays {
		if since := s.next[c].Moving; since != 0 {
			blockers[c] = g.replacements(since).without(s, c)
		}
	}
	for _, c := range s.stays {
		spec := s.next[c]
		if spec.Moving == 0 {
			continue
		}
		if b := blockers[c]; b.size() > 0 {
			s.blocked[c] = b
			if !s.patienceOver(spec.Moving, b) {
				continue
			}
			if !s.released {
				s.plan.shrink(c, *spec, s.assigned.Of(c).Assigned(), b)
				continue
			}
			delete(s.blocked, c)
		}
		spec.Assigned, spec.Moving, spec.Due = s.assigned.Of(c).Assigned(), 0, nil
	}
}

// gate holds what is asked for many rows of one step. It may be used as long as no
// row that stays is changed.
type gate struct {
	*step
	moves    map[int64]*crowd
	standing *crowd // see keepers; nil before it was asked for
}

// young tells whether a row that is not healthy came so shortly before that it may
// be waited for although it belongs to an earlier edit.
func (s *step) young(c string) bool {
	end := time.Unix(s.next[c].Came(), 0).Add(s.Rows[c].patience())
	if !s.Rows[c].Online || !s.Now.Before(end) {
		return false
	}
	s.wake(end)
	return true
}

// replacements of rows that give way in the move that began then, that are not
// healthy: rows that came or grew in that move or later.
func (g *gate) replacements(move int64) *crowd {
	if w, ok := g.moves[move]; ok {
		return w
	}
	w := &crowd{}
	for _, r := range g.stays {
		if (g.came[r] || g.begun && g.next[r].Came() >= move) && !g.ready(r) {
			w.add(g.step, r)
		}
	}
	if g.moves == nil {
		g.moves = map[int64]*crowd{}
	}
	g.moves[move] = w
	return w
}

// last are the rows that a healthy row is kept for though they do not replace it:
// all that stay, when none of them is healthy, else those that are still young.
func (g *gate) last() *crowd {
	if g.standing != nil {
		return g.standing
	}
	healthy, all, young := len(g.stays) == 0, &crowd{}, &crowd{}
	for _, r := range g.stays {
		all.add(g.step, r)
		if g.ready(r) {
			healthy = true
		} else if g.young(r) {
			young.add(g.step, r)
		}
	}
	if g.standing = young; !healthy {
		g.standing = all
	}
	return g.standing
}

// ready tells whether the row, as it is about to be, is known to be healthy. A row
// that changes now is not.
func (s *step) ready(c string) bool {
	row, has := s.Rows[c]
	return has && row.ready() && row.Spec.UID == s.next[c].UID && sameWork(row.Spec, *s.next[c])
}

// patienceOver tells whether the wait for these rows, which began then or when the
// last of them came, is over; if not, it asks to be called when it is.
func (s *step) patienceOver(since int64, blockers *crowd) bool {
	end := time.Unix(max(since, blockers.came[0]), 0).Add(blockers.patience[0])
	if s.Now.Before(end) {
		s.wake(end)
		return false
	}
	return true
}

// gateLeavers lets rows go whose replacements are healthy.
func (s *step) gateLeavers() {
	g := gate{step: s}
	for _, c := range s.leavers() {
		spec := s.next[c]
		if spec.Phase != atoll.RowLeaving {
			continue
		}
		if blockers := g.keepers(c, *spec); blockers.size() > 0 {
			s.blocked[c] = blockers
			if !s.patienceOver(spec.Since, blockers) {
				continue
			}
			if !s.released {
				s.plan.unready(c, *spec, blockers)
				continue
			}
			delete(s.blocked, c)
		}
		s.remove(c, spec.Reason)
	}
}

// keepers are the rows for whose sake row c is kept.
//
// First, its replacements. Second, a row that is healthy is not taken away while
// none that stays is: that the others came by an earlier edit makes no difference
// to who uses the application. Third, for the same reason, it waits a while for
// rows that came shortly before it was told to go and are still on their way.
func (g *gate) keepers(c string, spec atoll.RowSpec) *crowd {
	if g.Deleting {
		return &crowd{}
	}
	if w := g.replacements(spec.Moving); w.size() > 0 {
		return w
	}
	if st := g.Rows[c].Status; st == nil || st.State != atoll.RowReady {
		return &crowd{}
	}
	return g.last()
}

// remove gives the tombstone of a row: all of it stays as it was, no revision is
// put on top.
func (s *step) remove(c, reason string) {
	spec := s.Rows[c].Spec
	spec.Phase, spec.Since, spec.Reason = atoll.RowRemoving, s.now, reason
	v, _ := s.Decision.Verdict(c)
	spec.Orphan = s.orphans() || v.Orphan
	spec.Grown, spec.Moving, spec.Home, spec.Due = 0, 0, nil, nil
	s.next[c] = &spec
}
