package session

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// StatusHash identifies the content of a report. Seq, cluster UID and times are not part
// of it. Reports of equal hash need not be stored twice. A large status counts by its hash: a hub
// that left it out has the same report.
func StatusHash(s atoll.RowStatus) string {
	s, _ = atoll.HashLargeStatuses(s)
	s.Seq, s.Since, s.UID = 0, 0, ""
	s.Items = slices.Clone(s.Items)
	for i := range s.Items {
		s.Items[i].Since, s.Items[i].Drift = 0, s.Items[i].Drift.WithoutTimes()
	}
	return atoll.HashJSON(s)
}

// APIsHash identifies a sorted list of "group/version/Kind". It is also the name of the
// APISet.
func APIsHash(apis []string) string {
	parts := make([][]byte, len(apis))
	for i, a := range apis {
		parts[i] = []byte(a)
	}
	return atoll.HashParts(parts...)
}

// Reported is a status with its StatusHash. The status is nil where there is none. An
// empty hash is computed when it is needed.
type Reported struct {
	*atoll.RowStatus
	Hash string
}

func (r Reported) statusHash() string {
	if r.Hash == "" {
		return StatusHash(*r.RowStatus)
	}
	return r.Hash
}

// WantedEntry returns what the agent must hold by a row, and the last report of it. ok is
// false where the agent must hold nothing: the removal is done and reported, or nothing
// was ever ordered.
func WantedEntry(bundle string, spec atoll.RowSpec, last Reported) (want Entry, ok bool) {
	want = Entry{Bundle: bundle, Generation: spec.Generation}
	if spec.Phase.OrdersNothing() {
		return want, false
	}
	if last.RowStatus == nil {
		return want, true
	}
	want.Status = last.statusHash()
	if last.Generation != spec.Generation {
		return want, true
	}
	want.Content = last.Content
	return want, spec.Phase != atoll.RowRemoving || last.State != atoll.RowRemoved
}

// Verdict is what the hub does with a report.
type Verdict struct {
	// Write the report into the row.
	Write bool
	// Ack is the seq to acknowledge at once; 0 when the report must be written first or is
	// refused.
	Ack int64
	// Refused: the cluster has no such row; nothing is acknowledged.
	Refused bool
	// Ahead: the agent holds a generation above the row's.
	Ahead bool
}

// JudgeReport judges a report of the agent, with its seq, by its row. spec is nil when the
// cluster has no row of the bundle.
func JudgeReport(spec *atoll.RowSpec, stored, report Reported) Verdict {
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
	case stored.statusHash() == report.statusHash():
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
