package schedule

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// Overflow gives replicas that have no place in the chosen clusters to further ones, step by step. A
// step is the next group of clusterAffinities or, without groups, the next best cluster. A step ends
// when the clusters before it are known to have places for all replicas, so that the last step ends
// first. Until then, running replicas stay. Silence ends no step: a cluster of unknown capacity
// counts by what it runs, and so does a disconnected one.

// overflowMark ends the choice's fingerprint that the row of a further cluster stores.
const overflowMark = "+"

func markOverflow(fingerprint string) string {
	trimmed := atoll.TrimRebalance(fingerprint)
	return trimmed + overflowMark + fingerprint[len(trimmed):]
}

// cameByOverflow reports whether the row came as a further cluster of a placement without groups.
func cameByOverflow(row *atoll.RowSpec) bool {
	return strings.HasSuffix(choiceFingerprint(row.PlacementFingerprint), overflowMark)
}

// allowsOverflow reports whether replicas without a place go to further clusters. By static weights
// they do not where no chosen cluster has a weight, since all weigh the same then.
func (d *Decision) allowsOverflow() bool {
	return d.placementAllowsOverflow() && countDividedReplicas(d.workloads) > 0 && !d.NoFit && !d.lacksWeights()
}

func (d *Decision) placementAllowsOverflow() bool {
	return d.scheduling.Overflow == v1alpha1.OverflowAllow
}

// overflowDemand compares the divided replicas with the places for them.
type overflowDemand struct {
	in *Input
	// needed replicas, and how many of them are known to have a place.
	needed, placed int64
	// unknown: some cluster may have more places than are known.
	unknown bool
}

func newOverflowDemand(in *Input) *overflowDemand {
	return &overflowDemand{in: in, needed: countDividedReplicas(in.Workloads)}
}

func (o *overflowDemand) isMet() bool { return o.placed >= o.needed }

// needsCluster reports whether a cluster is used for overflow: something runs there that has no other
// place, or places are known to lack.
func (o *overflowDemand) needsCluster(holdsRow bool) bool {
	return !o.isMet() && (holdsRow || !o.unknown)
}

// addCluster adds the places in a cluster that is to hold the Bundle.
func (o *overflowDemand) addCluster(c *Cluster, v *Verdict) {
	places, known := o.countPlacesIncludingRunning(c, v)
	o.placed = quantity.AddCapped(o.placed, places)
	o.unknown = o.unknown || !known
}

// countPlacesIncludingRunning returns how many of the replicas have a place in a cluster, with those that it runs;
// not known: it may have more.
func (o *overflowDemand) countPlacesIncludingRunning(c *Cluster, v *Verdict) (places int64, known bool) {
	in, runs, most := o.in, int64(0), int64(0)
	row := in.heldRow(c)
	for i := range in.Workloads {
		w := &in.Workloads[i]
		if w.needsOneCluster() {
			continue
		}
		limit := min(max(w.Replicas, 0), v.Bounds.maxReplicas())
		most = quantity.AddCapped(most, limit)
		if row != nil {
			runs = quantity.AddCapped(runs, min(max(row.Assigned[w.Key.String()], 0), limit))
		}
	}
	if methodOf(in.Placement.ReplicaScheduling) == ByWeight && v.Weight <= 0 {
		return 0, true
	}
	if v.Outcome == OutcomeKept || !in.isConnected(c) {
		return runs, true
	}
	if places, known = in.countFittingReplicas(c, most); !known {
		places = min(places, runs)
	}
	return places, known
}

// canTake reports whether a cluster of overflow holds a row or, unless onlyHolders, may have a place.
func (o *overflowDemand) canTake(c *Cluster, v *Verdict, onlyHolders bool) bool {
	places, known := o.countPlacesIncludingRunning(c, v)
	return o.in.heldRow(c) != nil || !onlyHolders && (places > 0 || !known)
}

// addOverflowGroups adds the clusters of later groups to the decision by the group in use, while
// replicas lack places. It returns which groups take some. isHeld: the Bundle ran in the group
// before.
func (t *groupTrials) addOverflowGroups(d *Decision, used int, isHeld bool) (takes []bool) {
	if !d.allowsOverflow() {
		return nil
	}
	clusters := make(map[string]*Cluster, len(t.in.Clusters))
	for i := range t.in.Clusters {
		clusters[t.in.Clusters[i].Name] = &t.in.Clusters[i]
	}
	o := newOverflowDemand(t.in)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.IsHolder() && clusters[v.Cluster] != nil {
			o.addCluster(clusters[v.Cluster], v)
		}
	}
	takes, d.Overflows = make([]bool, len(t.byGroup)), !o.isMet()
	hasRows := t.groupsWithRows()
	d.Verdicts = slices.Clone(d.Verdicts)
	for g, step := used+1, int32(1); g < len(t.byGroup) && !o.isMet(); g++ {
		if o.needsCluster(hasRows[g]) && d.addOverflowGroup(&t.decideGroup(g).decision, o, step, clusters) {
			takes[g] = true
			step++
		}
	}
	if isHeld {
		d.explainOverflowReturns()
	}
	d.assignCapacityIndexes()
	return takes
}

// groupsWithRows returns, by group, whether a row came by it.
func (t *groupTrials) groupsWithRows() []bool {
	out := make([]bool, len(t.byGroup))
	for _, row := range t.in.Rows {
		name := rememberedGroup(row.PlacementFingerprint)
		for g, f := range t.f.affinityGroups {
			out[g] = out[g] || f.groupName == name
		}
	}
	return out
}

// addOverflowGroup adds the clusters that another group chose as a step of overflow, except new clusters
// without a place. It reports whether there were any.
func (d *Decision) addOverflowGroup(other *Decision, o *overflowDemand, step int32, clusters map[string]*Cluster) (any bool) {
	listed, onlyHolders := len(d.Verdicts), o.unknown
	for i := range other.Verdicts {
		v := other.Verdicts[i]
		c := clusters[v.Cluster]
		if !v.IsHolder() || c == nil {
			continue
		}
		at, found := slices.BinarySearchFunc(d.Verdicts[:listed], v.Cluster, func(v Verdict, name string) int { return strings.Compare(v.Cluster, name) })
		if found && d.Verdicts[at].IsHolder() || !o.canTake(c, &v, onlyHolders) {
			continue
		}
		o.addCluster(c, &v)
		if v.OverflowStep, any = step, true; !found {
			at, d.Verdicts = len(d.Verdicts), append(d.Verdicts, Verdict{})
		}
		d.Verdicts[at] = v
		d.copyCapacityAndEviction(other, &v)
	}
	d.hasSummedWeight = d.hasSummedWeight || any && other.hasSummedWeight
	sortVerdictsByCluster(d.Verdicts)
	return any
}

// copyCapacityAndEviction copies what another decision holds beside the verdict on a cluster.
func (d *Decision) copyCapacityAndEviction(other *Decision, v *Verdict) {
	if s, stated := other.statedCapacity[v.Cluster]; stated {
		if d.statedCapacity = maps.Clone(d.statedCapacity); d.statedCapacity == nil {
			d.statedCapacity = map[string]statedCapacity{}
		}
		d.statedCapacity[v.Cluster] = s
	}
	d.noteEviction(v)
}

// explainOverflowReturns gives the rows that leave since their step of overflow ended their reason.
func (d *Decision) explainOverflowReturns() {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Outcome == OutcomeLeaves && v.RowReason == atoll.ReasonGroupLeft {
			v.RowReason, v.Reason = atoll.ReasonOverflowReturned, "the replicas that overflowed to it return to the groups before it"
		}
	}
}

// assignCapacityIndexes gives each verdict its index of the free capacity.
func (d *Decision) assignCapacityIndexes() {
	for i := range d.Verdicts {
		d.Verdicts[i].capacityIndex = int32(i)
	}
}

// withoutOverflow returns a copy without the clusters of overflow, for workloads that stay whole or
// where their volumes are.
func withoutOverflow(candidates []ShareCandidate) []ShareCandidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c ShareCandidate) bool { return c.overflowStep > 0 })
}

// addOverflowOptions takes the further options that overflow needs.
func (d *groupDecider) addOverflowOptions(r *choiceResult) {
	if r.unmetReason != "" {
		return
	}
	for step, i := range d.chooseOverflowOptions(r.options) {
		if r.overflowSteps == nil {
			r.overflowSteps = map[int32]int32{}
		}
		r.overflowSteps[i], r.isTaken[i] = int32(step)+1, true
	}
	d.WantsMore = d.WantsMore || d.Overflows
}

// chooseOverflowOptions returns the further options that take replicas, in the order of their steps.
func (d *groupDecider) chooseOverflowOptions(chosen []int32) (further []int32) {
	p := d.pool
	if d.filter.groupName != "" || len(chosen) == 0 || !d.allowsOverflowOf(chosen) {
		return nil
	}
	o := newOverflowDemand(d.input)
	for _, i := range chosen {
		o.addCluster(d.optionCluster(i), d.optionVerdict(i))
	}
	d.Overflows = !o.isMet()
	if !o.isMet() {
		for _, i := range d.sortOptionsByRowAge(p.problem.orderFurtherOptions(chosen)) {
			c, v := d.optionCluster(i), d.optionVerdict(i)
			if o.needsCluster(d.input.heldRow(c) != nil) && o.canTake(c, v, o.unknown) {
				o.addCluster(c, v)
				further = append(further, i)
			}
		}
	}
	return further
}

// allowsOverflowOf is allowsOverflow before the options have their verdicts.
func (d *groupDecider) allowsOverflowOf(chosen []int32) bool {
	if !d.placementAllowsOverflow() || countDividedReplicas(d.workloads) == 0 {
		return false
	}
	return !hasStaticWeights(d.scheduling) || slices.ContainsFunc(chosen, func(i int32) bool { return d.optionVerdict(i).Weight > 0 })
}

func (d *groupDecider) optionCluster(i int32) *Cluster {
	return &d.input.Clusters[d.pool.options[i].clusterIndex]
}

// optionVerdict returns the verdict on an option, or for a new one what it would be.
func (d *groupDecider) optionVerdict(i int32) *Verdict {
	if at := d.pool.options[i].verdictIndex; at != noVerdict {
		return &d.Verdicts[at]
	}
	v := &Verdict{Outcome: OutcomePlaced}
	v.Weight, v.Bounds = d.weigh(d.optionCluster(i))
	return v
}

// sortOptionsByRowAge puts the options first that run the Bundle, in the order in which they came, so that the
// last one returns first.
func (d *groupDecider) sortOptionsByRowAge(further []int32) []int32 {
	age := func(i int32) int64 {
		if row := d.input.heldRow(d.optionCluster(i)); row != nil {
			return row.Since
		}
		return math.MaxInt64
	}
	slices.SortStableFunc(further, func(a, b int32) int { return cmp.Compare(age(a), age(b)) })
	return further
}

// orderFurtherOptions orders the options that were not chosen: as they would be added if
// maxClusters and maxGroups bounded nothing. A hard maxSkew holds.
func (p *choiceProblem) orderFurtherOptions(chosen []int32) []int32 {
	more := choiceProblem{options: slices.Clone(p.options), rules: slices.Clone(p.rules), maxChosen: len(p.options)}
	for _, i := range chosen {
		more.options[i].priority = prioLocked
	}
	for i := range more.rules {
		more.rules[i].max = 0
	}
	s := newSolver(&more)
	return s.attemptChoice(nil, 0).chosen[len(s.locked):]
}

// divideBySteps divides a total among the chosen clusters, and what has no place there among the
// clusters of each step of overflow. Running replicas stay in their step, and a smaller total takes
// from the last step first.
func divideBySteps(total int64, candidates []ShareCandidate, how DivisionMethod, seed string) (shares []int64, left int64) {
	if !slices.ContainsFunc(candidates, func(c ShareCandidate) bool { return c.overflowStep > 0 }) {
		return DivideReplicas(total, candidates, how, seed)
	}
	var steps [][]int32
	for i := range candidates {
		for int(candidates[i].overflowStep) >= len(steps) {
			steps = append(steps, nil)
		}
		steps[candidates[i].overflowStep] = append(steps[candidates[i].overflowStep], int32(i))
	}
	left = max(total, 0)
	kept := make([]int64, len(steps))
	for n, members := range steps {
		for _, i := range members {
			c := &candidates[i]
			runs := min(max(c.Current, 0), max(c.Max, 0), left)
			kept[n], left = kept[n]+runs, left-runs
		}
	}
	shares = make([]int64, len(candidates))
	for n, members := range steps {
		own := make([]ShareCandidate, len(members))
		for at, i := range members {
			own[at] = candidates[i]
		}
		var parts []int64
		parts, left = DivideReplicas(kept[n]+left, own, how, seed)
		for at, i := range members {
			shares[i] = parts[at]
		}
	}
	return shares, left
}
