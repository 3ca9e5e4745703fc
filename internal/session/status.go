package session

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// StatusHash identifies what a report says, whenever and by whomever it was made:
// seq, cluster UID and times are no part of it. Reports of equal hash need not be
// stored twice.
func StatusHash(s atoll.RowStatus) string {
	s.Seq, s.Since, s.UID = 0, 0, ""
	s.Items = slices.Clone(s.Items)
	for i := range s.Items {
		s.Items[i].Since = 0
	}
	return atoll.HashJSON(s)
}

// APIsHash identifies a sorted list of "group/version/Kind"; it is the name of the
// APISet too.
func APIsHash(apis []string) string {
	parts := make([][]byte, len(apis))
	for i, a := range apis {
		parts[i] = []byte(a)
	}
	return atoll.Hash(parts...)
}

// WantOf a row: what the hub wants the agent to hold, and last heard of it. ok is
// false where the agent is to hold nothing: its removal is done and reported, or
// nothing was ever ordered.
func WantOf(bundle string, spec atoll.RowSpec, status *atoll.RowStatus) (want Entry, ok bool) {
	want = Entry{Bundle: bundle, Generation: spec.Generation}
	if spec.Phase == atoll.RowVacant {
		return want, false
	}
	if status == nil {
		return want, true
	}
	want.Status = StatusHash(*status)
	if status.Generation != spec.Generation {
		return want, true
	}
	want.Content = status.Content
	return want, spec.Phase != atoll.RowRemoving || status.State != atoll.RowRemoved
}

// Verdict on a report.
type Verdict struct {
	// Write the report into the row.
	Write bool
	// Ack is the seq to acknowledge at once; 0 when the report is to be written
	// first or refused.
	Ack int64
	// Refused: the cluster has no such row; nothing is acknowledged.
	Refused bool
	// Ahead: the agent holds a generation above the row's.
	Ahead bool
}

// Judge a report of the agent against its row; spec is nil when the cluster has
// no row of the bundle.
func Judge(spec *atoll.RowSpec, stored *atoll.RowStatus, seq int64, report atoll.RowStatus) Verdict {
	if spec == nil {
		if report.State == atoll.RowRemoved {
			return Verdict{Ack: seq}
		}
		return Verdict{Refused: true}
	}
	v := Verdict{Ahead: report.Generation > spec.Generation}
	switch {
	case stored == nil:
		v.Write = true
	case StatusHash(*stored) == StatusHash(report):
		v.Ack = seq
	case seq > stored.Seq:
		v.Write = true
	case seq == stored.Seq:
		v.Ack = seq + 1
	default:
		v.Ack = stored.Seq
	}
	return v
}
