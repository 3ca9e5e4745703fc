package rollout

import (
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// growShares raises shares at once, adds shares that the row does not state yet, and drops
// those of items that are not divided any more. Smaller shares wait for applySafeShareReductions.
func (s *rolloutStep) growShares(c string, spec *atoll.RowSpec, want schedule.ClusterShare) {
	spec.HomeItems, spec.OrdinalStarts = want.Home, want.OrdinalStarts()
	due := spec.ShrinkTo
	if spec.ShrinkTo = nil; len(want.Replicas) == 0 {
		spec.Assigned, spec.MovingSince = nil, 0
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
			spec.GrownAt, s.arriving[c] = s.nowUnix, true
		default:
			next[item], shrinks = old, true
			if _, was := due[item]; was || want.FromScratch {
				if spec.ShrinkTo == nil {
					spec.ShrinkTo = map[string]int64{}
				}
				spec.ShrinkTo[item] = n
			}
		}
	}
	spec.Assigned = next
	switch {
	case !shrinks:
		spec.MovingSince = 0
	case spec.MovingSince == 0:
		spec.MovingSince = s.moveStart
	}
	if spec.GrownAt <= spec.Since {
		spec.GrownAt = 0
	}
}

// keepDividedShares returns the shares that a leaving row keeps: its own, and nothing of
// items that were divided later.
func (s *rolloutStep) keepDividedShares(old map[string]int64) map[string]int64 {
	workloads := s.Decision.DividedWorkloads()
	if len(workloads) == 0 {
		return old
	}
	next := make(map[string]int64, len(workloads))
	for _, w := range workloads {
		next[w.Key.String()] = old[w.Key.String()]
	}
	return next
}

// pruneUnassignedOrdinalStarts keeps the starts of items that are still divided.
func pruneUnassignedOrdinalStarts(old, assigned map[string]int64) map[string]int64 {
	gone := func(item string, _ int64) bool { _, has := assigned[item]; return !has }
	next := maps.Clone(old)
	if maps.DeleteFunc(next, gone); len(next) == 0 {
		return nil
	}
	return next
}

// applySafeShareReductions lets shares shrink where every share that grew since is healthy. All are judged
// before any shrinks, since a row that changes is not known to be healthy.
func (s *rolloutStep) applySafeShareReductions() {
	if s.areRowsIndependent {
		return // no share is divided
	}
	g, blockers := blockerCache{rolloutStep: s}, map[string]*blockerSet{}
	for _, c := range s.staying {
		if since := s.nextSpecs[c].MovingSince; since != 0 {
			blockers[c] = g.unreadyReplacements(since).withoutCluster(s, c)
		}
	}
	ordered := s.listOrderedArrivals()
	for _, c := range s.staying {
		spec := s.nextSpecs[c]
		if spec.MovingSince == 0 {
			continue
		}
		if len(ordered.clusters) > 0 {
			s.blockersByCluster[c] = ordered
		}
		if len(s.withheld)+len(s.suspended) > 0 || s.keepsSuspendedCopy(c) { // replicas grow before they shrink, however long that takes
			continue
		}
		if b := blockers[c]; b.countClusters() > 0 {
			s.blockersByCluster[c] = b
			if !s.hasTimedOut(spec.MovingSince, b) {
				continue
			}
			if !s.confirmed {
				s.pendingRemoval.addShareReduction(c, *spec, s.assignment.ShareOf(c).AssignedReplicas(), b)
				continue
			}
			delete(s.blockersByCluster, c)
		}
		spec.Assigned, spec.MovingSince, spec.ShrinkTo = s.assignment.ShareOf(c).AssignedReplicas(), 0, nil
	}
}

// blockerCache holds results that many rows of one step need. It is valid while no row that
// stays is changed.
type blockerCache struct {
	*rolloutStep
	unreadyByMove     map[int64]*blockerSet
	suspendedByMove   map[suspendedMove]*blockerSet
	keepAliveBlockers *blockerSet // see keepers; nil before it is computed
}

// isRecentArrival reports whether an unhealthy row came so shortly before that others wait
// for it, although it belongs to an earlier edit.
func (s *rolloutStep) isRecentArrival(c string) bool {
	end := time.Unix(s.nextSpecs[c].JoinedOrGrownAt(), 0).Add(s.Rows[c].readinessTimeout())
	if !s.Rows[c].Online || !s.Now.Before(end) {
		return false
	}
	s.requeueNoLater(end)
	return true
}

// unreadyReplacements returns the rows that came or grew in the move that began then, or
// later, and are not healthy.
func (g *blockerCache) unreadyReplacements(move int64) *blockerSet {
	if w, ok := g.unreadyByMove[move]; ok {
		return w
	}
	w := &blockerSet{}
	for _, r := range g.staying {
		if (g.arriving[r] || g.moveResumed && g.nextSpecs[r].JoinedOrGrownAt() >= move) && !g.isReady(r) {
			w.addCluster(g.rolloutStep, r)
		}
	}
	if g.unreadyByMove == nil {
		g.unreadyByMove = map[int64]*blockerSet{}
	}
	g.unreadyByMove[move] = w
	return w
}

// findAvailabilityBlockers returns the rows for which a healthy row is kept although they do
// not replace it: all staying rows when none of them is healthy, else the recent arrivals.
func (g *blockerCache) findAvailabilityBlockers() *blockerSet {
	if g.keepAliveBlockers != nil {
		return g.keepAliveBlockers
	}
	healthy, all, young := len(g.staying)+len(g.suspended) == 0, &blockerSet{isSuspended: len(g.suspended) > 0}, &blockerSet{}
	for _, r := range g.staying {
		all.addCluster(g.rolloutStep, r)
		if g.isReady(r) {
			healthy = true
		} else if g.isRecentArrival(r) {
			young.addCluster(g.rolloutStep, r)
		}
	}
	if g.keepAliveBlockers = young; !healthy {
		for _, r := range g.suspended {
			all.addCluster(g.rolloutStep, r)
		}
		slices.Sort(all.clusters)
		g.keepAliveBlockers = all
	}
	return g.keepAliveBlockers
}

// isReady reports whether the row, with its next spec, is known to be healthy. A row that
// changes now is not.
func (s *rolloutStep) isReady(c string) bool {
	row, has := s.Rows[c]
	return has && row.isReady() && row.Spec.UID == s.nextSpecs[c].UID && isSameWork(row.Spec, *s.nextSpecs[c])
}

// hasTimedOut reports whether the wait for these rows is over, which began then or when the
// last of them came. If it is not, a step is requested for its end.
func (s *rolloutStep) hasTimedOut(since int64, blockers *blockerSet) bool {
	end := time.Unix(max(since, blockers.latestArrivals[0]), 0).Add(blockers.longestTimeouts[0])
	if s.Now.Before(end) {
		s.requeueNoLater(end)
		return false
	}
	return true
}

// awaitsReturn reports whether a leaving row stays because its cluster is lost, or one that is drained or in which the application failed is
// disconnected, and not back. An order to remove it would be carried out at the return, although the replacement may be lost by then.
func (s *rolloutStep) awaitsReturn(c string) bool {
	v, _ := s.Decision.FindVerdict(c)
	return (v.LeavesLost || v.LeavesDrained || v.LeavesFailed) && !s.Deleting && !s.Rows[c].Online
}

// removeReplacedRows lets rows go whose replacements are healthy.
func (s *rolloutStep) removeReplacedRows() {
	g := blockerCache{rolloutStep: s}
	for _, c := range s.leavingInTurn() {
		spec := s.nextSpecs[c]
		if spec.Phase != atoll.RowLeaving || s.awaitsReturn(c) || s.keepsFailedCopy(c, spec) || s.keepsForBudget(c, spec) {
			continue
		}
		if blockers := g.findBlockers(c, *spec); blockers.countClusters() > 0 {
			s.blockersByCluster[c] = blockers
			if !s.goesBeforeReplacements(c, spec, blockers) {
				continue
			}
			delete(s.blockersByCluster, c)
		}
		if s.keepsForDependents(c, spec) {
			continue
		}
		s.takeLeavingCopy(c)
		s.setRemovingSpec(c, spec.Reason)
	}
}

// findBlockers returns the rows for which row c is kept.
//
// First, its replacements. Second, a healthy row is kept while no staying row is healthy,
// also where the others came by an earlier edit: the application must run somewhere. Third,
// for the same reason, it waits a while for rows that came shortly before it had to go.
func (g *blockerCache) findBlockers(c string, spec atoll.RowSpec) *blockerSet {
	if w := g.findSuspendedReplacements(&spec); w.countClusters() > 0 {
		return w
	}
	if g.Deleting || len(g.withheld) > 0 && slices.Contains(g.ending, c) { // a replacement waits for its end
		return &blockerSet{}
	}
	if w := g.unreadyReplacements(spec.MovingSince); w.countClusters() > 0 {
		return w
	}
	if st := g.Rows[c].Status; st == nil || st.State != atoll.RowReady {
		return &blockerSet{}
	}
	return g.findAvailabilityBlockers()
}

// setRemovingSpec sets the tombstone of a row: all of it stays as it was, at the same
// revision.
func (s *rolloutStep) setRemovingSpec(c, reason string) {
	spec := s.Rows[c].Spec
	spec.Phase, spec.Since, spec.Reason = atoll.RowRemoving, s.nowUnix, reason
	v, _ := s.Decision.FindVerdict(c)
	spec.Orphan = s.isOrphanRemoval() || v.Orphan
	spec.GrownAt, spec.MovingSince, spec.HomeItems, spec.ShrinkTo = 0, 0, nil, nil
	s.orderRemovalHooks(&spec)
	s.nextSpecs[c] = &spec
}
