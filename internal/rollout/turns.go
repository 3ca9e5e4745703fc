package rollout

import (
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
)

// turns are which rows take the desired revision now, where the Bundle states a rollout or is paused. Nothing of
// them is stored but the time at which a row was allowed to change.
type turns struct {
	// isBounded: the Bundle states a rollout or is paused.
	isBounded bool
	Progress
	// windows are what the change windows decide now.
	windows changewindow.View
	// wait is for what the rows at rest wait.
	wait StageWait
	// allowed clusters change in this step.
	allowed map[string]bool
	// withheld clusters get their first copy in their turn. They are Pending until then.
	withheld []string
	// awaited clusters have rows whose reports may let others change.
	awaited []string
	// soakUntil is when the last row of each stage has been healthy for minSuccessTime, in Unix seconds.
	soakUntil []int64
	// healthySince is when the last row of each stage became healthy, by its member, in Unix seconds.
	healthySince []int64
	// scope decides which of the failing clusters hold the rollout.
	scope   FailureScope
	failing []string
	// rollback is to be stored; nil: none. returns are the clusters that return in this step, and blocked are those that cannot, and
	// why.
	rollback *v1alpha1.RollbackStatus
	returns  map[string]bool
	blocked  map[string]string
	// failedSince is when a row of the failed stage failed, in Unix seconds.
	failedSince int64
	// cut of automatic stages to store, and the terms by it; nil: none.
	cut      *v1alpha1.StageCut
	cutTerms *Terms
	// isDivided: no other cut makes a crowded stage smaller.
	isDivided bool
	// gates are the verdicts to store. gateAgain is when time alone may change one.
	gates     []v1alpha1.GateStatus
	gateAgain time.Time
	// uncertainUntil is the first time at which the hub can decide that a cluster is disconnected.
	uncertainUntil time.Time
	// lossEnds is the first time at which a disconnected cluster stops counting.
	lossEnds time.Time
	// deadline is the first time at which a cluster that changes counts as failed.
	deadline time.Time
}

// awaitDeadline records the end of a progressDeadline; zero is none.
func (t *turns) awaitDeadline(end time.Time) {
	if !end.IsZero() && (t.deadline.IsZero() || end.Before(t.deadline)) {
		t.deadline = end
	}
}

// planTurns decides which rows change now. Rows at rest and at the desired revision cost no memory.
func (s *rolloutStep) planTurns() {
	if s.Deleting || s.Revision == "" || !s.isRolloutBounded() {
		return
	}
	t := &s.turns
	stages, copies := s.Terms.CountStages(), t.Copies
	t.isBounded, t.Progress, t.soakUntil, t.healthySince = true, s.Terms.NewProgress(), make([]int64, stages), make([]int64, stages)
	t.Copies = copies
	t.scope, t.windows = NewFailureScope(s.ResumedAt, s.Now), s.Terms.ViewWindows(s.Now)
	arrivals := s.withoutReplacements(s.tallyMembers())
	if s.Terms.IsDefault() && !s.Halt.IsHalted() { // a first copy is no change of what runs
		arrivals = nil
	}
	for _, c := range arrivals {
		s.tallyArrival(c)
	}
	s.tallySuspendedCopies()
	s.tallyFailures()
	if !s.planRollback() {
		s.planForwardTurns(arrivals)
	}
	t.withheld = slices.DeleteFunc(arrivals, func(c string) bool { return t.allowed[c] })
	if slices.Sort(t.withheld); len(t.withheld) > 0 {
		s.staying = slices.DeleteFunc(slices.Clone(s.staying), func(c string) bool {
			_, waits := slices.BinarySearch(t.withheld, c)
			return waits
		})
	}
	if s.followsReports() {
		s.requestNextTurn()
	}
}

// planForwardTurns decides which rows take the target revision now.
func (s *rolloutStep) planForwardTurns(arrivals []string) {
	t := &s.turns
	s.keepDecidedGates(v1alpha1.GatePassed, v1alpha1.GateFailed)
	t.wait = s.Terms.FindStageWait(t.Progress, s.Halt, NewGateStates(s.Revision, s.storedGates(), &t.scope))
	switch {
	case s.Halt.IsHalted() || t.wait.Reason == atoll.ReasonStageFailed:
	case s.Terms == nil:
		s.allowUnboundedTurns(arrivals)
	case t.wait.isUncut:
		t.cut, t.cutTerms = s.cutStages()
	case s.hasCrowdedStage():
		s.divideCrowdedStage(arrivals)
	default:
		s.allowTurns(arrivals)
	}
}

// followsReports reports whether a report may change which rows take a turn: rows wait, or may have to return.
func (s *rolloutStep) followsReports() bool {
	return s.turns.countWaiting() > 0 || s.Terms.RollsBack()
}

// isRolloutBounded reports whether rows may have to wait for their turn. The default bounds only a change of what runs.
func (s *rolloutStep) isRolloutBounded() bool {
	isDefault := s.Terms.IsDefault()
	if s.Terms.HasDefaultBound() {
		s.Terms = s.Terms.ForClusters(s.countCopies(v1alpha1.DefaultFreeClusters + 1))
	}
	if s.hasBudget() && s.Terms == nil {
		s.Terms, isDefault = s.Terms.WithBudget(s.Budget), true
	}
	switch {
	case s.Halt.IsHalted() || s.hasHeldBackRows():
		return true
	case isDefault:
		return s.Terms != nil && s.changesMember()
	}
	return s.Terms != nil
}

// countCopies counts the clusters with a copy, those that are being removed included, up to a number.
func (s *rolloutStep) countCopies(most int) (n int) {
	for c, row := range s.Rows {
		if spec, isSet := s.nextSpecs[c]; row.Spec.Phase == atoll.RowPending || isSet && spec == nil { // its Cluster is deleted
			continue
		}
		if n++; n == most {
			break
		}
	}
	return n
}

// changesMember reports whether a row does not hold what is wanted.
func (s *rolloutStep) changesMember() (changes bool) {
	s.eachMember(func(c string) {
		if !changes {
			row, has := s.memberRow(c)
			changes = has && s.wantsTurn(c, row)
		}
	})
	return changes
}

// eachMember calls fn for the clusters that hold the Bundle, or are to hold it.
func (s *rolloutStep) eachMember(fn func(c string)) {
	for _, list := range [...][]string{s.staying, s.newlyLeaving, s.heldClusters, s.leaving} {
		for _, c := range list {
			fn(c)
		}
	}
}

// tallyMembers counts the rows that hold a revision, and returns the clusters that are to get their first one.
func (s *rolloutStep) tallyMembers() (arrivals []string) {
	s.eachMember(func(c string) {
		if row, has := s.memberRow(c); has {
			s.tallyRow(c, row)
		} else {
			arrivals = append(arrivals, c)
		}
	})
	return arrivals
}

// memberRow returns the row of a cluster that holds a revision.
func (s *rolloutStep) memberRow(c string) (Row, bool) {
	row, has := s.Rows[c]
	if !has || row.Spec.Phase == atoll.RowPending {
		return row, false
	}
	if len(s.nextSpecs) == 0 {
		return row, true
	}
	_, abandoned := s.nextSpecs[c] // its Cluster was replaced
	return row, !abandoned
}

func (s *rolloutStep) tallyRow(c string, row Row) {
	t, isWanted := &s.turns, !s.wantsTurn(c, row)
	n, row := &t.Stages[row.Stage], t.scope.JudgeRow(s.Terms, row)
	p, isUnavailable := s.placeRow(row, isWanted)
	n.AddRows(p, 1)
	if isUnavailable && !(isWanted && t.scope.IsExcused(s.Terms, row)) {
		t.AddUnavailable(p, 1, c)
	}
	switch p {
	case RowDisconnected, RowSuspended:
		if !isWanted {
			n.AddOutsideWaiting(p, 1)
		}
	case RowFailing:
		t.failing = append(t.failing, c)
	case RowChanging:
		t.awaitDeadline(s.Terms.DeadlineOf(row, s.Now))
	case RowUpdated:
		if s.tallySuccessTime(n, row); !s.Terms.mayRollBack(row, s.nowUnix) {
			return
		}
	case RowWaiting:
		t.scope.AddWaiting(row)
		s.tallyWaiting(c, row)
		if !isUnavailable {
			return
		}
	}
	t.awaited = append(t.awaited, c)
}

// placeRow returns where a row is, and whether it is unavailable. While the hub cannot decide whether its
// cluster is disconnected, the row counts, and not as healthy.
func (s *rolloutStep) placeRow(row Row, isWanted bool) (p RowProgress, isUnavailable bool) {
	if s.isConnectionUncertain(row) {
		row.Online = true
		if p, _ = s.Terms.PlaceRow(row, isWanted, s.Now); p == RowUpdated {
			p = RowChanging
		}
		return p, true
	}
	if p, isUnavailable = s.Terms.PlaceRow(row, isWanted, s.Now); !row.Online && p != RowDisconnected {
		if end := s.Terms.CountsUntil(row, s.Now); end.After(s.Now) && (s.turns.lossEnds.IsZero() || end.Before(s.turns.lossEnds)) {
			s.turns.lossEnds = end
		}
	}
	return p, isUnavailable
}

// tallySuccessTime counts a healthy row that is so for a shorter time than minSuccessTime.
func (s *rolloutStep) tallySuccessTime(n *StageTally, row Row) {
	if since := row.Status.Since; since <= s.nowUnix { // a member's clock may be ahead
		s.turns.healthySince[row.Stage] = max(s.turns.healthySince[row.Stage], since)
	}
	end := row.healthySince(s.nowUnix) + int64(s.Terms.successTimeOf(row.Stage)/time.Second)
	if end > s.nowUnix {
		n.Soaking++
		s.turns.soakUntil[row.Stage] = max(s.turns.soakUntil[row.Stage], end)
	}
}

// tallyFailures judges the failing rows, when all that waits is known.
func (s *rolloutStep) tallyFailures() {
	t := &s.turns
	for _, c := range t.failing {
		row := t.scope.JudgeRow(s.Terms, s.Rows[c])
		isHeld := t.scope.IsHeldBy(s.Terms, row)
		if t.Stages[row.Stage].AddFailures(row, isHeld, 1); !isHeld {
			continue
		}
		if since := min(row.failureTime(), s.nowUnix); t.failedSince == 0 || since < t.failedSince {
			t.failedSince = since
		}
	}
}

// tallyArrival counts a cluster that waits for its first copy.
func (s *rolloutStep) tallyArrival(c string) {
	row := s.arrivalRow(c)
	n := &s.turns.Stages[row.Stage]
	if row.Spec.Phase != atoll.RowPending {
		row.Spec = atoll.RowSpec{} // that of a Cluster that was replaced
	}
	if s.isDisconnected(row) {
		n.Disconnected++
		n.DisconnectedWaiting++
		s.turns.awaited = append(s.turns.awaited, c)
		return
	}
	n.AddRows(RowWaiting, 1)
	s.tallyWaiting(c, row)
	s.turns.scope.AddWaiting(row)
}

// arrivalRow returns what is known of a cluster that is to get its first copy.
func (s *rolloutStep) arrivalRow(c string) Row {
	if row, has := s.Rows[c]; has {
		return row
	}
	return s.NewClusters[c]
}

// isDisconnected reports whether the hub can decide that a cluster is disconnected.
func (s *rolloutStep) isDisconnected(row Row) bool {
	return !row.Online && !s.isConnectionUncertain(row)
}

// isConnectionUncertain reports whether the hub cannot decide yet that a cluster is disconnected.
func (s *rolloutStep) isConnectionUncertain(row Row) bool {
	if row.Online || !row.UncertainUntil.After(s.Now) {
		return false
	}
	if at := &s.turns.uncertainUntil; at.IsZero() || row.UncertainUntil.Before(*at) {
		*at = row.UncertainUntil
	}
	return true
}

// wantsTurn reports whether a row does not hold what is ordered. By default, a row without the capacity for it waits for
// the capacity alone.
func (s *rolloutStep) wantsTurn(c string, row Row) bool {
	if row.Spec.Revision == s.Revision || s.staysAtRevision(c, &row.Spec) {
		return false
	}
	if !s.Terms.IsDefault() {
		return true
	}
	v, _ := s.Decision.FindVerdict(c)
	return !s.isBlockedByCapacity(c, v)
}

// withoutReplacements returns the arrivals that wait for their turn. One that replaces a copy does not: a move is
// no change of a template. A removal that waits for a confirmation is none. Neither does one that takes a share of divided replicas after the first installation.
func (s *rolloutStep) withoutReplacements(arrivals []string) []string {
	moving := len(s.newlyLeaving) + len(s.leaving)
	if s.moveResumed {
		for _, c := range s.staying {
			if row := s.Rows[c].Spec; row.Phase == atoll.RowActive && row.Since >= s.moveStart {
				moving--
			}
		}
	}
	divides := len(s.Decision.DividedWorkloads()) > 0 && s.turns.countConnected() > 0
	return slices.DeleteFunc(arrivals, func(c string) bool {
		row, has := s.Rows[c]
		if has && row.Spec.Phase == atoll.RowPending {
			reason := atoll.ParseRowReason(row.Spec.Reason).Reason
			if reason == atoll.ReasonDispatchingSuspended || atoll.IsOrderReason(reason) { // it may be either
				moving--
				return moving >= 0
			}
			return reason != atoll.ReasonWaitsForStage
		}
		if divides {
			return true
		}
		moving--
		return moving >= 0
	})
}

// allowTurns lets rows change, stage by stage, until one is not done.
func (s *rolloutStep) allowTurns(arrivals []string) {
	t := &s.turns
	t.allowed = map[string]bool{}
	budget := s.Terms.unavailableOf(t.countConnected()) - t.Unavailable
	for i := range t.Stages {
		if !s.passGates(i) {
			break
		}
		slots := s.Terms.concurrencyOf(i, t.Stages[i].Clusters) - t.Stages[i].Changing
		if !t.isDivided {
			slots = min(slots, s.roomIn(i))
		}
		s.allowUnhealthyRows(i, &slots)
		s.allowHealthyRows(i, &slots, &budget)
		s.allowArrivals(arrivals, i, &slots, &budget)
		if !s.Terms.isDone(i, t.Stages[i]) {
			break
		}
	}
	t.wait = s.Terms.FindStageWait(t.Progress, Halt{}, NewGateStates(s.Revision, t.gates, &FailureScope{}))
}

// allowUnhealthyRows lets unhealthy rows of a stage change. They make no further cluster unavailable, so that
// maxUnavailable does not keep back what mends them.
func (s *rolloutStep) allowUnhealthyRows(i int, slots *int) {
	if s.turns.Unavailable == 0 || s.turns.Stages[i].Waiting == 0 {
		return
	}
	s.eachMember(func(c string) {
		if row, has := s.memberRow(c); *slots > 0 && has && row.Stage == i && row.Online && row.isUnhealthy() && s.canChange(c, row) {
			s.allowTurn(c, i, slots)
		}
	})
}

func (s *rolloutStep) allowHealthyRows(i int, slots, budget *int) {
	if s.turns.Stages[i].Waiting == 0 || *slots <= 0 || *budget <= 0 {
		return
	}
	s.eachMember(func(c string) {
		if row, has := s.memberRow(c); *slots > 0 && *budget > 0 && has && row.Stage == i && row.isReady() && s.canChange(c, row) && s.takeCopy(c, row) {
			s.allowTurn(c, i, slots)
			*budget--
			s.turns.AddUnavailable(RowChanging, 1, c)
		}
	})
}

// allowArrivals lets clusters of a stage have their first copy. The default bounds none of them.
func (s *rolloutStep) allowArrivals(arrivals []string, i int, slots, budget *int) {
	isFree := s.Terms.HasDefaultBound()
	for _, c := range arrivals {
		row := s.arrivalRow(c)
		if row.Stage != i || !row.Online || !s.isInWindow(row) || *slots <= 0 || *budget <= 0 && !isFree {
			continue
		}
		if s.allowTurn(c, i, slots); !isFree {
			*budget--
			s.turns.AddUnavailable(RowChanging, 1, c)
		}
	}
}

// canChange reports whether a row has another revision to take, and its cluster the capacity for it.
func (s *rolloutStep) canChange(c string, row Row) bool {
	if !s.wantsTurn(c, row) || !s.isInWindow(row) || s.isHeldBack(c) {
		return false
	}
	v, _ := s.Decision.FindVerdict(c)
	return !s.isBlockedByCapacity(c, v)
}

func (s *rolloutStep) allowTurn(c string, i int, slots *int) {
	s.turns.allowed[c] = true
	s.turns.awaited = append(s.turns.awaited, c)
	s.turns.Stages[i].Waiting--
	s.turns.Stages[i].Changing++
	if d := s.Terms.progressDeadlineOf(i); d > 0 {
		s.turns.awaitDeadline(s.Now.Add(max(d, ReadinessCheckIns*s.arrivalRow(c).CheckIn)))
	}
	*slots--
}

// requestNextTurn requests a step for the time at which rows may change although nothing is reported.
func (s *rolloutStep) requestNextTurn() {
	t := &s.turns
	for _, at := range [...]time.Time{t.uncertainUntil, t.lossEnds, t.deadline, t.gateAgain, s.disruptions.again} {
		if !at.IsZero() {
			s.requeueNoLater(at)
		}
	}
	if t.wait.Reason == atoll.ReasonWaitsForSuccessTime {
		s.requeueNoLater(time.Unix(t.soakUntil[t.wait.Stage], 0))
	}
	if at := t.openingAwaited(); !at.IsZero() {
		s.requeueNoLater(at)
	}
	if at := s.Halt.EndsAt(); !at.IsZero() {
		s.requeueNoLater(at)
	}
	if (t.wait.Reason == atoll.ReasonStageFailed || t.wait.Reason == atoll.ReasonGateFailed || s.Terms.HasDefaultBound()) && s.ResumedAt.After(s.Now) { // the clock of another hub is ahead
		s.requeueNoLater(s.ResumedAt)
	}
}

// awaitsTurn reports whether the row keeps its revision until its turn.
func (s *rolloutStep) awaitsTurn(c string, spec *atoll.RowSpec) bool {
	if !s.turns.isBounded || s.turns.allowed[c] {
		return false
	}
	row, has := s.Rows[c]
	return has && row.Spec.UID == spec.UID && row.Spec.Phase != atoll.RowPending && s.wantsTurn(c, row)
}

// beginTurn sets when the row was allowed to take the revision that it is given.
func (s *rolloutStep) beginTurn(c string, spec *atoll.RowSpec) {
	spec.MovedAt, spec.FailedAt, spec.AdmittedRemoval, spec.PreviousRevision = 0, 0, "", s.previousRevisionOf(c, spec)
	if s.turns.isBounded {
		spec.MovedAt = s.nowUnix
	}
}

// keepTurn mends times in the future, and marks a row by which its stage fails, so that the stage stays failed when the
// row is healthy again. A pause decides nothing about that.
func (s *rolloutStep) keepTurn(c string, spec *atoll.RowSpec) {
	s.dropTakenBackRemoval(c, spec)
	spec.MovedAt, spec.FailedAt = min(spec.MovedAt, s.nowUnix), min(spec.FailedAt, s.nowUnix)
	row, has := s.Rows[c]
	t := &s.turns
	if row = t.scope.JudgeRow(s.Terms, row); row.Spec.FailedAt == 0 {
		spec.FailedAt = 0
	}
	if !t.isBounded || !has || spec.FailedAt != 0 || !s.Terms.isFailed(row.Stage, t.Stages[row.Stage]) || row.Spec.Revision != spec.Revision || s.awaitsTurn(c, spec) || !t.scope.IsHeldBy(s.Terms, row) {
		return
	}
	if p, _ := s.placeRow(row, true); p == RowFailing {
		spec.FailedAt = s.nowUnix
	}
}

// keepRevisionUntilTurn keeps what belongs to the revision of a row that awaits its turn.
func (s *rolloutStep) keepRevisionUntilTurn(c string, spec *atoll.RowSpec) {
	old := s.Rows[c].Spec
	var own []string
	if v, ok := s.CurrentVariants[c]; ok && v != old.Variant && !s.isSuspended(c) {
		// Other rules of its own revision target the cluster now. The items that they exclude wait.
		spec.Variant, own = v, s.listLosingItems(c)
	}
	spec.ExcludedPending = s.exclusionsUntilTurn(c, own)
	keepItemShares(old, spec)
}

// exclusionsUntilTurn returns the items that stay in a row until a person confirms their removal. An item that
// waits already stays, unless this step is confirmed.
func (s *rolloutStep) exclusionsUntilTurn(c string, own []string) map[string]int64 {
	out := s.exclusionStartTimes(c, slices.Concat(s.pendingExclusions[c], own))
	for key, since := range s.Rows[c].Spec.ExcludedPending {
		if s.confirmed && slices.Contains(s.listLosingItems(c), key) {
			continue
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[key] = since
	}
	return out
}

// isTurnUnderway reports whether rows wait for their turn or take it in this step.
func (s *rolloutStep) isTurnUnderway() bool {
	return s.turns.isBounded && (len(s.turns.allowed)+len(s.turns.returns) > 0 || s.turns.countWaiting() > 0 || len(s.turns.withheld) > 0)
}
