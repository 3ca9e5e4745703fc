package rollout

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// findTurnWait returns why a row has not had its turn.
func (s *rolloutStep) findTurnWait(c string, spec atoll.RowSpec) RowWait {
	t, row, since := &s.turns, s.arrivalRow(c), s.RevisionAt
	if since.IsZero() || since.After(s.Now) {
		since = time.Unix(spec.Since, 0)
	}
	if s.isSuspended(c) {
		return s.newSuspensionWait(since)
	}
	if s.isDisconnected(row) {
		return newRowWait(atoll.ReasonWaitsForCluster, "the cluster to come back, and then its turn in the rollout", since)
	}
	if t.wait.isDecided() {
		return s.newDecidedWait(since)
	}
	if IsHaltReason(t.wait.Reason) {
		return s.newHaltWait(since)
	}
	if w := s.newOrderWait(c, row, since); w.For != "" {
		return w
	}
	if w := s.findWindowWait(c, row, since); w.For != "" {
		return w
	}
	return s.newStageWait(row, since)
}

// newHaltWait returns the wait of a row for the end of a pause, since the pause began, or of a freeze, since the row waits in it.
func (s *rolloutStep) newHaltWait(since time.Time) RowWait {
	if at := s.Halt.Since(); at.After(since) || s.Halt.Freeze == nil && !at.IsZero() {
		since = at
	}
	return newRowWait(s.turns.wait.Reason, s.Halt.Describe(), since)
}

// newStageWait returns the wait of a row for its stage, or for an earlier one.
func (s *rolloutStep) newStageWait(row Row, since time.Time) RowWait {
	t := &s.turns
	if atoll.IsOrderReason(t.wait.Reason) {
		return newRowWait(atoll.ReasonWaitsForStage, "stage "+s.Terms.StageName(t.wait.Stage)+", whose clusters wait for other applications", since)
	}
	switch w := t.wait; w.Reason {
	case atoll.ReasonStageFailed:
		return newRowWait(w.Reason, s.describeStageWait(), time.Unix(t.failedSince, 0))
	case atoll.ReasonMaxConcurrencyReached, atoll.ReasonMaxUnavailableReached, atoll.ReasonTooManyUnhealthy, atoll.ReasonDisruptionBudget, atoll.ReasonDisruptionBudgetTooStrict:
		if w.Stage < row.Stage {
			return newRowWait(atoll.ReasonWaitsForStage, "stage "+s.Terms.StageName(w.Stage)+" to become healthy", since)
		}
		return newRowWait(w.Reason, s.describeStageWait(), since)
	case atoll.ReasonWaitsForSuccessTime:
		until := phrase.FormatTime(time.Unix(t.soakUntil[w.Stage], 0))
		return newRowWait(w.Reason, s.describeStageWait()+", until "+until, since)
	case atoll.ReasonOutsideWindow:
		return newRowWait(atoll.ReasonWaitsForStage, "stage "+s.Terms.StageName(w.Stage)+", whose clusters wait for a change window", since)
	case "":
		return newRowWait(atoll.ReasonWaitsForStage, "its turn in the rollout", since)
	}
	return newRowWait(atoll.ReasonWaitsForStage, s.describeStageWait(), since)
}

// newDecidedWait returns the wait of a row for a gate, since the gate is judged, or for a rollback.
func (s *rolloutStep) newDecidedWait(since time.Time) RowWait {
	if r := s.turns.wait.rollback; r != nil {
		return newRowWait(s.turns.wait.Reason, s.describeStageWait(), r.Since.Time)
	}
	if v := NewGateStates(s.Revision, s.turns.gates, &FailureScope{}).find(s.turns.wait.gate); v != nil {
		since = v.Since.Time
	}
	return newRowWait(s.turns.wait.Reason, s.describeStageWait(), since)
}

func (s *rolloutStep) describeStageWait() string {
	return s.Terms.DescribeStageWait(s.turns.wait, &s.turns.Progress)
}
