package rollout

import (
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// MoveOrder is the order of a move from one cluster to another.
type MoveOrder int

const (
	// ReplacementFirst starts a replacement before the old copy is removed.
	ReplacementFirst MoveOrder = iota
	// OldFirstWhereConnected removes the old copy of a connected cluster before its replacement starts.
	OldFirstWhereConnected
	// OldFirst does so for a disconnected cluster as well: nothing replaces its copy until the cluster
	// has confirmed the removal, or is deleted.
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

// withholdReplacements keeps as many new rows back as old copies have not ended yet. A placement that
// grows by more clusters than it leaves gets the others at once.
func (s *rolloutStep) withholdReplacements() {
	if s.MoveOrder == ReplacementFirst || s.Deleting {
		return
	}
	if s.ending = s.endingCopies(); len(s.ending) == 0 {
		return
	}
	var arrivals []string
	staying := slices.DeleteFunc(slices.Clone(s.staying), func(c string) bool {
		arrives := !s.holdsCopy(c)
		if arrives {
			arrivals = append(arrivals, c)
		}
		return arrives
	})
	if len(arrivals) == 0 {
		return
	}
	slices.Sort(arrivals)
	come := max(0, len(arrivals)-len(s.ending))
	s.staying, s.withheld = append(staying, arrivals[:come]...), arrivals[come:]
}

// holdsCopy reports whether the cluster may have a copy, one that is being removed included: to want that
// one again adds none.
func (s *rolloutStep) holdsCopy(c string) bool {
	row, has := s.Rows[c]
	v, _ := s.Decision.FindVerdict(c)
	return has && row.Spec.UID == v.UID && !(row.Spec.Phase == atoll.RowRemoving && row.isRemoved())
}

// endingCopies lists the clusters that are not wanted and whose copies may still run, sorted.
func (s *rolloutStep) endingCopies() (out []string) {
	going := s.leavingClusters()
	for c, row := range s.Rows {
		if row.Spec.Phase == atoll.RowRemoving && !row.isRemoved() && !slices.Contains(s.staying, c) && !slices.Contains(s.recallWaiting, c) && !s.isAbandoned(c) {
			going = append(going, c)
		}
	}
	slices.Sort(going)
	return slices.DeleteFunc(going, func(c string) bool { return s.MoveOrder == OldFirstWhereConnected && !s.Rows[c].Online })
}

// isRemoved reports whether the cluster has confirmed the removal of the row.
func (r Row) isRemoved() bool {
	return r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowRemoved
}

// isAbandoned reports whether the Cluster of the row is deleted, so that nothing confirms its removal.
func (s *rolloutStep) isAbandoned(c string) bool {
	return slices.ContainsFunc(s.abandonedRows, func(r AbandonedRow) bool { return r.Cluster == c })
}

// withheldWaits returns the waits of the clusters whose rows are withheld. They have no row yet.
func (s *rolloutStep) withheldWaits(specs map[string]atoll.RowSpec) (out []RowWait) {
	if len(s.withheld) == 0 {
		return nil
	}
	since := s.Now
	var names, disconnected []string
	for _, c := range s.ending {
		if at := time.Unix(specs[c].Since, 0); at.Before(since) {
			since = at
		}
		if names = append(names, c); !s.Rows[c].Online {
			disconnected = append(disconnected, c)
		}
	}
	reason, awaited := atoll.ReasonWaitsForOldCopy, "the old copy in "+formatFew(names)+" to end"
	if len(disconnected) > 0 {
		reason, awaited = atoll.ReasonWaitsForDisconnectedCopy, "the old copy in "+formatFew(disconnected)+" to end, which is disconnected: it may still run"
	}
	for _, c := range s.withheld {
		w := newRowWait(reason, awaited, since)
		w.Cluster = c
		out = append(out, w)
	}
	return out
}

// IsForOldCopy reports whether a cluster without a row waits for an old copy to end.
func (w RowWait) IsForOldCopy() bool {
	return w.Reason == atoll.ReasonWaitsForOldCopy || w.Reason == atoll.ReasonWaitsForDisconnectedCopy
}
