package rollout

import (
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// isSuspended reports whether nothing is dispatched to a cluster.
func (s *rolloutStep) isSuspended(c string) bool {
	return s.Halt.Suspension.SuspendsDispatching() || s.Halt.Suspension.HasSuspendedClusters() && s.arrivalRow(c).Suspended
}

// keepsSuspendedCopy reports whether the cluster has a copy which stays as it was ordered, since nothing is dispatched to it.
func (s *rolloutStep) keepsSuspendedCopy(c string) bool {
	return s.isSuspended(c) && s.runsCopy(c)
}

// withholdSuspendedCopies keeps clusters without a copy out of those that are to be Active: nothing is dispatched to them, or other
// Bundles come first. A copy that is being removed comes again after that.
func (s *rolloutStep) withholdSuspendedCopies() {
	if s.Deleting || s.Halt.Suspension == nil && !s.hasOrder() {
		return
	}
	s.suspended = nil
	s.staying = slices.DeleteFunc(s.staying, func(c string) bool {
		if s.runsCopy(c) || !s.isHeldBack(c) {
			return false
		}
		s.suspended = append(s.suspended, c)
		return true
	})
}

// suspendedSharesOf returns the clusters with a copy to which nothing is dispatched, so that their shares of replicas stay.
func (s *rolloutStep) suspendedSharesOf() map[string]bool {
	if s.Halt.Suspension == nil || len(s.Decision.DividedWorkloads()) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, c := range s.staying {
		if s.keepsSuspendedCopy(c) {
			out[c] = true
		}
	}
	return out
}

// setPendingUntilDispatch sets the spec of a row that is to be Active after the suspension, or after other Bundles.
func (s *rolloutStep) setPendingUntilDispatch(c string) {
	v, _ := s.Decision.FindVerdict(c)
	if row, has := s.Rows[c]; has && row.Spec.UID == v.UID && row.Spec.Phase == atoll.RowRemoving && row.Spec.Recall == nil {
		spec := row.Spec
		s.nextSpecs[c] = &spec
		return
	}
	s.keepPlace(c, v)
	why := &atoll.RowReason{Reason: atoll.ReasonDispatchingSuspended, Text: s.Halt.DescribeSuspendedCluster()}
	if !s.isSuspended(c) {
		why = s.orderWaitOf(c)
	}
	s.nextSpecs[c].Reason = why.String()
}

// keepDispatchedWork keeps all that a cluster was ordered to do with its copy.
func (s *rolloutStep) keepDispatchedWork(c string, spec *atoll.RowSpec) {
	old := s.Rows[c].Spec
	spec.Revision, spec.Variant, spec.Absent, spec.ExcludedPending = old.Revision, old.Variant, old.Absent, old.ExcludedPending
	spec.Assigned, spec.OrdinalStarts, spec.HomeItems = old.Assigned, old.OrdinalStarts, old.HomeItems
	if old.Phase == atoll.RowActive {
		spec.ShrinkTo, spec.GrownAt, spec.MovingSince = old.ShrinkTo, old.GrownAt, old.MovingSince
	}
	spec.MovedAt, spec.PreviousRevision = min(old.MovedAt, s.nowUnix), old.PreviousRevision
	delete(s.arriving, c)
}

// keepLeavingWork is keepDispatchedWork for a row that is to go.
func (s *rolloutStep) keepLeavingWork(c string, spec *atoll.RowSpec) {
	if !s.keepsSuspendedCopy(c) {
		return
	}
	since := spec.MovingSince
	s.keepDispatchedWork(c, spec)
	spec.ShrinkTo, spec.MovingSince, spec.HomeItems = nil, since, nil
}

// findLeavingWait returns the wait of a row that is to go once others take its place.
func (s *rolloutStep) findLeavingWait(c string, since time.Time) RowWait {
	blockers := s.blockersByCluster[c]
	if w := s.orderWaitOf(c); s.Deleting && w != nil {
		return newRowWait(w.Reason, w.Text, since)
	}
	if reason, isHeld := s.disruptions.held[c]; isHeld {
		return newRowWait(reason, s.turns.Copies.DescribeHold(reason), since)
	}
	switch {
	case s.awaitsReturn(c):
		return newRowWait(atoll.ReasonWaitsForCluster, "the cluster to come back: its copy is removed then, if the replacements are healthy", since)
	case blockers != nil && blockers.isSuspended:
		return s.newSuspendedMoveWait(blockers, since)
	}
	return newRowWait(atoll.ReasonWaitsForReplacements, blockers.formatNames()+" to become ready"+s.describeGrace(c), since)
}

// hasHeldBackRows reports whether a row that changes may have to wait: a cluster of the Bundle is suspended alone, or other Bundles come first.
func (s *rolloutStep) hasHeldBackRows() bool {
	return (s.Halt.Suspension.HasSuspendedClusters() || s.hasOrder()) && (len(s.suspended) > 0 || s.changesMember())
}

// tallySuspendedCopies counts the clusters that wait for their first copy until the end of the suspension, or for other Bundles. The latter wait
// in their stage.
func (s *rolloutStep) tallySuspendedCopies() {
	for _, c := range s.suspended {
		row := s.arrivalRow(c)
		if !row.Suspended { // all clusters are, or other Bundles come first
			s.tallyArrival(c)
			continue
		}
		n := &s.turns.Stages[row.Stage]
		n.AddRows(RowSuspended, 1)
		n.AddOutsideWaiting(RowSuspended, 1)
	}
}

// allowUnboundedTurns lets all rows change that nothing bounds: only the suspended clusters wait, and those in which other Bundles come first.
func (s *rolloutStep) allowUnboundedTurns(arrivals []string) {
	t := &s.turns
	t.allowed = map[string]bool{}
	slots := noBound
	allow := func(c string, row Row) {
		if s.isDisconnected(row) {
			t.allowed[c] = true
			t.Stages[row.Stage].DisconnectedWaiting--
			return
		}
		s.allowTurn(c, row.Stage, &slots)
	}
	s.eachMember(func(c string) {
		if row, has := s.memberRow(c); has && s.wantsTurn(c, row) && !s.isHeldBack(c) {
			allow(c, row)
		}
	})
	for _, c := range arrivals {
		allow(c, s.arrivalRow(c))
	}
	t.wait = s.Terms.FindStageWait(t.Progress, Halt{}, GateStates{})
}

// suspendedMove is by what the clusters differ that take the places of leaving rows after a suspension.
type suspendedMove struct {
	since       int64
	lacksShares bool
}

// findSuspendedReplacements returns the clusters that take the place of a leaving row after the suspension: they get a copy then, or replicas
// that have no place now. The row stays until they have it, however long that takes.
func (g *blockerCache) findSuspendedReplacements(leaving *atoll.RowSpec) *blockerSet {
	if g.Deleting || g.Halt.Suspension == nil && len(g.suspended) == 0 {
		return nil
	}
	move := suspendedMove{leaving.MovingSince, len(g.assignment.Shortages) > 0 && leaving.HoldsReplicas()}
	w, isKnown := g.suspendedByMove[move]
	if !isKnown {
		w = g.listSuspendedReplacements(move)
		if g.suspendedByMove == nil {
			g.suspendedByMove = map[suspendedMove]*blockerSet{}
		}
		g.suspendedByMove[move] = w
	}
	return w
}

func (g *blockerCache) listSuspendedReplacements(move suspendedMove) *blockerSet {
	w := &blockerSet{isSuspended: true}
	for _, c := range g.suspended {
		row, has := g.Rows[c]
		if has && row.Spec.Phase == atoll.RowPending && row.Spec.UID == g.nextSpecs[c].UID && row.Spec.Since < move.since {
			continue
		}
		w.addCluster(g.rolloutStep, c)
	}
	if !move.lacksShares {
		return w
	}
	for _, c := range g.staying {
		if g.Halt.Suspension.SuspendsScheduling() || g.keepsSuspendedCopy(c) {
			w.addCluster(g.rolloutStep, c)
		}
	}
	slices.Sort(w.clusters)
	return w
}

// awaitsOtherRules reports whether other override rules of the revision that a suspended cluster holds target it now.
func (s *rolloutStep) awaitsOtherRules(c string, spec *atoll.RowSpec) bool {
	v, isKnown := s.Variants[c]
	return isKnown && v != spec.Variant && spec.Revision == s.Revision && s.keepsSuspendedCopy(c)
}

// newSuspendedMoveWait returns the wait of a leaving row for clusters that take its place after the suspension.
func (s *rolloutStep) newSuspendedMoveWait(blockers *blockerSet, since time.Time) RowWait {
	to := blockers.formatNames() + " to take its place: "
	if w := s.findOrderOf(blockers); w != nil {
		return newRowWait(w.Reason, to+w.Text, since)
	}
	if !s.Halt.Suspension.SuspendsChanges() {
		return newRowWait(atoll.ReasonSchedulingSuspended, to+s.Halt.describeSuspension("scheduling", "decisions"), since)
	}
	return newRowWait(atoll.ReasonDispatchingSuspended, to+s.Halt.DescribeSuspendedCluster(), since)
}

// newSuspensionWait returns the wait of a row to whose cluster nothing is dispatched.
func (s *rolloutStep) newSuspensionWait(since time.Time) RowWait {
	return newRowWait(atoll.ReasonDispatchingSuspended, s.Halt.DescribeSuspendedCluster(), since)
}
