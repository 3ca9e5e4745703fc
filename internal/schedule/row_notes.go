package schedule

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// RowNotes are what only few rows need in their verdict. A pointer to them keeps the verdicts of 10,000
// clusters a third smaller.
type RowNotes struct {
	// EvictAt is when a NoExecute taint will evict the Bundle; zero: never.
	EvictAt time.Time
	// KeptLost states why the row stays although the hub tainted the cluster as lost; empty: it did not, or the
	// placement tolerates it.
	KeptLost string
	// DrainReason states why the row stays although the cluster is drained, and DrainText explains it; empty: it does
	// not stay, or nothing drains the cluster.
	DrainReason atoll.Reason
	DrainText   string
	// FailureReason states why the row stays although its application is unhealthy there, and FailureText explains it;
	// empty: it is healthy, or not unhealthy for long enough.
	FailureReason atoll.Reason
	FailureText   string
	// CapacityReason states the bound of the cluster's stated capacity that keeps the row at
	// its revision and share; empty: none does.
	CapacityReason string
}

// reasonWhereNothingFits returns the reason of a row that is to leave, and stays because no cluster fits. A loss or a failure is no mistake of
// the placement.
func (n RowNotes) reasonWhereNothingFits() atoll.Reason {
	switch {
	case n.KeptLost != "":
		return atoll.ReasonClusterLost
	case n.FailureReason != "":
		return n.FailureReason
	}
	return atoll.ReasonNoClusterFits
}

// Notes returns the notes on the row.
func (v *Verdict) Notes() RowNotes {
	if v.notes == nil {
		return RowNotes{}
	}
	return *v.notes
}

// SetNotes replaces the notes on the row. Copies of the verdict keep theirs.
func (v *Verdict) SetNotes(n RowNotes) {
	if v.notes = nil; n != (RowNotes{}) {
		kept := n // n itself would be on the heap in every call
		v.notes = &kept
	}
}

// PodFit returns whether the undivided pods fit in the cluster: for a placed newcomer of a choice, and with explanations
// for every placed newcomer. It is empty for others.
func (v *Verdict) PodFit() PodFit {
	if v.podFit == nil {
		return PodFit{}
	}
	return *v.podFit
}

// SetPodFit sets whether the undivided pods fit in the cluster.
func (v *Verdict) SetPodFit(fit PodFit) {
	if v.podFit = nil; fit != (PodFit{}) {
		kept := fit // fit itself would be on the heap in every call
		v.podFit = &kept
	}
}

// noteEviction moves the decision's first eviction to the verdict's, if this is earlier.
func (d *Decision) noteEviction(v *Verdict) {
	if at := v.Notes().EvictAt; !at.IsZero() && (d.EvictAt.IsZero() || at.Before(d.EvictAt)) {
		d.EvictAt = at
	}
}
