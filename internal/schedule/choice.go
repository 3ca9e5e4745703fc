package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Filters that refuse a cluster which fits the table.
const (
	FilterSpread = "spreadConstraints"
	FilterMost   = "maxClusters"
	// FilterWeights refuses a cluster without a static weight while one with a weight fits.
	FilterWeights = "staticWeightList"
)

// choiceRules is how a placement chooses among the clusters that fit; nil where it takes
// them all.
type choiceRules struct {
	maxClusters int
	spread      []v1alpha1.SpreadConstraint
	scores      placementScores
	moveRule    *moveRule
	// fingerprint of all but the scores, as rows store it. Another fingerprint means that
	// the user edited how clusters are chosen.
	fingerprint string
	// needsWeight: a cluster without a static weight is no candidate while one with a weight
	// fits.
	needsWeight bool
}

func compileChoice(p *v1alpha1.PlacementSpec, summedWeights bool) *choiceRules {
	if p.MaxClusters == 0 && len(p.SpreadConstraints) == 0 {
		return nil
	}
	spread := withDefaultSpreadField(p.SpreadConstraints)
	var weighted []v1alpha1.ClusterAffinity
	if !summedWeights {
		weighted = weightTargets(p.ReplicaScheduling)
	}
	return &choiceRules{
		needsWeight: len(weighted) > 0,
		maxClusters: int(p.MaxClusters), spread: spread, scores: compileScores(p.Scores), moveRule: compileMoveRule(p.Rescheduling),
		fingerprint: shortFingerprint(struct {
			Max      int32
			Spread   []v1alpha1.SpreadConstraint
			Weighted []v1alpha1.ClusterAffinity `json:",omitempty"`
		}{p.MaxClusters, spread, weighted}),
	}
}

// withDefaultSpreadField returns the constraints with their default: without a field and a label, a
// constraint spreads over clusters.
func withDefaultSpreadField(list []v1alpha1.SpreadConstraint) []v1alpha1.SpreadConstraint {
	out := slices.Clone(list)
	for i := range out {
		if out[i].SpreadByLabel == "" && out[i].SpreadByProperty == "" {
			out[i].SpreadByField = cmp.Or(out[i].SpreadByField, v1alpha1.SpreadByCluster)
		}
	}
	return out
}

// LimitsClusters reports whether the placement takes only some of the clusters that fit, so
// that each choice depends on all of them.
func (f *CompiledPlacement) LimitsClusters() bool { return f.choice != nil }

// NeedsPodLoad reports whether the placement needs the pod load of every cluster. It is
// false for placements of groups.
func (f *CompiledPlacement) NeedsPodLoad() bool {
	return f.choice != nil && f.choice.scores.needsPodLoad && !f.HasGroups()
}

// Rows store the fingerprint of the filters, and after a slash the one of the choice.
func appendChoiceFingerprint(filters, choice string) string {
	if choice == "" {
		return filters
	}
	return filters + "/" + choice
}

func filterFingerprint(remembered string) string {
	filters, _, _ := strings.Cut(atoll.TrimRebalance(remembered), "/")
	return filters
}

func choiceFingerprint(remembered string) string {
	_, choice, _ := strings.Cut(atoll.TrimRebalance(remembered), "/")
	return choice
}

// candidatePool is the clusters that may be chosen, with verdicts that are not decided yet.
type candidatePool struct {
	*choiceRules
	input  *Input
	filter *CompiledPlacement
	// options are in the order of their clusters in the input.
	options []candidateOption
	// groups are, by constraint, the number of the group, or of the set of groups, of each option.
	groups     [][]int32
	groupIDs   []map[string]int32
	groupSets  [][][]int32 // by constraint; nil while no option is in several groups of one
	setNumbers map[string]int32
	bundleHash uint64 // hash of the Bundle
	nearby     []nearbyGroups
	problem    choiceProblem
	solver     *choiceSolver
	// fromScratch: clusters that run the Bundle are chosen from scratch.
	fromScratch bool
	// optionFacts are the facts by which the options were scored; nil without explanations.
	optionFacts []clusterFacts
	// rules are the numbers of the constraints that the problem's rules are.
	rules []int
	// capacityScores are the scores with free capacity added; nil: scores alone decided.
	capacityScores []int64
	// hasStatedCapacity: some of the clusters state their capacity.
	hasStatedCapacity bool
}

// initialGroups is the initial size of a constraint's map of groups.
const initialGroups = 48

func newCandidatePool(f *CompiledPlacement, in *Input) *candidatePool {
	c, size := f.choice, len(in.Clusters)
	p := &candidatePool{
		choiceRules: c, input: in, filter: f, bundleHash: hashText(in.BundleUID), nearby: c.scores.countNearbyGroups(in.NearbyBundles), options: make([]candidateOption, 0, size),
		fromScratch: f.hasRowsToRebalance(in.Rows), groups: make([][]int32, len(c.spread)), groupIDs: make([]map[string]int32, len(c.spread)),
	}
	for i := range c.spread {
		p.groupIDs[i] = make(map[string]int32, min(size, initialGroups))
		p.groups[i] = make([]int32, 0, size)
	}
	return p
}

// sortClusters sorts by name: groups are numbered in the order of the clusters.
func sortClusters(cs []Cluster) []Cluster {
	for i := 1; i < len(cs); i++ {
		if cs[i].Name < cs[i-1].Name {
			return slices.SortedFunc(slices.Values(cs), func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	return cs
}

// firstMissingSpread returns the hard constraint that refuses a newcomer because the cluster
// is in none of its groups.
func (c *choiceRules) firstMissingSpread(cl *Cluster) (at int, firstMissingSpread bool) {
	var one [1]string
	for i := range c.spread {
		if s := &c.spread[i]; s.WhenUnsatisfiable != v1alpha1.ScheduleAnyway && len(spreadGroupsOf(s, cl, &one)) == 0 {
			return i, true
		}
	}
	return 0, false
}

// spreadFieldName returns the field that a constraint spreads over, for people.
func spreadFieldName(s *v1alpha1.SpreadConstraint) string {
	switch {
	case s.SpreadByLabel != "":
		return "label " + s.SpreadByLabel
	case s.SpreadByProperty != "":
		return "property " + s.SpreadByProperty
	}
	return string(s.SpreadByField)
}

// rowPriority returns the priority of a cluster that runs the Bundle when clusters are chosen again: it stays,
// unless the user edited how clusters are chosen since.
func (c *choiceRules) rowPriority(row *atoll.RowSpec, outcome Outcome) int8 {
	switch {
	case !row.Phase.IsChosen():
		return prioLeaving
	case choiceFingerprint(row.PlacementFingerprint) == c.fingerprint:
		return prioLocked
	case outcome == OutcomeKept:
		return prioUnfit
	}
	return prioRunning
}

// offerClusterDeferringVerdict adds a cluster with the verdict of the filters to the pool. true: the verdict
// comes with the choice, or is left out. Verdicts on clusters that run the Bundle stay, and
// are completed later.
func (p *candidatePool) offerClusterDeferringVerdict(at int, row *atoll.RowSpec, v *Verdict, d *Decision) bool {
	in, f := p.input, p.filter
	c := &in.Clusters[at]
	if v.Outcome != OutcomePlaced && (v.Outcome != OutcomeKept || row == nil) {
		return false
	}
	if row == nil {
		if i, lacks := p.firstMissingSpread(c); lacks {
			v.Outcome, v.PlacementFingerprint = OutcomeOut, ""
			v.Filter, v.Reason = FilterSpread, fmt.Sprintf("it has no %s, over which spreadConstraints[%d] spreads", spreadFieldName(&p.spread[i]), i)
			return !in.needsVerdict(c)
		}
		if p.refuseDisconnected(c, v, d) {
			return !in.needsVerdict(c)
		}
	} else if p.fromScratch && f.needsRebalance(row) {
		p.offerHolderLikeNewcomer(at, row, v, d)
		return false
	}
	about := clusterFacts{runsBundle: row != nil && row.Phase.IsChosen(), avoidedTaints: f.countAvoidedTaints(c), nearby: p.nearby, fleet: in.resolveFacts()}
	if p.scores.needsPodLoad {
		about.othersPods, about.ownPods = in.podLoadAt(at, in.rowInLoad(c, row))
	}
	o := candidateOption{clusterIndex: int32(at), priority: prioNew, verdictIndex: noVerdict}
	if row != nil {
		o.priority = p.rowPriority(row, v.Outcome)
		o.verdictIndex = int32(len(d.Verdicts))
	} else {
		p.penalizeDisconnected(&o, c)
		p.penalizeUnfit(&o, c)
	}
	p.addOption(c, o, about)
	return row == nil
}

// addOption adds a cluster that may be chosen.
func (p *candidatePool) addOption(c *Cluster, o candidateOption, about clusterFacts) {
	o.score, o.rank = p.scores.scoreCluster(c, about)-o.sumPenalties(), mixHash(p.bundleHash^hashText(c.Name))
	p.hasStatedCapacity = p.hasStatedCapacity || len(c.Capacity) > 0 && p.input.Demand != nil
	p.options = append(p.options, o)
	if !p.input.SkipExplanations {
		p.optionFacts = append(p.optionFacts, about)
	}
	var one [1]string
	for i := range p.spread {
		s, id := &p.spread[i], noGroup
		if s.SpreadByField != v1alpha1.SpreadByCluster {
			id = p.numberGroups(i, spreadGroupsOf(s, c, &one))
		}
		p.groups[i] = append(p.groups[i], id)
	}
}

// poolChoice is the result of chooseOptions.
type poolChoice struct {
	options []int32
	// unmetReason states the minimum that cannot be met; empty: all can.
	unmetReason string
	// isFull: no more clusters are needed, whatever others there are.
	isFull bool
}

// chooseOptions chooses among the options.
func (p *candidatePool) chooseOptions() poolChoice {
	prob, least := choiceProblem{options: p.options, maxChosen: unlimited}, 0
	if p.maxClusters > 0 {
		prob.maxChosen = p.maxClusters
	}
	for i := range p.spread {
		s := &p.spread[i]
		soft := s.WhenUnsatisfiable == v1alpha1.ScheduleAnyway
		if s.SpreadByField == v1alpha1.SpreadByCluster {
			if s.MaxGroups > 0 {
				prob.maxChosen = min(prob.maxChosen, int(s.MaxGroups))
			}
			if !soft {
				least = max(least, int(s.MinGroups))
			}
			continue
		}
		p.rules = append(p.rules, i)
		prob.rules = append(prob.rules, spreadRule{
			min: max(1, int(s.MinGroups)), max: int(s.MaxGroups), skew: int(s.MaxSkew), isSoft: soft,
			groups: len(p.groupIDs[i]), groupOf: p.groups[i], sets: p.setsOf(i),
		})
	}
	p.problem = prob
	options, short := p.chooseWithCapacity(p.problem.chooseOptions())
	out := poolChoice{options: options, isFull: len(options) >= prob.maxChosen}
	if out.unmetReason = p.explainEmptyChoice(options); out.unmetReason != "" {
		return out
	}
	for r, missing := range short {
		if s := &p.spread[p.rules[r]]; missing > 0 && len(options) > 0 {
			out.unmetReason = fmt.Sprintf("spreadConstraints[%d] requires %d groups by %s, and the clusters that fit give %d",
				p.rules[r], prob.rules[r].min, spreadFieldName(s), prob.rules[r].min-missing)
			return out
		}
	}
	if len(options) < least && len(options) > 0 {
		out.unmetReason = fmt.Sprintf("spreadConstraints require %d clusters, and %d can be chosen", least, len(options))
	}
	return out
}

// hashText hashes a text; mixHash makes hashes of similar texts differ in all bits.
func hashText(s string) uint64 { return mixHash(uint64(fnvBasis.hashString(s))) }

func mixHash(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// choiceResult is the result for the options of a pool.
type choiceResult struct {
	poolChoice
	// isTaken by option. The target of the move is taken too.
	isTaken []bool
	move    *clusterMove
	why     *choiceComparison
	// leastFitPenalty of the newcomers that are taken.
	leastFitPenalty int32
	// overflowSteps of further options, by option.
	overflowSteps map[int32]int32
}

// applyChoice chooses among the clusters of the pool, completes the verdicts, and counts
// the clusters that fit; none where a minimum cannot be had.
func (d *groupDecider) applyChoice() (fit int) {
	p := d.pool
	d.dropUnweighted()
	r := choiceResult{poolChoice: p.chooseOptions()}
	r.move, d.RecheckAt = p.findBestMove(r.poolChoice, &d.Decision)
	d.WantsMore = !r.isFull || r.unmetReason != ""
	if p.input.SkipExplanations && !d.WantsMore && !p.needsCapacity() && !p.fromScratch && !d.placementAllowsOverflow() {
		d.ReserveClusters = p.selectReserveOptions(r.options)
	}
	r.isTaken = p.markOptions(r.options)
	if r.move != nil {
		r.isTaken[r.move.to] = true
	}
	r.why = d.explainChoice(p, r.poolChoice, r.isTaken)
	d.addOverflowOptions(&r)
	r.leastFitPenalty = p.leastFitPenalty(r.isTaken)
	d.Verdicts = slices.Grow(d.Verdicts, p.countOptionsWithoutVerdict(r.options))
	for i := range p.options {
		at := p.options[i].verdictIndex
		if at == noVerdict {
			fit++
			d.judgeNewOption(int32(i), &r)
			continue
		}
		if d.Verdicts[at].Outcome == OutcomePlaced {
			fit++
		}
		d.judgeRunningOption(int32(i), &r)
	}
	if r.unmetReason != "" {
		d.UnmetSpread, fit = r.unmetReason, 0
	}
	return fit
}

// countOptionsWithoutVerdict counts the listed options that have no verdict yet.
func (p *candidatePool) countOptionsWithoutVerdict(list []int32) (n int) {
	for _, i := range list {
		if p.options[i].verdictIndex == noVerdict {
			n++
		}
	}
	return n
}

// markOptions returns, by option, whether it is listed.
func (p *candidatePool) markOptions(list []int32) []bool {
	marked := make([]bool, len(p.options))
	for _, i := range list {
		marked[i] = true
	}
	return marked
}

// judgeRunningOption completes the verdict on an option that runs the Bundle.
func (d *groupDecider) judgeRunningOption(i int32, r *choiceResult) {
	o := &d.pool.options[i]
	v := &d.Verdicts[o.verdictIndex]
	v.Score, v.ScoreBreakdown = o.score, d.pool.explainScore(int(i))
	if r.unmetReason != "" || !r.isTaken[i] {
		row := d.input.Rows[d.input.Clusters[o.clusterIndex].Name]
		v.setNotChosen(r.unmetReason, &row)
	}
	if step := r.overflowSteps[i]; step > 0 {
		v.OverflowStep, v.PlacementFingerprint = step, markOverflow(v.PlacementFingerprint)
	}
	if r.move != nil && r.move.from == i {
		v.setLeaving(FilterRescheduling, atoll.ReasonMovedToBetter, r.move.formatReason(d.pool, d.input))
	}
}

// needsVerdict reports whether a cluster that is not chosen needs a verdict: where explanations are requested, and
// where a row is stored that may be of a copy that ends, or of another cluster of that name.
func (in *Input) needsVerdict(c *Cluster) bool {
	_, stored := in.Rows[c.Name]
	return stored || !in.SkipExplanations
}

// judgeNewOption adds the verdict on an option that does not run the Bundle. Without
// explanations, only chosen options and those with a stored row have a verdict.
func (d *groupDecider) judgeNewOption(i int32, r *choiceResult) {
	o := &d.pool.options[i]
	c, take := &d.input.Clusters[o.clusterIndex], r.isTaken[i] && r.unmetReason == ""
	if !take && !d.input.needsVerdict(c) {
		return
	}
	v := Verdict{Cluster: c.Name, UID: c.UID, Outcome: OutcomeOut, Score: o.plainScore(), ScoreBreakdown: d.pool.explainScore(int(i))}
	switch {
	case take:
		d.noteDisconnectedChoice(c)
		v.Outcome, v.PlacementFingerprint = OutcomePlaced, d.filter.placementFingerprint
		if v.OverflowStep = r.overflowSteps[i]; v.OverflowStep > 0 {
			v.PlacementFingerprint = markOverflow(v.PlacementFingerprint)
		}
		d.completeHolderVerdict(&v, c)
	case r.unmetReason != "":
		v.Filter, v.Reason = FilterSpread, r.unmetReason
	case o.penalty > 0:
		v.Filter, v.Reason = FilterConnection, disconnectedReason
	case o.fitPenalty > r.leastFitPenalty:
		v.Filter, v.Reason = FilterPodFit, "clusters where the pods fit sooner come first: "+d.input.PodFitOf(c, true).Reason
	case r.why != nil:
		v.Filter, v.Reason = r.why.explainNotChosen(i)
	}
	d.Verdicts = append(d.Verdicts, v)
}

// setNotChosen sets the verdict on a cluster that runs the Bundle, and was not chosen again
// or waits for an unmet minimum.
func (v *Verdict) setNotChosen(unmet string, row *atoll.RowSpec) {
	switch {
	case unmet != "":
		// Nothing changes, and the row still stores the edit.
		v.Outcome, v.RowReason, v.Filter, v.Reason = OutcomeKept, atoll.ReasonSpreadUnmet, FilterSpread, unmet
		v.PlacementFingerprint = atoll.AppendRebalance(appendChoiceFingerprint(filterFingerprint(v.PlacementFingerprint), choiceFingerprint(row.PlacementFingerprint)), row.LastRebalance())
		v.FromScratch = false
	case v.FromScratch && row.Phase.IsChosen():
		v.leaveForRebalance()
	case row.Phase.IsChosen() && cameByOverflow(row):
		v.setLeaving(FilterMost, atoll.ReasonOverflowReturned, "the replicas that overflowed to it return to the chosen clusters")
	case row.Phase.IsChosen():
		v.setLeaving(FilterMost, atoll.ReasonPlacementEdited, "maxClusters and spreadConstraints choose others since they were edited")
	default:
		// It was leaving already, and other clusters have its place.
		v.keepLeaving(FilterMost, row)
	}
}

// keepLeaving lets a row leave for the reason that it had, without the wait for a confirmation or a budget. A removal of its cluster
// that was called off is none any more. A row that left a lost cluster leaves it still.
func (v *Verdict) keepLeaving(filter string, row *atoll.RowSpec) {
	why := storedLeaveReason(row)
	if why.Reason == atoll.ReasonClusterRemoved || !atoll.IsReason(why.Reason) {
		why = atoll.RowReason{}
	}
	v.LeavesLost = why.Reason == atoll.ReasonEvicted && namesTaint(why.Text, v1alpha1.LossTaints...)
	v.LeavesDrained = why.Reason == atoll.ReasonEvicted && namesTaint(why.Text, v1alpha1.TaintDrain)
	v.LeavesFailed = why.Reason == atoll.ReasonApplicationFailed
	v.setLeaving(filter, cmp.Or(why.Reason, atoll.ReasonPlacementEdited), why.Text)
}

func (v *Verdict) setLeaving(filter string, rowReason atoll.Reason, reason string) {
	v.Outcome, v.Filter, v.RowReason, v.Reason = OutcomeLeaves, filter, rowReason, reason
	v.Weight, v.PlacementFingerprint, v.Group, v.FromScratch = 0, "", "", false
	v.SetNotes(RowNotes{CapacityReason: v.Notes().CapacityReason})
}

func toThousand(score int64) int64 { return int64(math.Round(float64(score) * 1000 / fullScore)) }

// ReserveDepth is how many of each kind a reserve holds. Clusters that are in the same
// groups are of one kind.
const (
	ReserveDepth    = 2
	maxReserveKinds = 256
)

// selectReserveOptions returns a reserve of the options that were not chosen; nil where there are too many kinds.
func (p *candidatePool) selectReserveOptions(chosen []int32) []string {
	taken, kinds := p.markOptions(chosen), 0
	for i := range p.options {
		kinds = max(kinds, int(p.options[i].class)+1)
	}
	if kinds > maxReserveKinds {
		return nil
	}
	best := make([][ReserveDepth]*candidateOption, kinds)
	for i := range p.options {
		o := &p.options[i]
		if taken[i] || o.priority != prioNew {
			continue
		}
		insertBest(&best[o.class], o)
	}
	out := make([]string, 0, kinds*ReserveDepth)
	for _, kind := range best {
		for _, o := range kind {
			if o != nil {
				out = append(out, p.input.Clusters[o.clusterIndex].Name)
			}
		}
	}
	return out
}

// insertBest keeps the best options of a kind, the best first.
func insertBest(best *[ReserveDepth]*candidateOption, o *candidateOption) {
	for rank := range best {
		if at := &best[rank]; o != nil && (*at == nil || o.compareOption(*at) < 0) {
			*at, o = o, *at
		}
	}
}
