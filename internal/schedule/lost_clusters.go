package schedule

import (
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A lost cluster has a taint of the hub. It loses the Bundle only to a replacement: to another cluster
// that is chosen in its place, to a later group, or to connected clusters that divide its replicas. Without one it keeps
// its copy, which runs on when the cluster is only cut off.

// Why a cluster that the hub tainted keeps its copy.
const (
	keptUnreplaced = "no other cluster can take its place"
	keptExclusive  = "its copy may still run, and two copies should not run at one time"
)

// lossTaints are the keys of the taints that the hub adds to lost clusters.
var lossTaints = []string{v1alpha1.TaintUnreachable, v1alpha1.TaintNotReady}

func isLossTaint(t *v1alpha1.Taint) bool { return slices.Contains(lossTaints, t.Key) }

// rowTerms are the terms by which rows are judged.
type rowTerms struct {
	unfit v1alpha1.WhenUnfit
	now   time.Time
	// keepsLost: see Input.KeepsLost.
	keepsLost bool
}

func (in *Input) rowTerms() rowTerms { return rowTerms{in.WhenUnfit, in.Now, in.KeepsLost} }

// lostRow is a row in a cluster that the hub tainted.
type lostRow struct{ clusterIndex, verdictIndex int }

// noteLostRow notes a row that leaves a lost cluster, before its verdict is added.
func (d *groupDecider) noteLostRow(clusterIndex int, row *atoll.RowSpec, v *Verdict) {
	if v.LeavesLost && !d.filter.replacesGroupOf(row) {
		d.lost = append(d.lost, lostRow{clusterIndex: clusterIndex, verdictIndex: len(d.Verdicts)})
	}
}

// replacesGroupOf reports whether a row came by an earlier group, which this one replaces. A row of no group, or of a group
// that is not there any more, came before an edit.
func (f *CompiledPlacement) replacesGroupOf(row *atoll.RowSpec) bool {
	name := rememberedGroup(row.PlacementFingerprint)
	for _, g := range f.affinityGroups {
		if g == f {
			return false
		}
		if g.groupName == name {
			return true
		}
	}
	return false
}

// keepUnreplacedRows turns the verdicts on lost clusters around that nothing replaces. The order of the clusters
// decides which rows stay, so that each decision keeps the same ones.
func (d *groupDecider) keepUnreplacedRows() {
	if len(d.lost) == 0 {
		return
	}
	stay := min(d.countUnreplaced(), len(d.lost))
	for _, l := range d.lost[:stay] {
		c, v := &d.input.Clusters[l.clusterIndex], &d.Verdicts[l.verdictIndex]
		terms := d.input.rowTerms()
		terms.keepsLost = true
		kept := d.filter.judgeByUsedGroup(c, d.input.heldRow(c), terms)
		kept.storedRow, kept.holdsRow, kept.KeptLost = v.storedRow, v.holdsRow, keptUnreplaced
		if *v = kept; v.IsHolder() {
			d.completeHolderVerdict(v, c)
		}
	}
}

// countUnreplaced returns how many of the lost rows nothing replaces. None stays where nothing else holds the Bundle:
// then a later group takes over, or all rows stay.
func (d *groupDecider) countUnreplaced() int {
	holders := d.input.UnlistedHolders
	for i := range d.Verdicts {
		if d.Verdicts[i].IsHolder() {
			holders++
		}
	}
	switch {
	case holders == 0:
		return 0
	case d.UnmetSpread != "":
		return len(d.lost)
	case len(d.workloads) > 0 && d.dividesToSomeConnectedCluster():
		return d.countUnreplacedShares()
	case d.pool == nil || d.pool.problem.maxChosen == unlimited:
		return len(d.lost)
	}
	return max(0, d.pool.problem.maxChosen-holders)
}

// countUnreplacedShares returns all lost rows where the other clusters are known to lack the capacity for the
// replicas, and 0 elsewhere.
func (d *groupDecider) countUnreplacedShares() int {
	others := groupTrial{decision: d.Decision}
	if others.measureCapacity(d.input); others.short {
		return len(d.lost)
	}
	return 0
}
