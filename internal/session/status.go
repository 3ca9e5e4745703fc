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

// Reported is a status, nil where there is none, with its StatusHash. Where the hash
// is empty it is worked out.
type Reported struct {
	*atoll.RowStatus
	Hash string
}

func (r Reported) hash() string {
	if r.Hash == "" {
		return StatusHash(*r.RowStatus)
	}
	return r.Hash
}

// WantOf a row: what the hub wants the agent to hold, and last heard of it. ok is
// false where the agent is to hold nothing: its removal is done and reported, or
// nothing was ever ordered.
func WantOf(bundle string, spec atoll.RowSpec, last Reported) (want Entry, ok bool) {
	want = Entry{Bundle: bundle, Generation: spec.Generation}
	if spec.Phase == atoll.RowVacant {
		return want, false
	}
	if last.RowStatus == nil {
		return want, true
	}
	want.Status = last.hash()
	if last.Generation != spec.Generation {
		return want, true
	}
	want.Content = last.Content
	return want, spec.Phase != atoll.RowRemoving || last.State != atoll.RowRemoved
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

// Judge a report of the agent, with its seq, against its row; spec is nil when the
// cluster has no row of the bundle.
func Judge(spec *atoll.RowSpec, stored, report Reported) Verdict {
	seq := report.Seq
	if spec == nil {
		if report.State == atoll.RowRemoved {
			return Verdict{Ack: seq}
		}
		return Verdict{Refused: true}
	}
	v := Verdict{Ahead: report.Generation > spec.Generation}
	switch {
	case stored.RowStatus == nil:
		v.Write = true
	case stored.hash() == report.hash():
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
