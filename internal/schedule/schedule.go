package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// Input of one decision.
type Input struct {
	// BundleUID decides between equal clusters.
	BundleUID string
	Placement v1alpha1.PlacementSpec
	// Filter is the compiled PlacementTerms; nil: the placement alone is compiled.
	Filter    *CompiledPlacement
	WhenUnfit v1alpha1.WhenUnfit
	// Clusters: all of the fleet, or at least all that fit or hold a row, except
	// UnlistedHolders.
	Clusters []Cluster
	// AdmittedClusters is, by index in Clusters, the result of the filter's AdmitsCluster;
	// nil: the filter runs. Clusters are sorted by name then. Not for placements of
	// groups.
	AdmittedClusters []bool
	// PodLoads is, by index in Clusters, the result of Facts.AssignedPods; nil: the facts are
	// read. Clusters are sorted by name then.
	PodLoads []int64
	// UnlistedHolders counts clusters that fit and hold a row, and are not listed.
	UnlistedHolders int
	// UnschedulableClusters returns all drained and cordoned clusters, for explanations; nil: they are among Clusters.
	UnschedulableClusters func() []Cluster `json:"-"`
	// Facts about the clusters; nil: NoFacts.
	Facts FleetFacts `json:"-"`
	// NearbyBundles has, by index of the scores Affinity and AntiAffinity in
	// Placement.Scores, the selected Bundles. This Bundle is never among them.
	NearbyBundles [][]BundleClusters
	// AvoidDisconnected: disconnected clusters get nothing new where connected ones can have it.
	// Without it, connections matter to failback, overflow and rebalances alone.
	AvoidDisconnected bool
	// KeepsLost: clusters that the hub tainted as lost keep what they have, because two copies should not run.
	KeepsLost bool
	// UseFreeCapacity: Facts.FreeReplicas counts where replicas are divided by capacity, and
	// not all fitting clusters are chosen or there are groups to fall back to.
	UseFreeCapacity bool
	// SkipExplanations leaves out explanations, and verdicts on clusters that do not fit and
	// hold nothing.
	SkipExplanations bool
	// Workloads whose replicas are divided: the items that the content marks as divided.
	// None under Duplicated.
	Workloads []Workload
	// OverriddenShares are shares that overrides set, by cluster name and item key.
	OverriddenShares map[string]map[string]int64
	// PodFitOf returns whether the pods of undivided items fit in the reported free capacity of a cluster; nil: there are
	// none. A placement that limits its clusters chooses newcomers by it, and explanations have it, with a reason.
	PodFitOf func(c *Cluster, explain bool) PodFit `json:"-"`
	// Demand of the content; nil: stated capacity does not count.
	Demand *Demand
	// Rows by cluster name.
	Rows map[string]atoll.RowSpec
	// PendingFailback of the last decision. FailbackNotBefore is when an earlier group may
	// be used again at the earliest; zero: at any time.
	PendingFailback   PendingFailback
	FailbackNotBefore time.Time
	Now               time.Time
	// KeepsDecision: scheduling is suspended, so that the decision that the rows show stays.
	KeepsDecision bool
	// FailedClusters by name: the application is unhealthy there, or left them for that; nil: none.
	FailedClusters map[string]FailedCluster `json:",omitempty"`
	// WorkloadGroups of the Bundle's workloadAffinity; nil: it has none.
	WorkloadGroups *WorkloadGroups `json:"-"`

	newcomers newcomerRule
	// weighsFit: newcomers where the pods do not fit now count behind the others.
	weighsFit bool
	// capacityBlocked clusters fit in groups that were tried, and have no capacity left.
	capacityBlocked []string
	// groupRefusal counts clusters that workloadAffinity refused in groups that were not tried.
	groupRefusal *GroupRefusal
}

// isAdmitted reports whether the filter admits a cluster that holds no row.
func (in *Input) isAdmitted(f *CompiledPlacement, at int) bool {
	if in.AdmittedClusters != nil {
		return in.AdmittedClusters[at]
	}
	return f.AdmitsCluster(&in.Clusters[at])
}

// heldRowOrEmpty returns the row that a cluster holds of the Bundle; nil: none, or one that is
// being removed, or one of another cluster of that name.
func (in *Input) heldRow(c *Cluster) *atoll.RowSpec {
	r, has := in.Rows[c.Name]
	if !has || r.UID != c.UID || r.Phase == atoll.RowRemoving && !c.Deleting {
		return nil
	}
	return &r
}

// Outcome of a decision for one cluster.
type Outcome string

// The outcomes.
const (
	// OutcomePlaced: the cluster fits and is to hold the Bundle.
	OutcomePlaced Outcome = "Placed"
	// OutcomeKept: the cluster does not fit any more, and keeps what it runs.
	OutcomeKept Outcome = "Kept"
	// OutcomeLeaves: the cluster holds the Bundle and is to lose it.
	OutcomeLeaves Outcome = "Leaves"
	// OutcomeOut: the cluster does not fit and holds nothing.
	OutcomeOut Outcome = "Out"
	// OutcomeGone: there is a row, but the Cluster is deleted, so that no agent acts on it.
	OutcomeGone Outcome = "Gone"
)

// Verdict on one cluster.
type Verdict struct {
	Cluster string
	// UID of the Cluster; empty when there is none of that name.
	UID     string
	Outcome Outcome
	// Filter that refuses the cluster, and the reason; empty when it fits.
	Filter string
	Reason string
	// RowReason for kept and leaving rows: one of atoll.ReasonUnfit and so on.
	RowReason atoll.Reason
	// PlacementFingerprint that the row stores.
	PlacementFingerprint string
	// Weight in divisions, and the bounds of shares, for placed and kept clusters.
	Weight int64
	Bounds ReplicaBounds
	// Group among the decision groups, for placed and kept clusters; empty: none.
	Group string
	// Score of an option, of 1,000,000, and its parts, which are left out with
	// SkipExplanations. Both are empty where all that fit are taken.
	Score          int64
	ScoreBreakdown *ScoreBreakdown
	// OverflowStep of a cluster that takes replicas which have no place in the chosen ones, from 1;
	// 0: it is chosen.
	OverflowStep int32
	// Orphan: the cluster leaves the fleet, and what it has stays there.
	Orphan bool
	// FromScratch: this decision takes the row through a rebalance, so that its share is
	// divided from scratch.
	FromScratch bool
	// GetsNothingNew: the cluster is disconnected, and its share of replicas does not grow.
	GetsNothingNew bool
	// LeavesLost: the row leaves, and began to when the hub tainted the cluster as lost. LeavesDrained: a drain of the
	// cluster takes it out. LeavesFailed: the application failed there.
	LeavesLost, LeavesDrained, LeavesFailed bool

	// holdsRow: storedRow is the cluster's, and not being removed. Both are set where workloads
	// are divided. connection is read where divided replicas depend on it. capacityIndex is the
	// cluster's index in Decision.freeCapacity.
	holdsRow      bool
	connection    Connection
	capacityIndex int32
	// storedRow of that name, if there is one.
	storedRow *atoll.RowSpec
	// notes on the row; nil: none. They are replaced, and never changed. podFit; nil: not judged.
	notes  *RowNotes
	podFit *PodFit
}

// IsHolder reports whether the cluster is to hold the Bundle.
func (v *Verdict) IsHolder() bool { return v.Outcome == OutcomePlaced || v.Outcome == OutcomeKept }

// Decision about a Bundle. Read-only.
type Decision struct {
	// Verdicts on all clusters of the input and on all rows, by cluster name.
	Verdicts []Verdict
	// NoFit: no cluster fits, and the placement states at least one.
	NoFit bool
	// UnmetSpread states the minimum of the spread that cannot be met, so that nothing
	// changes. NoFit is set too.
	UnmetSpread string
	// WantsMore: the placement can still choose a cluster that starts to fit. It is false
	// where all that fit are taken.
	WantsMore bool
	// ReserveClusters are, with SkipExplanations and where all needed clusters were chosen, the
	// ReserveDepth best others of each kind. While clusters do not change, a decision
	// over these and the row holders chooses like one over the fleet, if it chooses at most
	// ReserveDepth new ones.
	ReserveClusters []string
	// EvictAt is when the first eviction is due; zero: none is.
	EvictAt time.Time
	// RecheckAt is when a dwell ends that prevents a move, or a hold time that prevents a
	// failback; zero: none does. ScoreThresholds are set where the Bundle may move; nil: it
	// may not now.
	RecheckAt       time.Time
	ScoreThresholds *ScoreThresholds
	// Group of clusterAffinities that is in use; empty where there are none.
	Group string
	// PendingFailback is to be used again at FailbackAt, if it stays healthy; the next Input
	// repeats it. AwaitsFailback: an earlier group is used again once it is healthy.
	PendingFailback PendingFailback
	FailbackAt      time.Time
	AwaitsFailback  bool
	// ChoseUnfit: a chosen newcomer has no place for all undivided pods now.
	ChoseUnfit bool
	// Overflows: replicas lack a place in the chosen clusters, and overflow is allowed. The decision
	// may differ with more capacity in any cluster that fits.
	Overflows bool
	// AwaitsConnection: a disconnected cluster was left out, and the decision may differ when a fitting
	// cluster without a row connects. DisconnectedHolders may get other shares when they connect. By
	// name.
	AwaitsConnection    bool
	DisconnectedHolders []string
	// EarlierGroupFull: an earlier group fits, and lacks free capacity for all replicas.
	EarlierGroupFull bool
	// Choice explains the choice among the clusters that fit, Groups why each of the
	// clusterAffinities is in use or not; nil where there are none, and with
	// SkipExplanations.
	Choice *ChoiceExplanation
	Groups []AffinityGroup
	// CapacityBlocked names clusters whose stated capacity keeps the Bundle out, or its row
	// from changing. With more capacity the decision may differ. Unordered, with duplicates.
	CapacityBlocked []string
	// GroupRefusal counts the clusters that workloadAffinity alone refuses; nil: none.
	GroupRefusal *GroupRefusal
	// WorkloadTerms explain workloadAffinity; nil where there is none, and with SkipExplanations.
	WorkloadTerms []WorkloadTerm
	// members are the templates that texts about workloadAffinity name, by these names; nil where WorkloadTerms is.
	members map[string]atoll.ItemKey

	tieSeed    string
	scheduling v1alpha1.ReplicaScheduling
	workloads  []Workload
	// summedWeights: see PlacementTerms. hasSummedWeight: the weight of a chosen cluster is larger by
	// that rule.
	summedWeights, hasSummedWeight bool
	// allRows includes rows that are being removed and rows of other clusters of that name.
	allRows map[string]atoll.RowSpec
	// freeCapacity by capacityIndex, nil where it is not known; a nil slice: of none.
	freeCapacity []freecapacity.NodeClasses
	// overriddenShares are shares that overrides set, by cluster name and item key.
	overriddenShares map[string]map[string]int64
	// demand of the content, and the stated capacity of the clusters that are to hold it, by
	// name.
	demand         *Demand
	statedCapacity map[string]statedCapacity
	// leftOutDisconnected: a disconnected cluster fits, and was left out. choseDisconnected: one was
	// chosen that holds nothing yet. needsDisconnected: without such clusters, none could be chosen.
	leftOutDisconnected, choseDisconnected, needsDisconnected bool
	// keepsShares: only disconnected clusters divide replicas, and no share gets smaller.
	keepsShares bool
	// keepsDecision: the shares of the rows stay, as the chosen clusters do. pinnedShares are clusters whose shares stay; nil: none.
	keepsDecision bool
	pinnedShares  map[string]bool
}

// DecidePlacement decides which clusters hold a Bundle. It is pure: it changes no argument,
// and is safe for concurrent use if the facts of the input are.
func DecidePlacement(in Input) Decision {
	f := in.Filter
	if f == nil {
		f = CompilePlacement(in.Placement)
	}
	var d Decision
	if f.HasGroups() {
		d = f.decideByGroups(in)
	} else {
		d = f.decideAvoidingUnfit(in)
	}
	d.withholdFromDisconnected(in.AvoidDisconnected)
	d.awaitDrainedClusters(in.KeepsLost)
	if in.KeepsDecision {
		d.keepLastDecision(&in)
	}
	if in.WorkloadGroups != nil && !in.SkipExplanations {
		d.WorkloadTerms, d.members = in.WorkloadGroups.Terms, readMemberNames(in.WorkloadGroups.List)
	}
	return d
}

// decideSingleGroup decides by a placement without groups, or by one of its groups.
func (f *CompiledPlacement) decideSingleGroup(in Input) Decision {
	d := &groupDecider{filter: f, input: &in, weigh: compileWeights(in.Placement.ReplicaScheduling, f.summedWeights), placed: in.UnlistedHolders}
	d.Decision = Decision{
		tieSeed: in.BundleUID, scheduling: in.Placement.ReplicaScheduling, workloads: in.Workloads,
		overriddenShares: in.OverriddenShares, demand: in.Demand, summedWeights: f.summedWeights,
	}
	if f.summedWeights {
		d.weighByLargest = compileWeights(in.Placement.ReplicaScheduling, false)
	}
	if len(in.Workloads) > 0 {
		d.allRows, d.storedRows = in.Rows, make([]atoll.RowSpec, 0, len(in.Rows))
	}
	if f.choice != nil {
		in.Clusters = sortClusters(in.Clusters)
		d.pool = newCandidatePool(f, &in)
	}
	d.Verdicts = make([]Verdict, 0, d.estimateVerdictCount())
	for i := range in.Clusters {
		d.decideCluster(i)
	}
	if d.pool != nil {
		d.placed += d.applyChoice()
	}
	d.keepUnreplacedRows()
	if d.rowsFound < len(in.Rows) {
		d.addVanishedClusters()
	}
	sortVerdictsByCluster(d.Verdicts)
	d.assignCapacityIndexes()
	if d.placed == 0 && !atoll.IsNowhere(in.Placement) {
		d.NoFit = true
		d.keepLeavingRows()
	}
	return d.Decision
}

// groupDecider is the work on one decideSingleGroup.
type groupDecider struct {
	Decision
	filter *CompiledPlacement
	input  *Input
	weigh  func(*Cluster) (int64, ReplicaBounds)
	// weighByLargest is the present rule where weigh has another; else nil.
	weighByLargest func(*Cluster) (int64, ReplicaBounds)
	// pool of the clusters that may be chosen; nil: all that fit are taken.
	pool *candidatePool
	// placed counts the clusters that fit, rowsFound the rows whose clusters are listed.
	placed, rowsFound int
	// storedRows are the rows of the verdicts. Their memory is allocated at once.
	storedRows []atoll.RowSpec
	// lost are the rows in clusters that the hub tainted as lost.
	lost []lostRow
	// unschedulable are the clusters that rows in drained ones name; nil: no row has needed them yet.
	unschedulable *unschedulableClusters
}

// estimateVerdictCount returns for how many verdicts there is to be memory. A Bundle without rows applies
// the filter to all clusters first, so that no list grows to the size of the fleet step by step.
func (d *groupDecider) estimateVerdictCount() (n int) {
	in := d.input
	switch {
	case !in.SkipExplanations:
		return len(in.Clusters) + 1
	case d.pool != nil || len(in.Rows) > 0:
		return len(in.Rows) + 1
	case in.AdmittedClusters == nil:
		in.AdmittedClusters = make([]bool, len(in.Clusters))
		for i := range in.Clusters {
			in.AdmittedClusters[i] = d.filter.AdmitsCluster(&in.Clusters[i])
		}
	}
	for _, admitted := range in.AdmittedClusters {
		if admitted {
			n++
		}
	}
	return n
}

// decideCluster adds the verdict on one of the input's clusters, or offers the cluster to
// the pool.
func (d *groupDecider) decideCluster(at int) {
	in, c := d.input, &d.input.Clusters[at]
	r, has := in.Rows[c.Name]
	if !has {
		d.decideNewcomer(at, c)
		return
	}
	d.rowsFound++
	var row *atoll.RowSpec
	if r.UID == c.UID && (r.Phase != atoll.RowRemoving || c.Deleting) && !(r.Phase == atoll.RowPending && in.AvoidDisconnected && in.isDisconnected(c)) {
		row = &r
	}
	v := d.filter.judgeByUsedGroup(c, row, in.rowTerms())
	if d.allRows != nil {
		d.storedRows = append(d.storedRows, r)
		v.storedRow, v.holdsRow = &d.storedRows[len(d.storedRows)-1], row != nil
	}
	d.applyBundleFilters(c, &v)
	d.applyCapacityFilter(c, row, &v)
	d.noteLostRow(at, row, &v)
	if d.pool == nil || !d.pool.offerClusterDeferringVerdict(at, row, &v, &d.Decision) {
		d.addVerdict(&v, c)
	}
}

// decideNewcomer is decideCluster for a cluster without a row. Without explanations,
// clusters that do not fit have no verdict.
func (d *groupDecider) decideNewcomer(at int, c *Cluster) {
	in, v := d.input, Verdict{Cluster: c.Name, UID: c.UID, Outcome: OutcomePlaced, PlacementFingerprint: d.filter.placementFingerprint}
	switch {
	case !in.SkipExplanations:
		v = d.filter.judgeByUsedGroup(c, nil, in.rowTerms())
	case !in.isAdmitted(d.filter, at):
		return
	}
	d.applyBundleFilters(c, &v)
	if d.applyCapacityFilter(c, nil, &v); in.SkipExplanations && v.Outcome == OutcomeOut {
		return
	}
	if d.pool == nil || !d.pool.offerClusterDeferringVerdict(at, nil, &v, &d.Decision) {
		d.addVerdict(&v, c)
	}
}

// addVerdict adds a verdict that the choice, if there is one, does not decide.
func (d *groupDecider) addVerdict(v *Verdict, c *Cluster) {
	if v.IsHolder() {
		d.completeHolderVerdict(v, c)
	}
	if v.Outcome == OutcomePlaced && d.pool == nil {
		d.placed++
	}
	d.noteEviction(v)
	d.Verdicts = append(d.Verdicts, *v)
}

// completeHolderVerdict adds to the verdict on a cluster that is to hold the Bundle what divisions
// and explanations need.
func (d *groupDecider) completeHolderVerdict(v *Verdict, c *Cluster) {
	v.Weight, v.Bounds = d.weigh(c)
	if d.weighByLargest != nil {
		largest, _ := d.weighByLargest(c)
		d.hasSummedWeight = d.hasSummedWeight || largest < v.Weight
	}
	v.Group = d.filter.decisionGroupOf(c)
	d.recordConnection(v, c)
	d.recordCapacity(v, c)
	d.recordPodFit(v, c)
}

// sortVerdictsByCluster sorts verdicts by cluster. The first verdicts are mostly in order; those of a
// choice or of rows alone come behind and are merged in.
func sortVerdictsByCluster(vs []Verdict) {
	sorted := 1
	for sorted < len(vs) && vs[sorted-1].Cluster <= vs[sorted].Cluster {
		sorted++
	}
	if sorted >= len(vs) {
		return
	}
	late := slices.Clone(vs[sorted:])
	slices.SortFunc(late, func(a, b Verdict) int { return strings.Compare(a.Cluster, b.Cluster) })
	for at := len(vs) - 1; len(late) > 0; at-- {
		if last := len(late) - 1; sorted > 0 && vs[sorted-1].Cluster > late[last].Cluster {
			sorted--
			vs[at] = vs[sorted]
		} else {
			vs[at], late = late[last], late[:last]
		}
	}
}

// addVanishedClusters adds verdicts on rows whose clusters are not there.
func (d *groupDecider) addVanishedClusters() {
	in := d.input
	there := make(map[string]bool, len(in.Clusters))
	for i := range in.Clusters {
		there[in.Clusters[i].Name] = true
	}
	for cluster := range in.Rows {
		if !there[cluster] {
			d.Verdicts = append(d.Verdicts, Verdict{
				Cluster: cluster, Outcome: OutcomeGone, Filter: FilterDeleting, Reason: "the Cluster does not exist any more",
			})
		}
	}
}

// keepLeavingRows turns leaving rows into kept ones: a placement that fits nothing is more
// likely a mistake than a wish. Rows in lost clusters wait for their clusters.
func (d *groupDecider) keepLeavingRows() {
	in := d.input
	slips := d.findMistakenLeavers()
	if !slices.ContainsFunc(d.Verdicts, slips) {
		return
	}
	byName := make(map[string]*Cluster, len(in.Rows))
	for i := range in.Clusters {
		if _, has := in.Rows[in.Clusters[i].Name]; has {
			byName[in.Clusters[i].Name] = &in.Clusters[i]
		}
	}
	for i, v := range d.Verdicts {
		if slips(v) {
			d.explainUnreplaced(&v, byName[v.Cluster])
			v.Outcome, v.RowReason = OutcomeKept, v.Notes().reasonWhereNothingFits()
			v.PlacementFingerprint = in.Rows[v.Cluster].PlacementFingerprint
			d.completeHolderVerdict(&v, byName[v.Cluster])
			d.Verdicts[i] = v
		}
	}
}

// JudgeCluster judges one cluster by itself: as if all that fit were chosen, in whichever
// group. row is its row of the Bundle, nil if it has none. Evictions are due by now.
func (f *CompiledPlacement) JudgeCluster(c *Cluster, row *atoll.RowSpec, unfit v1alpha1.WhenUnfit, now time.Time) Verdict {
	if row != nil && (row.UID != c.UID || row.Phase == atoll.RowRemoving && !c.Deleting) {
		row = nil
	}
	if f.HasGroups() {
		return f.judgeByHomeGroup(c, row, rowTerms{unfit: unfit, now: now})
	}
	return f.judgeByUsedGroup(c, row, rowTerms{unfit: unfit, now: now})
}

// judgeInGroup judges one cluster as if there were no other group; row is what it holds of
// the Bundle, nil if nothing.
func (f *CompiledPlacement) judgeInGroup(c *Cluster, row *atoll.RowSpec, terms rowTerms) Verdict {
	if row == nil || row.Phase == atoll.RowPending { // nothing runs there yet
		return f.judgeNewcomer(c)
	}
	v := Verdict{Cluster: c.Name, UID: c.UID}
	if c.Deleting {
		v.Outcome, v.Filter, v.Reason = OutcomeGone, FilterDeleting, "the Cluster is being deleted"
		return v
	}
	if c.Removal != "" && !c.RemovalHeld {
		v.setLeaving(FilterRemoval, atoll.ReasonClusterRemoved, removalReason)
		v.Orphan = c.Removal == v1alpha1.ClusterOrphan
		return v
	}
	refusals := f.listRefusals(c)
	for i := range refusals {
		if r := &refusals[i]; r.isPlacementEdit(row.PlacementFingerprint) {
			v.setLeaving(r.filter, atoll.ReasonPlacementEdited, r.reason)
			return v
		}
	}
	evict := f.findEvictionOf(c, &terms)
	if evict.isDue(terms.now) {
		v.leaveByEviction(evict)
		return v
	}
	v.PlacementFingerprint = f.fingerprintWithLastRebalance(row)
	notes := RowNotes{EvictAt: evict.at}
	if terms.keepsLost && f.findEviction(c, terms.now, keptCauses{}).cause == causeLoss {
		notes.KeptLost = keptExclusive
	}
	f.explainStay(c, &terms, &notes)
	v.SetNotes(notes)
	if len(refusals) == 0 {
		v.Outcome, v.FromScratch = OutcomePlaced, f.needsRebalance(row)
		return v
	}
	v.judgeDrifted(refusals, terms.unfit, f.needsRebalance(row))
	return v
}

// judgeNewcomer judges a cluster that holds nothing of the Bundle.
func (f *CompiledPlacement) judgeNewcomer(c *Cluster) Verdict {
	v := Verdict{Cluster: c.Name, UID: c.UID, Outcome: OutcomeOut, Orphan: c.Removal == v1alpha1.ClusterOrphan}
	r, refused := f.firstRefusal(c, true)
	if !refused {
		v.Outcome, v.PlacementFingerprint = OutcomePlaced, f.placementFingerprint
	} else if f.groupName != "" {
		r = f.explainUnusedGroup(c)
	}
	v.Filter, v.Reason = r.filter, r.reason
	return v
}

// judgeDrifted keeps a row whose cluster does not fit any more. The row leaves where the
// placement or a rebalance removes unfit rows, for a reason that the agent did not report.
func (v *Verdict) judgeDrifted(refusals []refusal, unfit v1alpha1.WhenUnfit, rebalance bool) {
	first := &refusals[0]
	v.Outcome, v.RowReason, v.Filter, v.Reason = OutcomeKept, atoll.ReasonUnfit, first.filter, first.reason
	if unfit != v1alpha1.UnfitRemove && !rebalance || first.by.keepsRows {
		return
	}
	for i := range refusals {
		if r := &refusals[i]; !r.agentReported {
			v.Outcome, v.Filter, v.Reason = OutcomeLeaves, r.filter, r.reason
			if rebalance {
				v.RowReason = atoll.ReasonRebalanced
			}
			return
		}
	}
}

// FindVerdict returns the verdict on one cluster by name; false when there is none.
func (d Decision) FindVerdict(cluster string) (Verdict, bool) {
	i, ok := slices.BinarySearchFunc(d.Verdicts, cluster, func(v Verdict, name string) int { return strings.Compare(v.Cluster, name) })
	if !ok {
		return Verdict{}, false
	}
	return d.Verdicts[i], true
}

// String formats it for people.
func (v Verdict) String() string {
	if v.Reason == "" {
		return string(v.Outcome)
	}
	return fmt.Sprintf("%s (%s: %s)", v.Outcome, v.Filter, v.Reason)
}
