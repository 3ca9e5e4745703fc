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

// IsDrained reports whether a person drains the cluster.
func IsDrained(c *Cluster) bool {
	return slices.ContainsFunc(c.Taints, v1alpha1.Taint.IsDrain)
}

// IsUnschedulable reports whether a person drains or cordons the cluster.
func IsUnschedulable(c *Cluster) bool {
	return slices.ContainsFunc(c.Taints, v1alpha1.Taint.EndsWithUncordon)
}

// explainTolerance explains a row that no taint takes out of a drained cluster yet: the placement tolerates the taint,
// or the copy should not run twice.
func (f *CompiledPlacement) explainTolerance(c *Cluster, now time.Time, n *RowNotes) {
	for i := range c.Taints {
		t := &c.Taints[i]
		if !t.IsDrain() {
			continue
		}
		switch e := f.evictionBy(t, now); {
		case e.at.IsZero():
			n.DrainReason, n.DrainText = atoll.ReasonDrainTolerated, stayTolerated
		case !e.isDue(now):
			n.DrainReason, n.DrainText = atoll.ReasonDrainDelayed, stayTolerated+" until "+phrase.FormatTime(e.at)
		default:
			n.DrainReason, n.DrainText = atoll.ReasonWaitsForCluster, stayExclusive
		}
	}
}

// awaitDrainedClusters adds the disconnected clusters that keep exclusive copies to those that the decision awaits.
func (d *Decision) awaitDrainedClusters(isExclusive bool) {
	if !isExclusive {
		return
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Notes().DrainReason == atoll.ReasonWaitsForCluster && !slices.Contains(d.DisconnectedHolders, v.Cluster) {
			d.DisconnectedHolders = append(d.DisconnectedHolders, v.Cluster)
		}
	}
}

// explainUnreplaced explains a row that stays because nothing replaces it.
func (d *groupDecider) explainUnreplaced(v *Verdict, c *Cluster) {
	n := v.Notes()
	if v.LeavesLost {
		n.KeptLost = keptUnreplaced
	}
	if v.LeavesFailed {
		n.FailureReason, n.FailureText = atoll.ReasonFailoverUnreplaced, d.explainUnreplacedFailure()
	}
	if v.LeavesLost, v.LeavesDrained, v.LeavesFailed = false, false, false; IsDrained(c) {
		n.DrainReason, n.DrainText = d.findStayReason(c)
	}
	v.SetNotes(n)
}

// findStayReason returns why nothing replaces the copy in a drained cluster.
func (d *groupDecider) findStayReason(c *Cluster) (atoll.Reason, string) {
	switch {
	case d.placed > 0 && len(d.workloads) > 0 && d.dividesToSomeConnectedCluster():
		return atoll.ReasonNoReplacement, stayForCapacity
	case d.placed > 0 && d.takesEachCluster():
		return atoll.ReasonCopyInEachCluster, stayOwnCopy
	}
	if d.unschedulable == nil {
		d.unschedulable = d.listUnschedulable()
	}
	at := slices.Index(d.unschedulable.names, c.Name)
	if d.takesEachCluster() && d.unschedulable.countAlikeWithout(at) > 0 {
		return atoll.ReasonCopyInEachCluster, stayOwnCopy
	}
	others := d.unschedulable.names
	if at >= 0 {
		others = slices.Delete(slices.Clone(others), at, at+1)
	}
	if d.GroupRefusal != nil {
		return atoll.ReasonNoReplacement, keptUnreplaced + "; " + d.GroupRefusal.String()
	}
	if len(others) > 0 {
		return atoll.ReasonNoReplacement, keptUnreplaced + "; drained or cordoned: " + formatNames(others)
	}
	return atoll.ReasonNoReplacement, keptUnreplaced
}

// takesEachCluster reports whether each cluster that fits gets a copy of its own.
func (d *groupDecider) takesEachCluster() bool { return d.pool == nil && len(d.workloads) == 0 }

// unschedulableClusters are those that would fit if they were neither drained nor cordoned.
type unschedulableClusters struct {
	// names of those of the same group, then those of other groups alone.
	names []string
	// alike is how many are of the same group.
	alike int
}

// countAlikeWithout counts those of the same group without the one at an index; negative: all count.
func (u *unschedulableClusters) countAlikeWithout(at int) int {
	if at >= 0 && at < u.alike {
		return u.alike - 1
	}
	return u.alike
}

// listUnschedulable lists the drained and cordoned clusters once for all rows of the decision, because there may be many of both.
func (d *groupDecider) listUnschedulable() *unschedulableClusters {
	all := d.input.Clusters
	if d.input.UnschedulableClusters != nil {
		all = d.input.UnschedulableClusters()
	}
	var alike, otherGroups []string
	for _, other := range all {
		if !IsUnschedulable(&other) {
			continue
		}
		other.Taints = slices.DeleteFunc(slices.Clone(other.Taints), v1alpha1.Taint.EndsWithUncordon)
		if d.filter.admitsNewcomer(&other) {
			alike = append(alike, other.Name)
		} else if d.filter.findOtherAdmittingGroup(&other) != nil {
			otherGroups = append(otherGroups, other.Name)
		}
	}
	return &unschedulableClusters{names: slices.Concat(alike, otherGroups), alike: len(alike)}
}
