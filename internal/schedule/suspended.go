package schedule

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// FilterSuspension keeps the last decision of a Bundle whose policy suspends scheduling.
const FilterSuspension = "suspension"

const (
	suspendedText   = "scheduling is suspended"
	wouldComeText   = suspendedText + "; without that, the cluster would be chosen"
	wouldLeaveText  = suspendedText + "; without that, the copy would leave"
	wouldReturnText = suspendedText + "; without that, the copy would stay"
)

// keepLastDecision replaces the verdicts by those of the last decision, as the rows show it: chosen clusters stay, leaving ones leave, and
// no other is chosen. A cluster that leaves the fleet loses its row all the same, unless no other has one: nothing may replace the last copy.
func (d *Decision) keepLastDecision(in *Input) {
	d.keepsDecision, d.WantsMore, d.ReserveClusters, d.ScoreThresholds = true, false, nil, nil
	keepsAny := d.keepsAnyRow(in)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		row, has := in.decidedRow(v)
		if v.standsInSuspension(&row, keepsAny) {
			continue
		}
		if v.storedRow != nil {
			v.holdsRow = has && row.Phase != atoll.RowRemoving
		}
		v.keepAsDecided(&row)
	}
}

// decidedRow returns the row of a cluster; it is empty where the cluster has none.
func (in *Input) decidedRow(v *Verdict) (row atoll.RowSpec, has bool) {
	if row, has = in.Rows[v.Cluster]; !has || row.UID != v.UID {
		return emptyRow, false
	}
	if row.Phase == "" {
		row.Phase = atoll.RowActive
	}
	return row, true
}

// keepsAnyRow reports whether the last decision keeps a row in a cluster that does not leave the fleet.
func (d *Decision) keepsAnyRow(in *Input) bool {
	return in.UnlistedHolders > 0 || slices.ContainsFunc(d.Verdicts, func(v Verdict) bool {
		row, has := in.decidedRow(&v)
		return has && v.Outcome != OutcomeGone && v.Filter != FilterRemoval && (row.Phase == atoll.RowActive || row.Phase == atoll.RowPending)
	})
}

// standsInSuspension reports whether a verdict counts although the last decision stays: the cluster leaves the fleet, or the copy was to leave and
// what was to replace it is gone. The last copy does not leave with its cluster.
func (v *Verdict) standsInSuspension(row *atoll.RowSpec, keepsAny bool) bool {
	isLeaving := row.Phase == atoll.RowLeaving || row.Phase == atoll.RowHeld
	switch {
	case v.Outcome == OutcomeGone:
		return true
	case v.Filter == FilterRemoval:
		return keepsAny || !isLeaving && row.Phase != atoll.RowActive
	}
	return !keepsAny && isLeaving && v.IsHolder()
}

// keepAsDecided replaces the verdict by that of the last decision. The row is empty where the cluster has none.
func (v *Verdict) keepAsDecided(row *atoll.RowSpec) {
	switch {
	case row.Phase == atoll.RowActive, row.Phase == atoll.RowPending, v.Filter == FilterRemoval: // of the last copy
		v.keepChosen(row)
	case row.Phase == atoll.RowLeaving, row.Phase == atoll.RowHeld:
		v.leaveAsDecided(row)
	default:
		if v.IsHolder() {
			*v = Verdict{Cluster: v.Cluster, UID: v.UID, Outcome: OutcomeOut, Filter: FilterSuspension, Reason: wouldComeText, storedRow: v.storedRow, holdsRow: v.holdsRow}
		}
	}
}

// keepChosen keeps the row of a chosen cluster. The fingerprint of the placement stays, so that an edit of the placement counts after the
// suspension.
func (v *Verdict) keepChosen(row *atoll.RowSpec) {
	if !v.IsHolder() {
		text, notes := wouldLeaveText, RowNotes{CapacityReason: v.Notes().CapacityReason}
		if v.Reason != "" {
			text += ": " + v.Reason
		}
		if v.LeavesDrained {
			notes.DrainReason, notes.DrainText = atoll.ReasonSchedulingSuspended, text
		}
		v.Outcome, v.Filter, v.RowReason, v.Reason = OutcomeKept, FilterSuspension, atoll.ReasonSchedulingSuspended, text
		v.LeavesLost, v.LeavesDrained, v.LeavesFailed = false, false, false
		v.SetNotes(notes)
	}
	v.PlacementFingerprint, v.FromScratch = row.PlacementFingerprint, false
}

// leaveAsDecided lets a row leave that the last decision takes out.
func (v *Verdict) leaveAsDecided(row *atoll.RowSpec) {
	if !v.IsHolder() {
		return
	}
	reason := atoll.ParseRowReason(row.Reason).Cause()
	if reason.Plan != "" { // the text is the reason without the plan
		reason = atoll.ParseRowReason(reason.Text)
	}
	if reason.Reason == "" {
		reason = atoll.RowReason{Reason: atoll.ReasonPlacementEdited, Text: wouldReturnText}
	}
	v.setLeaving(FilterSuspension, reason.Reason, reason.Text)
}

// KeepSharesOf returns the decision in which clusters keep the shares of replicas that they have.
func (d Decision) KeepSharesOf(clusters map[string]bool) Decision {
	if len(clusters) > 0 {
		d.pinnedShares = clusters
	}
	return d
}

// isPinned reports whether a cluster keeps its share: a held row that is to leave, and a copy of which the shares stay.
func (d *Decision) isPinned(v *Verdict, held map[string]bool) bool {
	return v.Outcome != OutcomePlaced && held[v.Cluster] || d.pinnedShares[v.Cluster] && v.IsHolder() && v.holdsRow
}

// assignAsDecided leaves each cluster what the last decision gave it of a workload. It reports whether that decision divided the workload.
func (s *shareAssigner) assignAsDecided(item int) (left int64, isDecided bool) {
	key := s.assignment.itemKey(item)
	left = max(s.workloads[item].Replicas, 0)
	for at := range int32(len(s.verdicts)) {
		row := s.rowAt(at)
		if _, has := row.Assigned[key]; !has {
			continue
		}
		isDecided = true
		n := s.currentShare(at, key)
		s.assignment.setReplicas(at, item, n)
		left -= min(n, left)
		if slices.Contains(row.HomeItems, key) {
			s.assignment.addHome(at, key)
		}
		if start, ranged := row.OrdinalStarts[key]; ranged {
			s.assignment.setOrdinalRangeStart(at, item, start)
		}
	}
	return left, isDecided
}
