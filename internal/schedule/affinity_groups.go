package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// PendingFailback is an earlier group of clusterAffinities that is about to be used again.
type PendingFailback struct {
	// Group is its name; empty: none.
	Group string
	// Since is when, by the caller's records, a healthy cluster of it began to fit.
	Since time.Time
}

const failbackPrefix, failbackInfix = "group ", " could be used since "

// String formats it so that ParsePendingFailback reads it again; empty where there is none.
func (b PendingFailback) String() string {
	if b.Group == "" {
		return ""
	}
	return failbackPrefix + b.Group + failbackInfix + b.Since.UTC().Format(time.RFC3339Nano)
}

// ParsePendingFailback reads the beginning of a text; zero where there is none.
func ParsePendingFailback(text string) PendingFailback {
	text, _, _ = strings.Cut(text, "; ")
	group, since, ok := strings.Cut(strings.TrimPrefix(text, failbackPrefix), failbackInfix)
	at, err := time.Parse(time.RFC3339Nano, since)
	if !ok || err != nil {
		return PendingFailback{}
	}
	return PendingFailback{Group: group, Since: at}
}

// HasGroups reports whether the placement has clusterAffinities and the Filter is not one of
// them.
func (f *CompiledPlacement) HasGroups() bool { return f.affinityGroups != nil && f.groupName == "" }

// FitsEarlierGroup reports whether the cluster fits in a group that comes before the named
// one.
func (f *CompiledPlacement) FitsEarlierGroup(group string, c *Cluster) bool {
	for _, g := range f.affinityGroups {
		if g.groupName == group {
			return false
		}
		if g.AdmitsCluster(c) {
			return true
		}
	}
	return false
}

// rememberedGroup returns the group of a row; empty: none.
func rememberedGroup(remembered string) string {
	_, group, _ := strings.Cut(filterFingerprint(remembered), groupMark)
	return group
}

// findGroup returns a group by its name; nil: there is none.
func (f *CompiledPlacement) findGroup(group string) *CompiledPlacement {
	for _, g := range f.affinityGroups {
		if g.groupName == group {
			return g
		}
	}
	return nil
}

// refuseByGroups refuses a newcomer that no group takes. A reason that all groups share is
// given once.
func (f *CompiledPlacement) refuseByGroups(c *Cluster) (refusal, bool) {
	var all refusal
	var reasons []string
	for i, g := range f.affinityGroups {
		r, refused := g.firstRefusal(c, true)
		if !refused {
			return refusal{}, false
		}
		if i == 0 {
			all = r
		} else if r.filter != all.filter || r.reason != all.reason {
			all = refusal{filter: FilterGroups}
		}
		reasons = append(reasons, g.groupName+": "+r.reason)
	}
	if all.filter == FilterGroups {
		all.reason = "in no group: " + strings.Join(reasons, "; ")
	}
	return all, true
}

// groupPick is the group that is used.
type groupPick struct {
	group int
	// isHeld: something of the Bundle stays in it, so that no later one is tried.
	isHeld bool
	// pendingFailback is a better group that will be used later.
	pendingFailback PendingFailback
	failbackAt      time.Time
	// earlierGroupFull: an earlier group would be better if it had free capacity for all
	// replicas.
	earlierGroupFull bool
	// goesBack: a rebalance goes back to a group before currentGroup.
	goesBack     bool
	currentGroup int
}

// groupTrials decides on each group of one placement at most once.
type groupTrials struct {
	f       *CompiledPlacement
	in      *Input
	byGroup []*groupTrial
}

// groupTrial is the decision in one group.
type groupTrial struct {
	decision Decision
	// needs is how many replicas need free capacity, 0 where the division does not go by it.
	// capacity is how many are known to fit. short: fewer fit than needed, and the free
	// capacity of all clusters is known.
	needs, capacity int64
	short           bool
	// needsDisconnected: connected clusters are not enough, or there are none.
	needsDisconnected bool
}

func (t *groupTrials) decideGroup(g int) *groupTrial {
	if t.byGroup[g] == nil {
		one := &groupTrial{decision: t.f.affinityGroups[g].decideAvoidingUnfit(*t.in)}
		one.measureCapacity(t.in)
		one.needsDisconnected = one.decision.needsDisconnectedClusters(t.in)
		t.byGroup[g] = one
	}
	return t.byGroup[g]
}

// isUsable reports whether connected clusters of the group are enough, and have free capacity for all
// replicas.
func (t *groupTrial) isUsable() bool {
	return !t.decision.NoFit && !t.short && !t.needsDisconnected
}

// measureCapacity adds up the free capacity of the clusters that would hold the Bundle. A
// cluster without a report takes all that the others cannot, so that nothing is short.
func (t *groupTrial) measureCapacity(in *Input) {
	if !in.usesReportedCapacity() {
		return
	}
	if t.needs = countDividedReplicas(in.Workloads); t.needs == 0 {
		return
	}
	byName := make(map[string]*Cluster, len(in.Clusters))
	for i := range in.Clusters {
		byName[in.Clusters[i].Name] = &in.Clusters[i]
	}
	t.short = !t.decision.NoFit
	for i := range t.decision.Verdicts {
		v := &t.decision.Verdicts[i]
		if !v.IsHolder() || byName[v.Cluster] == nil {
			continue
		}
		n, known := in.resolveFacts().FreeReplicas(byName[v.Cluster])
		t.short = t.short && known
		t.capacity += min(max(n, 0), t.needs-t.capacity)
	}
	t.short = t.short && t.capacity < t.needs
}

// decideByGroups decides by the group in use, else by the first usable group: its clusters
// can be chosen and have free capacity for all replicas where these are divided by it. If
// no group has the capacity, the first one decides in which clusters can be chosen.
func (f *CompiledPlacement) decideByGroups(in Input) Decision {
	in.FailedClusters = f.keepHopelessFailures(&in)
	t := &groupTrials{f: f, in: &in, byGroup: make([]*groupTrial, len(f.affinityGroups))}
	p := f.pickGroup(t)
	used := p.group
	switch {
	case p.goesBack:
		used = t.firstUsableBefore(used, p.currentGroup)
	case !p.isHeld:
		used = t.firstUsable(used)
	}
	d := t.decideGroup(used).decision
	overflow := t.addOverflowGroups(&d, used, p.isHeld)
	d.CapacityBlocked, d.GroupRefusal = t.listCapacityBlocked(), t.findRefusalOfGroups()
	_, back := in.Placement.Failback.HoldDuration()
	d.Group, d.PendingFailback, d.FailbackAt, d.AwaitsFailback = f.affinityGroups[used].groupName, p.pendingFailback, p.failbackAt, back && used > 0
	if d.EarlierGroupFull = p.earlierGroupFull; !p.isHeld {
		d.EarlierGroupFull = back && slices.ContainsFunc(t.byGroup[:used], func(t *groupTrial) bool { return t != nil && t.short })
	}
	if d.RecheckAt.IsZero() || !p.failbackAt.IsZero() && p.failbackAt.Before(d.RecheckAt) {
		d.RecheckAt = p.failbackAt
	}
	if !in.SkipExplanations {
		d.Groups = t.explainGroups(used, overflow, p)
	}
	return d
}

// listCapacityBlocked lists the clusters that any of the trials found without capacity.
func (t *groupTrials) listCapacityBlocked() (names []string) {
	for _, one := range t.byGroup {
		if one != nil {
			names = append(names, one.decision.CapacityBlocked...)
		}
	}
	return append(names, t.in.capacityBlocked...)
}

// firstUsable returns the first usable group, starting at from. With overflow, a group need not
// have free capacity for all replicas.
func (t *groupTrials) firstUsable(from int) int {
	fits := -1
	for g := from; g < len(t.byGroup); g++ {
		if one := t.decideGroup(g); one.isUsable() || one.decision.allowsOverflow() {
			return g
		} else if fits < 0 && !one.decision.NoFit {
			fits = g
		}
	}
	return max(from, fits)
}

// firstUsableBefore returns the first usable group from one on, or else the last: running
// rows stay in their group where no earlier one is usable after all.
func (t *groupTrials) firstUsableBefore(from, last int) int {
	for g := from; g < last; g++ {
		if t.decideGroup(g).isUsable() {
			return g
		}
	}
	return last
}

// groupOutcomes is what the Bundle has in a group.
type groupOutcomes struct{ hasPlaced, hasKept, hasLeaving bool }

func (f *CompiledPlacement) pickGroup(t *groupTrials) groupPick {
	in := t.in
	current := f.findCurrentGroup(in)
	if current < 0 {
		for g := range f.affinityGroups {
			if f.affinityGroups[g].fitsAnyCluster(in) {
				return groupPick{group: g}
			}
		}
		return groupPick{}
	}
	if g, found := f.findRebalanceGroup(in, current); found {
		return groupPick{group: g, goesBack: true, currentGroup: current}
	}
	p := groupPick{group: current, isHeld: true}
	if hold, back := in.Placement.Failback.HoldDuration(); back && !f.keepsLostRow(in) {
		p.considerFailback(f, t, hold)
	}
	return p
}

// findCurrentGroup returns the group in which something of the Bundle stays; negative: none.
func (f *CompiledPlacement) findCurrentGroup(in *Input) int {
	stands := make([]groupOutcomes, len(f.affinityGroups))
	for i := range in.Clusters {
		if row := in.heldRow(&in.Clusters[i]); row != nil {
			f.recordRowOutcome(stands, &in.Clusters[i], row, in)
		}
	}
	for g, s := range stands {
		// A row that only stays because no better place exists does not keep a group that other
		// rows have to leave, and that nothing fits in.
		if s.hasPlaced || s.hasKept && (!s.hasLeaving || f.affinityGroups[g].fitsAnyCluster(in)) {
			return g
		}
	}
	return -1
}

// considerFailback picks the first earlier group that can be used, once it could be for as
// long as the hold time.
func (p *groupPick) considerFailback(f *CompiledPlacement, t *groupTrials, hold time.Duration) {
	in := t.in
	for g := range p.group {
		if !f.affinityGroups[g].fitsConnectedCluster(in) || !t.decideGroup(g).isUsable() {
			p.earlierGroupFull = p.earlierGroupFull || t.byGroup[g] != nil && t.byGroup[g].short
			continue
		}
		p.pendingFailback = PendingFailback{Group: f.affinityGroups[g].groupName, Since: in.Now}
		if in.PendingFailback.Group == p.pendingFailback.Group {
			p.pendingFailback.Since = in.PendingFailback.Since
		}
		if p.failbackAt = p.pendingFailback.Since.Add(hold); p.failbackAt.Before(in.FailbackNotBefore) {
			p.failbackAt = in.FailbackNotBefore
		}
		if !in.Now.Before(p.failbackAt) {
			*p = groupPick{group: g, pendingFailback: p.pendingFailback}
		}
		return
	}
}

// recordRowOutcome notes the outcome of a row in the group that it came by. A row that stores none
// counts for the first group in which its cluster fits.
func (f *CompiledPlacement) recordRowOutcome(stands []groupOutcomes, c *Cluster, row *atoll.RowSpec, in *Input) {
	name := rememberedGroup(row.PlacementFingerprint)
	for g, home := range f.affinityGroups {
		if name != "" && home.groupName != name {
			continue
		}
		v := home.judgeInGroup(c, row, in.rowTerms())
		switch {
		case v.Outcome == OutcomePlaced:
			stands[g].hasPlaced = true
		case name == "":
			continue
		case v.Outcome == OutcomeKept:
			stands[g].hasKept = true
		case v.Outcome == OutcomeLeaves:
			stands[g].hasLeaving = true
		}
		return
	}
}

func (f *CompiledPlacement) fitsAnyCluster(in *Input) bool {
	for i := range in.Clusters {
		if in.admitsWithCapacity(f, &in.Clusters[i]) {
			return true
		}
	}
	return false
}

func (f *CompiledPlacement) fitsConnectedCluster(in *Input) bool {
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if in.admitsWithCapacity(f, c) && in.isConnected(c) {
			return true
		}
	}
	return false
}

// judgeByUsedGroup judges a cluster by the group in use. A row that came by another group,
// and does not fit this one, leaves where its own group would keep it: that group is not in
// use any more.
func (f *CompiledPlacement) judgeByUsedGroup(c *Cluster, row *atoll.RowSpec, terms rowTerms) Verdict {
	v := f.judgeInGroup(c, row, terms)
	if row == nil || f.groupName == "" || v.Outcome == OutcomePlaced || v.Filter == FilterRemoval {
		return v
	}
	home := f.findGroup(rememberedGroup(row.PlacementFingerprint))
	if home == nil || home == f {
		return v
	}
	if v = home.judgeInGroup(c, row, terms); v.Outcome == OutcomePlaced {
		v.Outcome, v.RowReason, v.Filter = OutcomeLeaves, atoll.ReasonGroupLeft, FilterGroups
		v.Reason = fmt.Sprintf("group %s is used again, which comes before %s", f.groupName, home.groupName)
		v.PlacementFingerprint = ""
		v.SetNotes(RowNotes{KeptLost: v.Notes().KeptLost})
		if !row.Phase.IsChosen() && (namesTaint(row.Reason, v1alpha1.LossTaints...) || leftForFailure(row)) {
			v.keepLeaving(FilterGroups, row)
		}
	}
	return v
}

// explainUnusedGroup returns, for a newcomer that the group in use refuses, whether another
// group would take it.
func (f *CompiledPlacement) explainUnusedGroup(c *Cluster) refusal {
	if g := f.findOtherAdmittingGroup(c); g != nil {
		return refusal{filter: FilterGroups, reason: fmt.Sprintf("it fits in group %s, and group %s is in use", g.groupName, f.groupName)}
	}
	all, _ := f.refuseByGroups(c)
	return all
}

// findOtherAdmittingGroup returns another group that would take a newcomer; nil: there is none.
func (f *CompiledPlacement) findOtherAdmittingGroup(c *Cluster) *CompiledPlacement {
	for _, g := range f.affinityGroups {
		if g != f && g.AdmitsCluster(c) {
			return g
		}
	}
	return nil
}

// judgeByHomeGroup judges a cluster by the group that its row came by. A row that stores none is
// judged by the first group in which it fits, a newcomer by all.
func (f *CompiledPlacement) judgeByHomeGroup(c *Cluster, row *atoll.RowSpec, terms rowTerms) (v Verdict) {
	if row == nil {
		v = Verdict{Cluster: c.Name, UID: c.UID, Outcome: OutcomePlaced, Orphan: c.Removal == v1alpha1.ClusterOrphan}
		if r, refused := f.refuseByGroups(c); refused {
			v.Outcome, v.Filter, v.Reason = OutcomeOut, r.filter, r.reason
		}
		return v
	}
	if home := f.findGroup(rememberedGroup(row.PlacementFingerprint)); home != nil {
		return home.judgeInGroup(c, row, terms)
	}
	for i, g := range f.affinityGroups {
		if other := g.judgeInGroup(c, row, terms); i == 0 || other.Outcome == OutcomePlaced {
			if v = other; v.Outcome == OutcomePlaced {
				break
			}
		}
	}
	return v
}
