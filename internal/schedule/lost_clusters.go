package schedule

import (
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A lost cluster has a taint of the hub, and a drained one that of a person. Both lose the Bundle only to a replacement: to
// another cluster that is chosen in its place, to a later group, or to connected clusters that divide its replicas. Without
// one they keep their copy, which runs on when the cluster is only cut off.

// Why a cluster that the hub tainted keeps its copy.
const (
	keptUnreplaced = "no other cluster can take its place"
	keptExclusive  = "its copy may still run, and two copies should not run at one time"
)

// evictionCause is what a NoExecute taint stands for.
type evictionCause int8

// The causes. A loss and a drain evict only what is replaced. A drain with the value RemoveUnreplaced evicts all.
const (
	causeTaint evictionCause = iota
	causeLoss
	causeDrain
	causeDrainOfAll
	// causeFailure is no taint: the application failed in the cluster, which takes out only what is replaced.
	causeFailure
	countCauses
)

// needsReplacement reports whether the cause evicts only what is replaced.
func (c evictionCause) needsReplacement() bool { return c == causeLoss || c == causeDrain }

// isDrain reports whether a person drains the cluster.
func (c evictionCause) isDrain() bool { return c == causeDrain || c == causeDrainOfAll }

// causeOf returns what the taint stands for.
func causeOf(t *v1alpha1.Taint) evictionCause {
	switch {
	case t.IsOfLoss():
		return causeLoss
	case t.Key == v1alpha1.TaintDrain && t.Value == v1alpha1.DrainRemoveUnreplaced:
		return causeDrainOfAll
	case t.Key == v1alpha1.TaintDrain:
		return causeDrain
	}
	return causeTaint
}

// keptCauses are the causes that evict nothing.
type keptCauses [countCauses]bool

// keepsAllUnreplaced keeps what only a replacement takes out.
var keepsAllUnreplaced = keptCauses{causeLoss: true, causeDrain: true}

// namesTaint reports whether the text of an eviction names a taint by one of the keys.
func namesTaint(text string, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		return strings.Contains(text, "taint "+key+":") || strings.Contains(text, "taint "+key+"=")
	})
}

// rowTerms are the terms by which rows are judged.
type rowTerms struct {
	unfit v1alpha1.WhenUnfit
	now   time.Time
	// keepsLost: see Input.KeepsLost. keepsUnreplaced: only taints that need no replacement evict.
	keepsLost, keepsUnreplaced bool
	// input of the decision; nil: the connection of the cluster is not known.
	input *Input
}

func (in *Input) rowTerms() rowTerms {
	return rowTerms{unfit: in.WhenUnfit, now: in.Now, keepsLost: in.KeepsLost, input: in}
}

// keptCauses returns the causes that evict nothing from the cluster. A copy that should not run twice leaves a drained cluster
// only while the cluster is connected, because it may still run there.
func (t *rowTerms) keptCauses(c *Cluster) keptCauses {
	if t.keepsUnreplaced {
		return keepsAllUnreplaced
	}
	if !t.keepsLost {
		return keptCauses{}
	}
	isAway := t.input != nil && IsDrained(c) && t.input.isDisconnected(c)
	return keptCauses{causeLoss: true, causeDrain: isAway, causeDrainOfAll: isAway}
}

// lostRow is a row in a cluster that the hub tainted.
type lostRow struct{ clusterIndex, verdictIndex int }

// noteLostRow notes a row that leaves a lost cluster, before its verdict is added.
func (d *groupDecider) noteLostRow(clusterIndex int, row *atoll.RowSpec, v *Verdict) {
	if (v.LeavesLost || v.LeavesDrained || v.LeavesFailed) && !d.filter.replacesGroupOf(row) {
		d.lost = append(d.lost, lostRow{clusterIndex: clusterIndex, verdictIndex: len(d.Verdicts)})
	}
}

// keepsLostRow reports whether a row in a lost cluster, or in a drained one that is disconnected, stays because two copies
// should not run.
func (f *CompiledPlacement) keepsLostRow(in *Input) bool {
	terms := in.rowTerms()
	return in.KeepsLost && slices.ContainsFunc(in.Clusters, func(c Cluster) bool {
		return in.heldRow(&c) != nil && terms.keptCauses(&c)[f.findEviction(&c, in.Now, keptCauses{}).cause]
	})
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

// keepUnreplacedRows turns the verdicts on lost and drained clusters around that nothing replaces. The order of the clusters
// decides which rows stay, so that each decision keeps the same ones. A row that leaves for another reason too takes the
// place of none. All rows stay in either case where no cluster fits.
func (d *groupDecider) keepUnreplacedRows() {
	if len(d.lost) == 0 || d.placed == 0 {
		return
	}
	u := d.findUnreplaced()
	for _, l := range d.orderUnreplaced() {
		c, v := &d.input.Clusters[l.clusterIndex], &d.Verdicts[l.verdictIndex]
		row := d.input.heldRow(c)
		if !u.mayKeep(c, row) {
			continue
		}
		terms := d.input.rowTerms()
		terms.keepsUnreplaced = true
		kept := d.filter.judgeByUsedGroup(c, row, terms)
		if !kept.IsHolder() {
			continue
		}
		kept.storedRow, kept.holdsRow = v.storedRow, v.holdsRow
		notes := kept.Notes()
		notes.CapacityReason = v.Notes().CapacityReason
		kept.SetNotes(notes)
		kept.LeavesLost, kept.LeavesDrained, kept.LeavesFailed = v.LeavesLost, v.LeavesDrained, v.LeavesFailed
		d.explainUnreplaced(&kept, c)
		*v = kept
		d.completeHolderVerdict(v, c)
		u.keepRow(c)
	}
}

// unreplacedRows bounds which lost rows stay because nothing replaces them.
type unreplacedRows struct {
	// left is how many more may stay.
	left int
	// skipLeaving: a row that leaves already goes on, while others hold the replicas.
	skipLeaving bool
	// groups are the bounds of spread constraints.
	groups []groupBound
}

// groupBound is a spread constraint that bounds how many groups hold the Bundle, and the groups that do.
type groupBound struct {
	constraint *v1alpha1.SpreadConstraint
	most       int
	used       map[string]bool
}

// mayKeep reports whether the row of a lost cluster may stay.
func (u *unreplacedRows) mayKeep(c *Cluster, row *atoll.RowSpec) bool {
	if u.left <= 0 || row == nil || u.skipLeaving && !row.Phase.IsChosen() {
		return false
	}
	return !slices.ContainsFunc(u.groups, func(g groupBound) bool { return g.isExceededBy(c) })
}

// isExceededBy reports whether a copy in the cluster is in more further groups than the bound leaves.
func (g *groupBound) isExceededBy(c *Cluster) bool {
	var one [1]string
	opened := 0
	for _, name := range spreadGroupsOf(g.constraint, c, &one) {
		if !g.used[name] {
			opened++
		}
	}
	return opened > 0 && len(g.used)+opened > g.most
}

// useGroupsOf counts the groups of the cluster as used.
func (g *groupBound) useGroupsOf(c *Cluster) {
	var one [1]string
	for _, name := range spreadGroupsOf(g.constraint, c, &one) {
		g.used[name] = true
	}
}

// keepRow counts a row that stays.
func (u *unreplacedRows) keepRow(c *Cluster) {
	u.left--
	for _, g := range u.groups {
		g.useGroupsOf(c)
	}
}

// findUnreplaced returns which of the lost rows nothing replaces. None stays where nothing else holds the Bundle:
// then a later group takes over, or all rows stay.
func (d *groupDecider) findUnreplaced() unreplacedRows {
	all, holders := unreplacedRows{left: len(d.lost)}, d.input.UnlistedHolders
	for i := range d.Verdicts {
		if d.Verdicts[i].IsHolder() {
			holders++
		}
	}
	if holders == 0 {
		return unreplacedRows{}
	}
	if len(d.workloads) > 0 {
		if d.dividesToSomeConnectedCluster() {
			return unreplacedRows{left: d.countUnreplacedShares()}
		}
		all.skipLeaving = true
	}
	if d.pool == nil {
		return all
	}
	all.groups = d.findGroupBounds()
	if most := d.pool.problem.maxChosen; most != unlimited {
		all.left = most - holders
	}
	return all
}

// findGroupBounds returns the bounds of spread constraints, and the groups of the clusters that hold the Bundle.
func (d *groupDecider) findGroupBounds() (bounds []groupBound) {
	for n, r := range d.pool.problem.rules {
		if r.max > 0 {
			bounds = append(bounds, groupBound{constraint: &d.pool.spread[d.pool.rules[n]], most: r.max, used: map[string]bool{}})
		}
	}
	if len(bounds) == 0 {
		return nil
	}
	holds := d.listHolders()
	for i := range d.input.Clusters {
		if c := &d.input.Clusters[i]; holds[c.Name] {
			for _, b := range bounds {
				b.useGroupsOf(c)
			}
		}
	}
	return bounds
}

// countUnreplacedShares returns all lost rows where the other clusters are known to lack the capacity for the
// replicas, and 0 elsewhere.
func (d *groupDecider) countUnreplacedShares() int {
	others := groupTrial{decision: d.Decision}
	if others.measureCapacity(d.input); others.short && !d.canOverflow(others.needs-others.capacity) {
		return len(d.lost)
	}
	return 0
}

// canOverflow reports whether connected clusters of later groups are known to have the capacity for so many replicas, and
// get them. A group that chooses among its clusters does not count: it may choose others.
func (d *groupDecider) canOverflow(replicas int64) bool {
	if !d.placementAllowsOverflow() {
		return false
	}
	later := d.filter.affinityGroups[slices.Index(d.filter.affinityGroups, d.filter)+1:]
	holds := d.listHolders()
	for i := range d.input.Clusters {
		c := &d.input.Clusters[i]
		takes := slices.ContainsFunc(later, func(g *CompiledPlacement) bool { return g.choice == nil && g.AdmitsCluster(c) })
		if takes && !holds[c.Name] && d.input.findGroupRefusal(c) == nil && !d.input.refusesFailed(c) && d.input.isConnected(c) {
			replicas -= d.input.countKnownFitting(c, replicas)
		}
	}
	return replicas <= 0
}

// listHolders returns the clusters that hold the Bundle by the verdicts so far.
func (d *groupDecider) listHolders() map[string]bool {
	holds := make(map[string]bool, len(d.Verdicts))
	for i := range d.Verdicts {
		if d.Verdicts[i].IsHolder() {
			holds[d.Verdicts[i].Cluster] = true
		}
	}
	return holds
}
