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
	if s.isDisconnected(row) {
		return newRowWait(atoll.ReasonWaitsForCluster, "the cluster to come back, and then its turn in the rollout", since)
	}
	if t.wait.isDecided() {
		return s.newDecidedWait(since)
	}
	if w := s.findWindowWait(c, row, since); w.For != "" {
		return w
	}
	switch w := t.wait; w.Reason {
	case atoll.ReasonRolloutPaused, atoll.ReasonChangesFrozen:
		if at := s.Halt.Since(); at.After(since) || w.Reason == atoll.ReasonRolloutPaused && !at.IsZero() {
			since = at
		}
		return newRowWait(w.Reason, s.Halt.Describe(), since)
	case atoll.ReasonStageFailed:
		return newRowWait(w.Reason, s.describeStageWait(), time.Unix(t.failedSince, 0))
	case atoll.ReasonMaxConcurrencyReached, atoll.ReasonMaxUnavailableReached, atoll.ReasonTooManyUnhealthy:
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
	if v := NewGateStates(s.Revision, s.turns.gates).find(s.turns.wait.gate); v != nil {
		since = v.Since.Time
	}
	return newRowWait(s.turns.wait.Reason, s.describeStageWait(), since)
}

func (s *rolloutStep) describeStageWait() string {
	return s.Terms.DescribeStageWait(s.turns.wait, &s.turns.Progress)
}
