package schedule

import (
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// Why a row stays in a drained cluster.
const (
	stayOwnCopy     = "each cluster that fits has a copy of its own"
	stayTolerated   = "the placement tolerates the drain"
	stayExclusive   = "the cluster is disconnected: its copy may still run, and two copies should not run at one time"
	stayForCapacity = "the other clusters lack the capacity for its replicas"
)

// isDrained reports whether a person drains the cluster.
func isDrained(c *Cluster) bool {
	return slices.ContainsFunc(c.Taints, func(t v1alpha1.Taint) bool { return t.IsDrain() })
}

// IsUnschedulable reports whether a person drains or cordons the cluster.
func IsUnschedulable(c *Cluster) bool {
	return slices.ContainsFunc(c.Taints, func(t v1alpha1.Taint) bool { return t.EndsWithUncordon() })
}

// explainTolerance explains a row that no taint takes out of a drained cluster yet: the placement tolerates the taint,
// or the copy should not run twice.
func (f *CompiledPlacement) explainTolerance(c *Cluster, now time.Time, v *Verdict) {
	for i := range c.Taints {
		t := &c.Taints[i]
		if !t.IsDrain() {
			continue
		}
		switch e := f.evictionBy(t, now); {
		case e.at.IsZero():
			v.DrainReason, v.DrainText = atoll.ReasonDrainTolerated, stayTolerated
		case !e.isDue(now):
			v.DrainReason, v.DrainText = atoll.ReasonDrainDelayed, stayTolerated+" until "+phrase.FormatTime(e.at)
		default:
			v.DrainReason, v.DrainText = atoll.ReasonWaitsForCluster, stayExclusive
		}
	}
}

// awaitDrainedClusters adds the disconnected clusters that keep exclusive copies to those that the decision awaits.
func (d *Decision) awaitDrainedClusters(isExclusive bool) {
	if !isExclusive {
		return
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.DrainReason == atoll.ReasonWaitsForCluster && !slices.Contains(d.DisconnectedHolders, v.Cluster) {
			d.DisconnectedHolders = append(d.DisconnectedHolders, v.Cluster)
		}
	}
}

// explainUnreplaced explains a row that stays because nothing replaces it.
func (d *groupDecider) explainUnreplaced(v *Verdict, c *Cluster) {
	if v.LeavesLost {
		v.KeptLost = keptUnreplaced
	}
	if v.LeavesLost, v.LeavesDrained = false, false; isDrained(c) {
		v.DrainReason, v.DrainText = d.findStayReason(c)
	}
}

// findStayReason returns why nothing replaces the copy in a drained cluster.
func (d *groupDecider) findStayReason(c *Cluster) (atoll.Reason, string) {
	if d.placed > 0 && len(d.workloads) > 0 && d.dividesToSomeConnectedCluster() {
		return atoll.ReasonNoReplacement, stayForCapacity
	}
	alike, later := d.listUnschedulableOthers(c)
	others := slices.Concat(alike, later)
	switch {
	case d.pool == nil && len(d.workloads) == 0 && (d.placed > 0 || len(alike) > 0):
		return atoll.ReasonCopyInEachCluster, stayOwnCopy
	case len(others) > 0:
		return atoll.ReasonNoReplacement, keptUnreplaced + "; drained or cordoned: " + formatNames(others)
	}
	return atoll.ReasonNoReplacement, keptUnreplaced
}

// listUnschedulableOthers lists the other clusters that would fit if they were neither drained nor cordoned: those of the
// same group, and those of other groups alone.
func (d *groupDecider) listUnschedulableOthers(c *Cluster) (alike, otherGroups []string) {
	all := d.input.Clusters
	if d.input.UnschedulableClusters != nil {
		all = d.input.UnschedulableClusters()
	}
	for _, other := range all {
		if other.Name == c.Name || !IsUnschedulable(&other) {
			continue
		}
		other.Taints = slices.DeleteFunc(slices.Clone(other.Taints), func(t v1alpha1.Taint) bool { return t.EndsWithUncordon() })
		if d.filter.admitsNewcomer(&other) {
			alike = append(alike, other.Name)
		} else if d.filter.findOtherAdmittingGroup(&other) != nil {
			otherGroups = append(otherGroups, other.Name)
		}
	}
	return alike, otherGroups
}
