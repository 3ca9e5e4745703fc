package schedule

import (
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// FilterFailover takes the Bundle out of a cluster in which its application failed, and refuses the cluster for a time.
const FilterFailover = "failover.application"

// A cluster in which the application of a Bundle failed loses the Bundle as a drained one does: only to a replacement. Without one the copy
// stays. After the move the cluster is avoided for a time. The failure is one of the Bundle, and not of the cluster, so that it is no part of
// the compiled filters.

// FailedCluster is a cluster in which the application of the Bundle failed, or would fail without a bound.
type FailedCluster struct {
	// UID of the Cluster.
	UID string
	// Reason in a sentence, which does not change while the copy leaves.
	Reason string
	// AvoidedUntil is until when no copy comes there; zero: it is not known yet.
	AvoidedUntil time.Time
	// StayReason is why the copy stays although it is unhealthy, and StayText explains it; empty: a replacement takes it out.
	StayReason atoll.Reason
	StayText   string
}

// failureOf returns the failure that takes the Bundle out of a cluster, or keeps it from there.
func (in *Input) failureOf(c *Cluster) (FailedCluster, bool) {
	if in.FailedClusters == nil {
		return FailedCluster{}, false
	}
	failed, is := in.FailedClusters[c.Name]
	return failed, is && failed.UID == c.UID
}

// refusesFailed reports whether the cluster is no place for the Bundle, because its application failed there.
func (in *Input) refusesFailed(c *Cluster) bool {
	failed, is := in.failureOf(c)
	return is && failed.StayReason == ""
}

// findFailure returns the failure that takes a copy out of its cluster, if something replaces it. A copy that should not run twice stays in a
// disconnected cluster, because it may still run.
func (t *rowTerms) findFailure(c *Cluster) (FailedCluster, bool) {
	if t.input == nil || t.keepsUnreplaced || !t.input.refusesFailed(c) || t.keepsLost && t.input.isDisconnected(c) {
		return FailedCluster{}, false
	}
	return t.input.failureOf(c)
}

// findEvictionOf returns what takes a copy out of its cluster: a NoExecute taint, or a failure of the application. A due taint comes first.
func (f *CompiledPlacement) findEvictionOf(c *Cluster, t *rowTerms) eviction {
	e := f.findEviction(c, t.now, t.keptCauses(c))
	if e.isDue(t.now) {
		return e
	}
	if failed, is := t.findFailure(c); is {
		return eviction{at: t.now, reason: failed.Reason, cause: causeFailure}
	}
	return e
}

// leaveByEviction lets a row leave by an eviction that is due.
func (v *Verdict) leaveByEviction(e eviction) {
	if e.cause == causeFailure {
		v.setLeaving(FilterFailover, atoll.ReasonApplicationFailed, e.reason)
		v.LeavesFailed = true
		return
	}
	v.setLeaving(FilterTaints, atoll.ReasonEvicted, e.reason)
	v.LeavesLost, v.LeavesDrained = e.cause == causeLoss, e.cause.isDrain()
}

// explainStay explains a row that nothing takes out yet, although its cluster is drained or its application is unhealthy there.
func (f *CompiledPlacement) explainStay(c *Cluster, t *rowTerms, n *RowNotes) {
	f.explainTolerance(c, t.now, n)
	if t.input == nil {
		return
	}
	if failed, is := t.input.failureOf(c); is && failed.StayReason != "" {
		n.FailureReason, n.FailureText = failed.StayReason, failed.StayText
	}
}

// applyBundleFilters refuses, for reasons of the Bundle alone, clusters that the other filters admit.
func (d *groupDecider) applyBundleFilters(c *Cluster, v *Verdict) {
	d.applyGroupFilter(c, v)
	d.applyFailureFilter(c, v)
}

// applyFailureFilter refuses new copies in clusters in which the application failed.
func (d *groupDecider) applyFailureFilter(c *Cluster, v *Verdict) {
	if v.Outcome != OutcomePlaced || !d.input.refusesFailed(c) {
		return
	}
	if row := d.input.heldRow(c); row != nil && row.Phase != atoll.RowPending {
		return // it stays for a reason of its own
	}
	failed, _ := d.input.failureOf(c)
	v.Outcome, v.PlacementFingerprint, v.Filter, v.Reason = OutcomeOut, "", FilterFailover, failed.Reason
	if !failed.AvoidedUntil.IsZero() && !d.input.SkipExplanations {
		v.Reason += "; it is avoided until " + phrase.FormatTime(failed.AvoidedUntil)
	}
}

// explainUnreplacedFailure returns why nothing replaces the copy of an application that failed.
func (d *groupDecider) explainUnreplacedFailure() string {
	switch {
	case d.placed > 0 && len(d.workloads) > 0 && d.dividesToSomeConnectedCluster():
		return stayForCapacity
	case d.placed > 0 && d.takesEachCluster():
		return stayOwnCopy
	case d.GroupRefusal != nil:
		return keptUnreplaced + "; " + d.GroupRefusal.String()
	}
	return keptUnreplaced
}

// findMistakenLeavers returns which rows leave by mistake where no cluster fits. A cluster that leaves the fleet is no mistake. The old copy of an
// application that failed goes on to leave while another copy stays.
func (d *groupDecider) findMistakenLeavers() func(v Verdict) bool {
	isLeaver := func(v Verdict) bool { return v.Outcome == OutcomeLeaves && v.Filter != FilterRemoval }
	isChosen := func(v Verdict) bool { return d.input.Rows[v.Cluster].Phase.IsChosen() }
	staysElsewhere := slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return isLeaver(v) && isChosen(v) })
	return func(v Verdict) bool {
		return isLeaver(v) && (!v.LeavesFailed || !staysElsewhere || isChosen(v))
	}
}

// orderUnreplaced returns the rows that stay if nothing replaces them. Old copies of an application that failed come last, because their
// replacements have their places.
func (d *groupDecider) orderUnreplaced() []lostRow {
	isOld := func(l lostRow) bool {
		row := d.input.heldRow(&d.input.Clusters[l.clusterIndex])
		return d.Verdicts[l.verdictIndex].LeavesFailed && row != nil && !row.Phase.IsChosen()
	}
	if !slices.ContainsFunc(d.lost, isOld) {
		return d.lost
	}
	old, others := []lostRow{}, []lostRow{}
	for _, l := range d.lost {
		if isOld(l) {
			old = append(old, l)
		} else {
			others = append(others, l)
		}
	}
	return append(others, old...)
}

// keepHopelessFailures returns the failed clusters. The copies stay in them while no connected cluster of any group fits.
func (f *CompiledPlacement) keepHopelessFailures(in *Input) map[string]FailedCluster {
	if len(in.FailedClusters) == 0 {
		return nil
	}
	probe := *in // which counts refusals
	if slices.ContainsFunc(f.affinityGroups, func(g *CompiledPlacement) bool { return g.fitsConnectedCluster(&probe) }) {
		return in.FailedClusters
	}
	out := maps.Clone(in.FailedClusters)
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if row := in.heldRow(c); row != nil && row.Phase.IsChosen() && row.Phase != atoll.RowPending && in.refusesFailed(c) {
			failed := out[c.Name]
			failed.StayReason, failed.StayText = atoll.ReasonFailoverUnreplaced, keptUnreplaced
			out[c.Name] = failed
		}
	}
	return out
}

// keepsFailedCopy reports whether a copy of an application that failed stays because nothing replaces it. A disconnected cluster is no place
// for it.
func (d *Decision) keepsFailedCopy() bool {
	return slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.Notes().FailureReason == atoll.ReasonFailoverUnreplaced })
}

// leftForFailure reports whether a row leaves because its application failed, by its stored reason.
func leftForFailure(row *atoll.RowSpec) bool {
	return storedLeaveReason(row).Reason == atoll.ReasonApplicationFailed
}

// storedLeaveReason returns why a row leaves, without the wait for a confirmation.
func storedLeaveReason(row *atoll.RowSpec) atoll.RowReason {
	why := atoll.ParseRowReason(row.Reason)
	for why.Reason == atoll.ReasonRemovalHeld || why.Reason == atoll.ReasonReplacementsNotReady || why.Reason == atoll.ReasonFailedCopyKept || atoll.IsBudgetReason(why.Reason) {
		why = atoll.ParseRowReason(why.Text)
	}
	return why
}
