package rollout

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// PreviousContent is what a cluster gets where a rollback returns its row to the revision that it held before.
type PreviousContent struct {
	// Variant and Absent of the row at that revision.
	Variant string
	Absent  []string
	// Blocker is why the row cannot return; empty: it can.
	Blocker string
}

// IsRolledBack reports whether a stored rollback holds the revision. A resume after the end of the rollback begins the rollout again,
// and so does a policy that states no stages.
func (t *Terms) IsRolledBack(r *v1alpha1.RollbackStatus, revision string, f *FailureScope) bool {
	return t.HasStages() && r != nil && r.Revision == revision && !(r.State == v1alpha1.RolledBack && f.resumedAt >= r.Since.Unix())
}

// RollsBack reports whether a stage states onFailure: Rollback, so that rows store the revision that they held before.
func (t *Terms) RollsBack() bool {
	return t.HasStages() && slices.ContainsFunc(t.stages, func(s stage) bool { return s.OnFailure == v1alpha1.FailureRollback })
}

// rollsBack reports whether more failures than a stage may have return the clusters to their earlier revision.
func (t *Terms) rollsBack(i int) bool {
	return t.HasStages() && t.stages[i].OnFailure == v1alpha1.FailureRollback
}

// judgedTime is how long after its change a cluster of the last stage may fail the rollout, in seconds. No cluster waits then.
func (t *Terms) judgedTime(row Row) int64 {
	return int64(max(t.progressDeadlineOf(row.Stage), t.successTimeOf(row.Stage), row.readinessTimeout()).Seconds())
}

// mayRollBack reports whether a failure of the row at a time, in Unix seconds, rolls back although no cluster waits.
func (t *Terms) mayRollBack(row Row, failed int64) bool {
	return t.rollsBack(row.Stage) && row.Spec.PreviousRevision != "" && failed <= row.Spec.MovedAt+t.judgedTime(row)
}

// AddReturning counts a row of a rollout that is rolled back. p is its progress with what it holds.
func (t *StageTally) AddReturning(f *FailureScope, row Row, p RowProgress, revision string, n int) {
	isBack := row.Spec.PreviousRevision == revision
	switch {
	case IsNewCopy(row.Spec):
	case row.Spec.Revision == revision && row.Spec.PreviousRevision != "":
		if row.Online && !row.Suspended {
			t.ToReturn += n
		}
	case !isBack:
	case p == RowChanging:
		t.Returning += n
	case p == RowFailing && !f.isResumed(row):
		t.ReturnFailed += n
	}
}

// FindRollbackWait returns for what the rows of a rollout wait that is rolled back.
func (t *Terms) FindRollbackWait(p Progress, r *v1alpha1.RollbackStatus, halt Halt) StageWait {
	w := StageWait{Stage: t.indexOfStage(r.Stage), Reason: atoll.ReasonRolledBack, rollback: r}
	switch {
	case halt.IsHalted():
		return StageWait{Stage: w.Stage, Reason: halt.Reason()}
	case r.State == v1alpha1.RolledBack:
		return w
	}
	for i := len(p.Stages) - 1; i >= 0; i-- {
		switch n := p.Stages[i]; {
		case t.isReturnFailed(i, n):
			return StageWait{Stage: i, Reason: atoll.ReasonRollbackFailed, rollback: r}
		case n.ToReturn > 0 && n.Returning == 0 && p.Copies.isSpent() && p.Copies.isTooStrict():
			return StageWait{Stage: i, Reason: p.Copies.Reason(), rollback: r}
		case n.ToReturn+n.Returning > 0:
			return StageWait{Stage: i, Reason: atoll.ReasonRollingBack, rollback: r}
		}
	}
	w.Reason = atoll.ReasonRollingBack
	return w
}

// isReturnFailed reports whether more clusters of a stage than may fail are unhealthy at the revision to which they returned.
func (t *Terms) isReturnFailed(i int, n StageTally) bool {
	return n.ReturnFailed > t.failuresOf(i, n.Clusters)
}

func (t *Terms) indexOfStage(name string) int {
	if i := slices.IndexFunc(t.stages, func(s stage) bool { return s.Name == name }); i >= 0 {
		return i
	}
	return t.CountStages() - 1
}

// describeRollback returns what the rows of a rollout wait for that is rolled back.
func (t *Terms) describeRollback(w StageWait, p *Progress) string {
	r := w.rollback
	cause := fmt.Sprintf("%s of stage %s failed with %s", r.Cluster, r.Stage, r.Reason)
	if r.Gate != "" {
		cause = "gate " + r.Gate + " of stage " + r.Stage + " failed"
	}
	why := fmt.Sprintf("revision %d was rolled back, since %s", atoll.RevisionNumber(r.Revision), cause)
	if r.Message != "" {
		why += "; " + phrase.EscapeLine(r.Message)
	}
	switch w.Reason {
	case atoll.ReasonDisruptionBudgetTooStrict:
		return p.Copies.Describe()
	case atoll.ReasonRollingBack:
		return fmt.Sprintf("the rollback of revision %d in stage %s: %s", atoll.RevisionNumber(r.Revision), t.StageName(w.Stage), cause)
	case atoll.ReasonRollbackFailed:
		return "clusters of stage " + t.StageName(w.Stage) + " to become healthy at their earlier revision, or another template: " + why
	}
	return "another template, or `atoll rollout resume`: " + why
}

// planRollback decides which rows return to the revision that they held before. It reports whether the rollout is rolled
// back, so that no row takes the target revision.
func (s *rolloutStep) planRollback() bool {
	t := &s.turns
	if r := s.Rollback; s.Terms.IsRolledBack(r, s.Revision, &t.scope) {
		s.keepDecidedGates(v1alpha1.GateFailed)
		t.rollback = s.mendRollbackTime(r)
		if !s.Halt.IsHalted() {
			s.returnRows()
			s.endRollback()
		}
		t.wait = s.Terms.FindRollbackWait(t.Progress, t.rollback, s.Halt)
		return true
	}
	if s.Rollback != nil && s.Rollback.Revision != s.Revision {
		t.rollback = s.Rollback // by it a later turn knows that the revision failed
	}
	if s.Halt.IsHalted() {
		return false
	}
	// Rows return in a step that reads the decision.
	if i := s.findStageToRollBack(); i >= 0 {
		t.rollback = s.newRollback(i)
	} else if g := s.findGateToRollBack(); g != nil {
		t.rollback = s.newGateRollback(g)
		s.keepDecidedGates(v1alpha1.GateFailed)
	} else {
		return false
	}
	t.wait = s.Terms.FindRollbackWait(t.Progress, t.rollback, Halt{})
	return true
}

// findStageToRollBack returns the first stage that failed, if it states a rollback and a row can return; -1: none.
func (s *rolloutStep) findStageToRollBack() int {
	if !s.Terms.RollsBack() || !s.hasPrevious() {
		return -1
	}
	for i, n := range s.turns.Stages {
		if !s.Terms.isFailed(i, n) {
			continue
		}
		if s.Terms.rollsBack(i) {
			return i
		}
		return -1
	}
	return -1
}

// hasPrevious reports whether a row holds the target revision and held another one before.
func (s *rolloutStep) hasPrevious() (has bool) {
	s.eachMember(func(c string) {
		row, is := s.memberRow(c)
		has = has || is && s.hasEarlierRevision(row)
	})
	return has
}

// hasEarlierRevision reports whether a row holds the target revision, and can return to the one before.
func (s *rolloutStep) hasEarlierRevision(row Row) bool {
	return !IsNewCopy(row.Spec) && row.Spec.Revision == s.Revision && row.Spec.PreviousRevision != ""
}

// findGateToRollBack returns the first gate that failed, if its stage states a rollback and a row can return; nil: none. Clusters
// that wait for no gate are not rolled back by it.
func (s *rolloutStep) findGateToRollBack() *gate {
	if !s.Terms.RollsBack() || s.turns.countWaiting() == 0 {
		return nil
	}
	stored := NewGateStates(s.Revision, s.storedGates(), &s.turns.scope)
	for i := range s.Terms.CountStages() {
		if g := stored.findFailed(s.Terms.gatesInto(i)); g != nil && g.onFailure == v1alpha1.FailureRollback && s.hasPrevious() {
			return g
		}
	}
	return nil
}

// newGateRollback returns the decision to roll back after a gate failed, with the revision to which the first cluster returns.
func (s *rolloutStep) newGateRollback(g *gate) *v1alpha1.RollbackStatus {
	out := &v1alpha1.RollbackStatus{
		Revision: s.Revision, Stage: g.stageName, Gate: g.Name, Reason: string(atoll.ReasonGateFailed), State: v1alpha1.RollingBack, Since: metav1.Unix(s.nowUnix, 0),
	}
	first := ""
	s.eachMember(func(c string) {
		row, has := s.memberRow(c)
		if has && s.hasEarlierRevision(row) && (first == "" || c < first) {
			first, out.PreviousRevision = c, row.Spec.PreviousRevision
		}
	})
	return out
}

// newRollback returns the decision to roll back, with the first cluster by which the stage failed.
func (s *rolloutStep) newRollback(stage int) *v1alpha1.RollbackStatus {
	out := &v1alpha1.RollbackStatus{Revision: s.Revision, Stage: s.Terms.StageName(stage), State: v1alpha1.RollingBack, Since: metav1.Unix(s.nowUnix, 0)}
	slices.Sort(s.turns.failing)
	for _, c := range s.turns.failing {
		row := s.turns.scope.JudgeRow(s.Terms, s.Rows[c])
		if row.Stage != stage || !s.turns.scope.IsHeldBy(s.Terms, row) {
			continue
		}
		out.Cluster, out.PreviousRevision, out.Reason = c, row.Spec.PreviousRevision, string(row.failureReason())
		break
	}
	return out
}

// failureReason returns why a failing row failed. One by which its stage failed may be healthy again.
func (r Row) failureReason() atoll.Reason {
	switch {
	case r.reportsFailure():
		return r.Status.WaitReason()
	case r.lateAt != 0:
		return atoll.ReasonStageDeadlineExceeded
	}
	return atoll.ReasonStageFailed
}

// returnRows lets rows return, stage by stage in reverse, until one is not done.
func (s *rolloutStep) returnRows() {
	t := &s.turns
	t.returns, t.blocked = map[string]bool{}, map[string]string{}
	s.eachMember(s.tallyReturn)
	budget := s.Terms.unavailableOf(t.countConnected()) - t.Unavailable
	for i := len(t.Stages) - 1; i >= 0; i-- {
		n := &t.Stages[i]
		if s.Terms.isReturnFailed(i, *n) {
			return
		}
		slots := s.Terms.concurrencyOf(i, n.Clusters) - n.Returning - n.Changing
		for _, isUnhealthy := range [...]bool{true, false} { // unhealthy ones first
			if n.ToReturn == 0 {
				break
			}
			s.eachMember(func(c string) {
				if row, has := s.memberRow(c); has && row.Stage == i && row.Online && row.isUnhealthy() == isUnhealthy && s.isToReturn(c, row) {
					s.returnRow(c, row, &slots, &budget)
				}
			})
		}
		if n.ToReturn+n.Returning > 0 {
			return
		}
	}
}

// tallyReturn counts a row of a rollout that is rolled back.
func (s *rolloutStep) tallyReturn(c string) {
	row, has := s.memberRow(c)
	if !has || row.Spec.PreviousRevision == "" || IsNewCopy(row.Spec) {
		return
	}
	t := &s.turns
	if prev, isKnown := s.Previous[c]; row.Spec.Revision == s.Revision && (!isKnown || prev.Blocker != "") {
		t.blocked[c] = cmp.Or(prev.Blocker, "its earlier revision is not known")
		return
	}
	row = t.scope.JudgeRow(s.Terms, row)
	p, _ := s.placeRow(row, true)
	row.Online = row.Online || s.isConnectionUncertain(row)
	t.Stages[row.Stage].AddReturning(&t.scope, row, p, s.Revision, 1)
	if p == RowChanging {
		t.awaitDeadline(s.Terms.DeadlineOf(row, s.Now))
	}
	if t.rollback.State == v1alpha1.RollingBack || row.Spec.Revision == s.Revision {
		t.awaited = append(t.awaited, c)
	}
}

// isToReturn reports whether a row holds the target revision, can return to the one before, and does not do so in this step.
func (s *rolloutStep) isToReturn(c string, row Row) bool {
	_, isBlocked := s.turns.blocked[c]
	return !s.turns.returns[c] && !s.isSuspended(c) && s.hasEarlierRevision(row) && !isBlocked
}

// returnRow lets a row return where the bounds allow it. One that changes already takes the place of its own change, and one that is
// unhealthy makes no further cluster unavailable.
func (s *rolloutStep) returnRow(c string, row Row, slots, budget *int) {
	t := &s.turns
	judged := t.scope.JudgeRow(s.Terms, row)
	p, _ := s.placeRow(judged, true)
	isHealthy := !row.isUnhealthy()
	if p != RowChanging && *slots <= 0 || isHealthy && (*budget <= 0 || !s.takeCopy(c, row)) {
		return
	}
	if p != RowChanging {
		*slots--
	}
	if isHealthy {
		*budget--
		t.AddUnavailable(RowChanging, 1, c)
	}
	t.returns[c] = true
	n := &t.Stages[row.Stage]
	n.ToReturn--
	n.Returning++
}

// endRollback ends the rollback once no connected cluster is left to return.
func (s *rolloutStep) endRollback() {
	t := &s.turns
	if t.rollback.State == v1alpha1.RolledBack || !t.uncertainUntil.IsZero() {
		return
	}
	for i, n := range t.Stages {
		if n.ToReturn+n.Returning > 0 || s.Terms.isReturnFailed(i, n) {
			return
		}
	}
	ended := *t.rollback
	ended.State, ended.Since, ended.Message = v1alpha1.RolledBack, metav1.Unix(s.rollbackEnd(), 0), s.describeBlocked()
	t.rollback = &ended
}

// rollbackEnd returns when a rollback that ends now did so, in Unix seconds: after each resume until now, also one by a clock
// that is ahead.
func (s *rolloutStep) rollbackEnd() int64 {
	if s.ResumedAt.IsZero() {
		return s.nowUnix
	}
	return max(s.nowUnix, s.ResumedAt.Unix()+1)
}

// mendRollbackTime returns a rollback that ended without a time in the future, of a hub with a clock that was ahead: a resume from now on counts.
func (s *rolloutStep) mendRollbackTime(r *v1alpha1.RollbackStatus) *v1alpha1.RollbackStatus {
	end := s.rollbackEnd()
	if r.State == v1alpha1.RollingBack || r.Since.Unix() <= end {
		return r
	}
	mended := *r
	mended.Since = metav1.Unix(end, 0)
	return &mended
}

// describeBlocked returns which clusters keep the revision that was rolled back; empty: none.
func (s *rolloutStep) describeBlocked() string {
	var names []string
	for c := range s.turns.blocked {
		names = append(names, c)
	}
	if slices.Sort(names); len(names) == 0 {
		return ""
	}
	return formatFew(names) + " cannot return: " + s.turns.blocked[names[0]]
}

// IsNewCopy reports whether a row has no objects yet that a rollback returns, or is to lose them. If it becomes Active, it is a new copy.
func IsNewCopy(row atoll.RowSpec) bool {
	return row.Phase.OrdersNothing() || row.Phase == atoll.RowRemoving
}

// returnToPrevious gives a row the revision that it held before.
func (s *rolloutStep) returnToPrevious(c string, spec *atoll.RowSpec) {
	prev := s.Previous[c]
	spec.Revision, spec.PreviousRevision = spec.PreviousRevision, s.Revision
	spec.Variant, spec.Absent, spec.ExcludedPending = prev.Variant, prev.Absent, nil
	spec.MovedAt, spec.FailedAt, spec.AdmittedRemoval = s.nowUnix, 0, ""
}

// takesPreviousRevision reports whether a new copy, which replaces another, gets the revision to which the others return.
func (s *rolloutStep) takesPreviousRevision(c string) bool {
	r := s.turns.rollback
	if r == nil || r.Revision != s.Revision || r.PreviousRevision == "" {
		return false
	}
	row, has := s.Rows[c]
	prev, isKnown := s.Previous[c]
	return (!has || IsNewCopy(row.Spec)) && isKnown && prev.Blocker == ""
}

// previousRevisionOf returns the revision to which a rollback would return a row that takes the target revision; empty: none. A
// revision that failed is none.
func (s *rolloutStep) previousRevisionOf(c string, spec *atoll.RowSpec) string {
	row, has := s.Rows[c]
	old := row.Spec
	switch {
	case !has || !s.Terms.RollsBack() || old.UID != spec.UID || IsNewCopy(old):
		return ""
	case old.Revision == s.Revision:
		return old.PreviousRevision
	case old.PreviousRevision != "" && (old.FailedAt != 0 || s.Rollback != nil && s.Rollback.Revision == old.Revision):
		return old.PreviousRevision
	}
	return old.Revision
}

// rollbackChanges returns the rollback to store; changed is false where it is stored already. A pause decides nothing.
func (s *rolloutStep) rollbackChanges() (r *v1alpha1.RollbackStatus, changed bool) {
	t := &s.turns
	if !t.isBounded || s.Halt.IsHalted() {
		return nil, false
	}
	if r = t.rollback; r == nil || s.Rollback == nil {
		return r, r != s.Rollback
	}
	return r, r.Revision != s.Rollback.Revision || r.State != s.Rollback.State || !r.Since.Equal(&s.Rollback.Since)
}

// findReturnWait returns why a row that holds the revision that is rolled back has not returned; For is empty for others.
func (s *rolloutStep) findReturnWait(c string, spec *atoll.RowSpec) RowWait {
	t := &s.turns
	if t.wait.rollback == nil || spec.Revision != s.Revision || spec.PreviousRevision == "" {
		return RowWait{}
	}
	since := t.wait.rollback.Since.Time
	if blocker, is := t.blocked[c]; is {
		return newRowWait(atoll.ReasonRolledBack, "another template: it keeps the revision that was rolled back, since "+blocker, since)
	}
	if s.isSuspended(c) {
		return s.newSuspensionWait(since)
	}
	if t.rollback.State == v1alpha1.RolledBack || !s.Rows[c].Online {
		return RowWait{}
	}
	return newRowWait(t.wait.Reason, s.describeStageWait(), since)
}
