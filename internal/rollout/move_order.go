package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// MoveOrder is the order of a move from one cluster to another.
type MoveOrder int

const (
	// ReplacementFirst starts a replacement before the old copy is removed.
	ReplacementFirst MoveOrder = iota
	// OldFirstWhereConnected removes the old copy first where the placement selects one cluster. A
	// disconnected cluster delays nothing. Copies that are ordered in several clusters run at one time
	// anyway.
	OldFirstWhereConnected
	// OldFirst always removes the old copy first: nothing replaces the copy of a disconnected cluster
	// until the cluster has confirmed the removal, or is deleted.
	OldFirst
)

// OrderOfMove returns the order that a policy states, or else that of the content: exclusive copies do not
// run at one time.
func OrderOfMove(stated v1alpha1.MoveOrder, exclusive bool) MoveOrder {
	switch {
	case stated == v1alpha1.MoveRecreate:
		return OldFirst
	case stated == "" && exclusive:
		return OldFirstWhereConnected
	}
	return ReplacementFirst
}

// withholdReplacements keeps as many new copies back as old ones have not ended yet, so that no more run
// than the placement allows. A placement that grows by more clusters than it leaves gets the others at
// once.
func (s *rolloutStep) withholdReplacements() {
	if s.MoveOrder == ReplacementFirst || s.Deleting || s.MoveOrder == OldFirstWhereConnected && len(s.staying)+len(s.recallWaiting) != 1 {
		return
	}
	all := s.endingCopies()
	if s.ending = slices.DeleteFunc(slices.Clone(all), s.delaysNothing); len(s.ending) > 0 {
		s.withholdArrivals()
	}
	s.unreplaced = len(all)
}

// withholdArrivals withholds one arrival for each ending copy. A cluster whose row is being removed and is
// chosen again may run its copy in either case, so it comes first, and only when all such clusters may. An
// arrival that no old copy has kept waiting comes next. Then the longest wait ends first.
func (s *rolloutStep) withholdArrivals() {
	var returning, arrivals, staying []string
	for _, c := range s.staying {
		switch {
		case s.runsCopy(c):
			staying = append(staying, c)
		case s.isRemovingCopy(c):
			returning = append(returning, c)
		default:
			arrivals = append(arrivals, c)
		}
	}
	if len(s.ending) > len(arrivals) {
		s.staying, s.withheld = staying, append(returning, arrivals...)
		slices.Sort(s.withheld)
		return
	}
	slices.SortFunc(arrivals, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.pendingSince(a), s.pendingSince(b)), strings.Compare(a, b))
	})
	come := len(arrivals) - len(s.ending)
	s.staying, s.withheld = slices.Concat(staying, returning, arrivals[:come]), arrivals[come:]
	slices.Sort(s.staying)
	slices.Sort(s.withheld)
}

// pendingSince returns since when the row of the cluster is Pending, in Unix seconds; 0 when it is not.
func (s *rolloutStep) pendingSince(c string) int64 {
	if row := s.Rows[c].Spec; row.Phase == atoll.RowPending {
		return row.Since
	}
	return 0
}

// runsCopy reports whether the cluster has been ordered to run a copy, and still is. A copy that is being
// removed may have ended already.
func (s *rolloutStep) runsCopy(c string) bool {
	row, has := s.Rows[c]
	v, _ := s.Decision.FindVerdict(c)
	return has && row.Spec.UID == v.UID && row.Spec.Phase != atoll.RowRemoving && row.Spec.Phase != atoll.RowPending
}

// isRemovingCopy reports whether the cluster has been ordered to remove a copy, and has not confirmed it.
func (s *rolloutStep) isRemovingCopy(c string) bool {
	row, has := s.Rows[c]
	v, _ := s.Decision.FindVerdict(c)
	return has && row.Spec.UID == v.UID && row.Spec.Phase == atoll.RowRemoving && row.Spec.Recall == nil && !row.isRemoved()
}

// endingCopies lists the clusters that are not chosen and whose copies may still run, sorted.
func (s *rolloutStep) endingCopies() []string {
	going := s.leavingClusters()
	for c := range s.Rows {
		if s.isRemovingCopy(c) && !slices.Contains(s.staying, c) && !slices.Contains(s.recallWaiting, c) && !s.isAbandoned(c) {
			going = append(going, c)
		}
	}
	slices.Sort(going)
	return going
}

// delaysNothing reports whether no replacement waits for the copy in a cluster, since the cluster is
// disconnected. Until the hub can decide, a replacement waits.
func (s *rolloutStep) delaysNothing(c string) bool {
	return s.MoveOrder == OldFirstWhereConnected && !s.Rows[c].Online && !s.isUncertain(c)
}

// isRemoved reports whether the cluster has confirmed the removal of the row.
func (r Row) isRemoved() bool {
	return r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowRemoved
}

// isAbandoned reports whether the Cluster of the row is deleted, so that nothing confirms its removal.
func (s *rolloutStep) isAbandoned(c string) bool {
	return slices.ContainsFunc(s.abandonedRows, func(r AbandonedRow) bool { return r.Cluster == c })
}

// setPendingSpec sets the spec of a row that is to be Active after an old copy has ended. A row that is
// being removed stays so until it is collected. A member that recorded a removal from before a restore has
// nothing left to remove.
func (s *rolloutStep) setPendingSpec(c string) {
	row, v := s.Rows[c], schedule.Verdict{}
	if v, _ = s.Decision.FindVerdict(c); row.Spec.UID == v.UID && row.Spec.Phase == atoll.RowRemoving && row.Spec.Recall == nil {
		return
	}
	s.unreplaced = max(0, s.unreplaced-1)
	s.keepPlace(c, v)
}

// keepPlace sets the spec of a Pending row, which keeps the place of a copy to come.
func (s *rolloutStep) keepPlace(c string, v schedule.Verdict) {
	spec := s.Rows[c].Spec
	if spec.Phase != atoll.RowPending || spec.UID != v.UID {
		spec = atoll.RowSpec{UID: v.UID, Generation: spec.Generation, Phase: atoll.RowPending, Since: s.nowUnix}
	}
	spec.Since = min(spec.Since, s.nowUnix)
	share := s.assignment.ShareOf(c)
	spec.PlacementFingerprint, spec.HomeItems = v.PlacementFingerprint, share.Home
	spec.Assigned, spec.OrdinalStarts = nil, share.OrdinalStarts()
	if len(share.Replicas) > 0 {
		spec.Assigned = share.AssignedReplicas()
	}
	s.moveToTargetRevision(c, &spec)
	spec.MovedAt = 0
	s.nextSpecs[c] = &spec
}

// setPendingUntilTurn sets the spec of a row that is to be Active in its turn of a rollout.
func (s *rolloutStep) setPendingUntilTurn(c string) {
	v, _ := s.Decision.FindVerdict(c)
	s.keepPlace(c, v)
	s.nextSpecs[c].Reason = atoll.RowReason{Reason: atoll.ReasonWaitsForStage, Text: s.describeTurn(c)}.String()
}

// explainPendingRows writes the most pressing wait of the ending copies into the rows that wait for them. The
// stored wait stays while the hub cannot decide which clusters are disconnected.
func (s *rolloutStep) explainPendingRows() {
	if len(s.withheld) == 0 {
		return
	}
	reason, uncertain := s.waitForOldCopies().String(), slices.ContainsFunc(s.ending, s.isUncertain)
	for _, c := range s.withheld {
		spec := s.nextSpecs[c]
		if spec == nil || spec.Phase != atoll.RowPending || uncertain && spec.Reason != "" {
			continue
		}
		spec.Reason = reason
	}
}

// isUncertain reports whether the hub cannot decide yet whether the row's cluster is disconnected. It then requests a
// step for the time at which it can.
func (s *rolloutStep) isUncertain(c string) bool {
	row := s.Rows[c]
	if row.Online || !row.UncertainUntil.After(s.Now) {
		return false
	}
	s.requeueNoLater(row.UncertainUntil)
	return true
}

// uncertainConnection stands for a wait for a cluster whose connection is undecided.
const uncertainConnection atoll.Reason = "uncertain"

// waitForOldCopies returns what the replacements wait for. First comes what only a person can end.
func (s *rolloutStep) waitForOldCopies() atoll.RowReason {
	byReason := map[atoll.Reason][]string{}
	plan := s.pendingRemoval.buildPendingRemoval(s.BundleUID)
	for _, c := range s.ending {
		spec := s.Rows[c].Spec
		if next := s.nextSpecs[c]; next != nil {
			spec = *next
		}
		reason := s.findRowWait(c, spec, plan).Reason
		if reason == atoll.ReasonWaitsForCluster && s.isUncertain(c) {
			reason = uncertainConnection
		}
		byReason[reason] = append(byReason[reason], c)
	}
	for _, of := range []struct {
		wait, reason atoll.Reason
		text         string
	}{
		{atoll.ReasonWaitsForConfirmation, atoll.ReasonWaitsForConfirmation, ", whose removal waits for a confirmation"},
		{atoll.ReasonDisruptionBudgetTooStrict, atoll.ReasonDisruptionBudgetTooStrict, ", which disruptionBudget never lets go"},
		{atoll.ReasonDisruptionBudget, atoll.ReasonDisruptionBudget, ", which disruptionBudget keeps"},
		{atoll.ReasonPodDisruptionBudget, atoll.ReasonPodDisruptionBudget, ", which a PodDisruptionBudget keeps"},
		{atoll.ReasonHookFailed, atoll.ReasonHookFailed, ", whose removal waits for a hook that failed"},
		{atoll.ReasonWaitsForMember, atoll.ReasonWaitsForMember, ", whose removal is blocked in the member"},
		{atoll.ReasonWaitsForCluster, atoll.ReasonWaitsForDisconnectedCopy, ", which is disconnected: it may still run"},
		{uncertainConnection, atoll.ReasonWaitsForOldCopy, ", or the hub to find the cluster disconnected"},
		{atoll.ReasonWaitsForHook, atoll.ReasonWaitsForOldCopy, ", which runs hooks of its removal"},
	} {
		if in := byReason[of.wait]; len(in) > 0 {
			return atoll.RowReason{Reason: of.reason, Text: "the old copy in " + formatFew(in) + " to end" + of.text}
		}
	}
	return atoll.RowReason{Reason: atoll.ReasonWaitsForOldCopy, Text: "the old copy in " + formatFew(s.ending) + " to end"}
}

// waitOfPendingRow returns the wait that a Pending row has stored.
func waitOfPendingRow(spec atoll.RowSpec) RowWait {
	r := atoll.ParseRowReason(spec.Reason)
	return newRowWait(r.Reason, r.Text, time.Unix(spec.Since, 0))
}
