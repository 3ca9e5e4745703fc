package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"

	"atoll.dev/atoll/internal/phrase"
)

// ScoreBreakdown is what a cluster's score is made of.
type ScoreBreakdown struct {
	// Components in the order of the choice's scores. The score is their mean by weight,
	// less 200,000 for each of AvoidedTaints.
	Components []ScoreComponent
	// AvoidedTaints counts the PreferNoSchedule taints that are not tolerated.
	AvoidedTaints int
}

// ScoreComponent is one part of a score.
type ScoreComponent struct {
	// Points of 1,000,000, and Inputs from which they are computed, for people; empty where the name
	// of the score suffices.
	Points int64
	Inputs string
}

// WeightedScore is one of the scores of a placement.
type WeightedScore struct {
	// Name includes the score's subject, such as "ResourceAvailable cpu".
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
}

// ChoiceExplanation describes how clusters were chosen among those that fit.
type ChoiceExplanation struct {
	// MaxClusters to choose; 0: no bound.
	MaxClusters int
	// Fit counts the clusters that could be chosen, Chosen the chosen ones.
	Fit, Chosen int
	Scores      []WeightedScore
	// Lowest is the chosen cluster with the lowest score, LowestScore its score of
	// 1,000,000; empty: none was chosen.
	Lowest      string
	LowestScore int64
	// RoomFor is how many replicas counted against the scores, since the clusters that score
	// best lack free capacity; 0: scores alone decided.
	RoomFor int64
	// Spread describes each spread constraint, in their order.
	Spread []SpreadExplanation
}

// SpreadExplanation is the result of a spread constraint.
type SpreadExplanation struct {
	// SpreadField that the constraint is about, such as "zone".
	SpreadField string
	Constraint  v1alpha1.SpreadConstraint
	// Groups by name; none where each cluster is its own group.
	Groups []SpreadGroup
}

// SpreadGroup is one of the groups over which a constraint spreads.
type SpreadGroup struct {
	Name string `json:"name"`
	// Clusters that the decision looked at, those of them that Fit, and Chosen ones.
	Clusters int `json:"clusters"`
	Fit      int `json:"fit"`
	Chosen   int `json:"chosen"`
	// Why no cluster of it was chosen; empty where one was.
	Why string `json:"why,omitempty"`
}

// RedactCounts returns the decision for a reader that may not see all clusters: without
// counts in Choice and Groups of clusters that do not hold the Bundle.
func (d Decision) RedactCounts() Decision {
	if d.Choice != nil {
		c := *d.Choice
		c.Fit, c.Spread = 0, slices.Clone(c.Spread)
		for i := range c.Spread {
			s := &c.Spread[i]
			s.Groups = slices.DeleteFunc(slices.Clone(s.Groups), func(g SpreadGroup) bool { return g.Chosen == 0 })
			for n := range s.Groups {
				s.Groups[n].Clusters, s.Groups[n].Fit = 0, 0
			}
		}
		d.Choice = &c
	}
	d.Groups = slices.Clone(d.Groups)
	for i := range d.Groups {
		g := &d.Groups[i]
		g.Fit, g.Healthy, g.Refused = 0, 0, nil
	}
	return d
}

// FormatScore formats a score of 1,000,000 as one of 1000. It has fraction digits only where these
// distinguish it from the other scores.
func FormatScore(score int64, other ...int64) string {
	for _, o := range other {
		if o != score && toThousand(o) == toThousand(score) {
			return strconv.FormatFloat(float64(score)*1000/fullScore, 'f', 3, 64)
		}
	}
	return strconv.FormatInt(toThousand(score), 10)
}

// listWeightedScores lists the scores, for people.
func (s *placementScores) listWeightedScores() []WeightedScore {
	out := make([]WeightedScore, 0, len(s.rules))
	for i := range s.rules {
		p := &s.rules[i]
		name := string(p.name)
		if about := cmp.Or(string(p.resource), p.property, p.measure, p.preference); about != "" {
			name += " " + about
		}
		out = append(out, WeightedScore{Name: name, Weight: p.weight})
	}
	return out
}

// explainScore explains the score of an option; nil without explanations.
func (p *candidatePool) explainScore(i int) *ScoreBreakdown {
	if p.optionFacts == nil {
		return nil
	}
	c, f := &p.input.Clusters[p.options[i].clusterIndex], &p.optionFacts[i]
	out := &ScoreBreakdown{Components: make([]ScoreComponent, len(p.scores.rules)), AvoidedTaints: f.avoidedTaints}
	for n := range p.scores.rules {
		r := &p.scores.rules[n]
		out.Components[n].Points = r.points(r, c, *f)
		if r.describe != nil {
			out.Components[n].Inputs = r.describe(r, c, *f)
		}
	}
	return out
}

// maxSwapTests bounds the work of finding the clusters whose place an option could take.
const maxSwapTests = 2_000

// choiceComparison compares the chosen options with the others.
type choiceComparison struct {
	*candidatePool
	chosen    poolChoice
	isChosen  []bool
	counts    [][]int32
	fullRules []bool
	// worstByClass is the worst chosen option of each class, the worst first.
	worstByClass []int32
	swapTests    int
	// exclusions are, by class, why its options were left out.
	exclusions map[int32]*classExclusion
}

// classExclusion is why options that are in the same groups were left out: by a rule of the
// spread, or since the rival, whose place they could take, was better; noClass: there is no
// rival. For maxGroups both are set.
type classExclusion struct {
	rule  string
	rival int32
}

// explainChoice starts the explanation; nil without explanations.
func (d *Decision) explainChoice(p *candidatePool, got poolChoice, taken []bool) *choiceComparison {
	if p.input.SkipExplanations {
		return nil
	}
	w := &choiceComparison{candidatePool: p, chosen: got, isChosen: taken, exclusions: map[int32]*classExclusion{}}
	if len(p.problem.rules) > 0 && p.solver == nil {
		p.solver = newSolver(&p.problem)
	}
	if len(p.problem.rules) > 0 {
		w.counts = p.solver.countGroups(got.options)
		w.fullRules = p.solver.rulesAtMaximum(w.counts)
	}
	w.findWorstByClass()
	d.Choice = &ChoiceExplanation{Fit: len(p.options), Scores: p.scores.listWeightedScores()}
	if p.problem.maxChosen < unlimited {
		d.Choice.MaxClusters = p.problem.maxChosen
	}
	if got.unmetReason == "" {
		w.findLowestChosenScore(d.Choice)
	}
	if p.capacityScores != nil {
		d.Choice.RoomFor = countDividedReplicas(p.input.Workloads)
	}
	for i := range p.spread {
		d.Choice.Spread = append(d.Choice.Spread, SpreadExplanation{SpreadField: spreadFieldName(&p.spread[i]), Constraint: p.spread[i]})
	}
	for rule, i := range p.rules {
		d.Choice.Spread[i].Groups = w.explainSpreadGroups(rule)
	}
	return w
}

// findLowestChosenScore finds the lowest score among the chosen options.
func (w *choiceComparison) findLowestChosenScore(c *ChoiceExplanation) {
	for i, is := range w.isChosen {
		if !is {
			continue
		}
		c.Chosen++
		if score := w.options[i].plainScore(); c.Lowest == "" || score < c.LowestScore {
			c.Lowest, c.LowestScore = w.clusterName(int32(i)), score
		}
	}
}

func (w *choiceComparison) clusterName(i int32) string {
	return w.input.Clusters[w.options[i].clusterIndex].Name
}

// comparedScore is the score by which options were compared.
func (w *choiceComparison) comparedScore(i int32) int64 {
	if w.capacityScores != nil {
		return w.capacityScores[i]
	}
	return w.options[i].score
}

// compareOptions puts the option first that was taken first.
func (w *choiceComparison) compareOptions(a, b int32) int {
	x, y := w.options[a], w.options[b]
	x.score, y.score = w.comparedScore(a), w.comparedScore(b)
	return x.compareOption(&y)
}

// findWorstByClass finds the worst chosen option of each class.
func (w *choiceComparison) findWorstByClass() {
	worst := map[int32]int32{}
	for _, i := range w.chosen.options {
		was, known := worst[w.classOf(i)]
		if !known || w.compareOptions(i, was) > 0 {
			worst[w.classOf(i)] = i
		}
	}
	for _, i := range worst {
		w.worstByClass = append(w.worstByClass, i)
	}
	slices.SortFunc(w.worstByClass, func(a, b int32) int { return w.compareOptions(b, a) })
}

func (w *choiceComparison) classOf(i int32) int32 {
	if len(w.problem.rules) == 0 {
		return 0
	}
	return w.options[i].class
}

// explainClass returns why options that are in the same groups as this one were left out.
func (w *choiceComparison) explainClass(i int32) *classExclusion {
	l := w.exclusions[w.classOf(i)]
	if l == nil {
		l = &classExclusion{rival: noClass}
		rule, closed := w.refuseBySpread(i)
		if l.rule = rule; w.chosen.isFull || closed {
			l.rival = w.findRival(i)
		}
		if l.rival != noClass && w.chosen.isFull {
			l.rule = ""
		}
		w.exclusions[w.classOf(i)] = l
	}
	return l
}

// findRival returns the worst chosen option whose place the spread lets the option take;
// noClass: there is none.
func (w *choiceComparison) findRival(i int32) int32 {
	for _, r := range w.worstByClass {
		if w.swapTests++; w.swapTests > maxSwapTests {
			break
		}
		if w.keepsSpread(w.chosen.options, r, i) {
			return r
		}
	}
	return noClass
}

// refuseBySpread returns the rule that keeps one more cluster of the option's groups out;
// empty: none. closed: the rule is maxGroups.
func (w *choiceComparison) refuseBySpread(i int32) (rule string, closed bool) {
	var one [1]int32
	for n := range w.problem.rules {
		r := &w.problem.rules[n]
		groups := r.listGroups(r.groupOf[i], &one)
		if r.exceedsMaximum(groups, w.counts[n], w.fullRules[n]) {
			return w.explainMaximum(n, groups), true
		}
		if rule = w.explainSkew(n, groups); rule != "" {
			return rule, false
		}
	}
	return "", false
}

// explainMaximum explains that the maximum of a rule keeps one more cluster of these groups out.
func (w *choiceComparison) explainMaximum(n int, groups []int32) string {
	most := w.problem.rules[n].max
	if !w.fullRules[n] {
		opened := slices.DeleteFunc(slices.Clone(groups), func(g int32) bool { return w.counts[n][g] > 0 })
		return fmt.Sprintf("maxGroups of spreadConstraints[%d] is %d, and the cluster adds %d groups to the %d of those that were chosen",
			w.rules[n], most, len(opened), countUsed(w.counts[n]))
	}
	unused := groups[slices.IndexFunc(groups, func(g int32) bool { return w.counts[n][g] == 0 })]
	return fmt.Sprintf("maxGroups of spreadConstraints[%d] is %d, and %s has none of those that were chosen (%s)",
		w.rules[n], most, w.formatGroup(n, unused), w.formatUsedGroups(n))
}

// explainSkew explains that the skew of a rule keeps one more cluster of these groups out; empty: it does not.
func (w *choiceComparison) explainSkew(n int, groups []int32) string {
	r := &w.problem.rules[n]
	if r.skew == 0 || r.isSoft {
		return ""
	}
	floor := w.solver.skewFloorWith(n, groups, w.counts)
	for _, g := range groups {
		if int64(w.counts[n][g]) >= floor+int64(r.skew) {
			return fmt.Sprintf("maxSkew of spreadConstraints[%d] is %d: %s has %d, and another %s that counts has %d",
				w.rules[n], r.skew, w.formatGroup(n, g), w.counts[n][g], spreadFieldName(&w.spread[w.rules[n]]), floor)
		}
	}
	return ""
}

// formatGroup returns a group as text, such as "zone eu-a".
func (w *choiceComparison) formatGroup(rule int, group int32) string {
	text := spreadFieldName(&w.spread[w.rules[rule]])
	for name, id := range w.groupIDs[w.rules[rule]] {
		if id == group {
			text += " " + name
		}
	}
	return text
}

// formatUsedGroups lists the first few groups that a rule uses.
func (w *choiceComparison) formatUsedGroups(rule int) string {
	var used []string
	for name, id := range w.groupIDs[w.rules[rule]] {
		if w.counts[rule][id] > 0 {
			used = append(used, name)
		}
	}
	slices.Sort(used)
	return formatNames(used)
}

// explainNotChosen returns why an option that fits was not chosen.
func (w *choiceComparison) explainNotChosen(i int32) (filter, reason string) {
	l, score := w.explainClass(i), w.options[i].plainScore()
	switch {
	case l.rule != "" && l.rival != noClass:
		return FilterSpread, l.rule + ": " + w.explainLossTo(i, l.rival)
	case l.rule != "":
		return FilterSpread, fmt.Sprintf("it fits and scores %s of 1000; %s", FormatScore(score), l.rule)
	case l.rival == noClass && w.chosen.isFull:
		return FilterSpread, fmt.Sprintf("it fits and scores %s of 1000; those that were chosen are all needed for the spread", FormatScore(score))
	case l.rival == noClass:
		return FilterSpread, fmt.Sprintf("it fits and scores %s of 1000; the spread leaves it out", FormatScore(score))
	}
	filter = FilterSpread
	if w.maxClusters > 0 && w.maxClusters <= w.problem.maxChosen {
		filter = FilterMost
	}
	return filter, w.explainLossTo(i, l.rival)
}

// explainLossTo compares the option with a rival that was chosen.
func (w *choiceComparison) explainLossTo(i, rival int32) string {
	o, r := &w.options[i], &w.options[rival]
	score, best := o.plainScore(), r.plainScore()
	mine, theirs, than := FormatScore(score, best), FormatScore(best, score), "the lowest that was chosen"
	if len(w.problem.rules) > 0 {
		than = "the lowest in whose place the spread lets it be"
	}
	switch {
	case r.priority > o.priority && score > best:
		return fmt.Sprintf("it fits and scores %s of 1000, more than %s with %s, which stays: %s", mine, w.clusterName(rival), theirs, w.explainStay(score-best, rival))
	case w.capacityScores != nil && w.comparedScore(i) < w.comparedScore(rival):
		need := countDividedReplicas(w.input.Workloads)
		mine, theirs := w.input.countKnownFitting(&w.input.Clusters[o.clusterIndex], need), w.input.countKnownFitting(&w.input.Clusters[r.clusterIndex], need)
		return fmt.Sprintf("it fits and scores %s of 1000; %d replicas need room, which counts beside the scores: it has room for %d, %s for %d with a score of %s",
			FormatScore(score), need, mine, w.clusterName(rival), theirs, FormatScore(best))
	case score < best:
		return fmt.Sprintf("it fits, and its score %s of 1000 is below %s, %s (%s)", mine, than, theirs, w.clusterName(rival))
	case score == best && r.priority > o.priority:
		return fmt.Sprintf("it fits and scores %s of 1000 as %s does, which runs it already and stays", mine, w.clusterName(rival))
	case score == best:
		return fmt.Sprintf("it fits and scores %s of 1000 as %s does, which was chosen: a hash of the Bundle and the cluster breaks ties", mine, w.clusterName(rival))
	}
	return fmt.Sprintf("it fits and scores %s of 1000, more than %s with %s: with several spreadConstraints the best is not always found", mine, w.clusterName(rival), theirs)
}

// explainStay returns why a cluster that runs the Bundle keeps it, although another one
// scores that much more.
func (w *choiceComparison) explainStay(gain int64, rival int32) string {
	if w.moveRule == nil {
		return "what runs moves only when the placement is edited, unless rescheduling.when is WhenBetter"
	}
	if gain <= w.moveRule.moveCost {
		return fmt.Sprintf("it would have to be better by more than the moveCost of %s", FormatScore(w.moveRule.moveCost))
	}
	row := w.input.heldRow(&w.input.Clusters[w.options[rival].clusterIndex])
	if row != nil {
		if end := time.Unix(row.JoinedOrGrownAt(), 0).Add(w.moveRule.minDwell); end.After(w.input.Now) {
			return "it moves on from " + phrase.FormatTime(end) + " at the earliest, by minDwell"
		}
	}
	return "it moves when nothing else of the Bundle is under way"
}

// explainSpreadGroups describes the groups of a rule, by name.
func (w *choiceComparison) explainSpreadGroups(rule int) []SpreadGroup {
	s, r := &w.spread[w.rules[rule]], &w.problem.rules[rule]
	out, at := w.countSpreadGroups(s)
	best := make([]int32, len(out)) // of the options that were not chosen, from 1
	var one [1]string
	for i := range r.groupOf {
		for _, name := range spreadGroupsOf(s, &w.input.Clusters[w.options[i].clusterIndex], &one) {
			n := at[name]
			if out[n].Fit++; w.isChosen[i] && w.chosen.unmetReason == "" {
				out[n].Chosen++
			} else if best[n] == 0 || w.compareOptions(int32(i), best[n]-1) < 0 {
				best[n] = int32(i) + 1
			}
		}
	}
	for n := range out {
		switch g := &out[n]; {
		case g.Chosen > 0:
		case g.Fit == 0:
			g.Why = "none of its clusters fits"
		case w.chosen.unmetReason != "":
			g.Why = w.chosen.unmetReason
		default:
			_, reason := w.explainNotChosen(best[n] - 1)
			g.Why = "its best is " + w.clusterName(best[n]-1) + ": " + reason
		}
	}
	slices.SortFunc(out, func(a, b SpreadGroup) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// countSpreadGroups counts the clusters of each group; at gives the index of a group by its
// name.
func (w *choiceComparison) countSpreadGroups(s *v1alpha1.SpreadConstraint) (out []SpreadGroup, at map[string]int) {
	at, out = map[string]int{}, []SpreadGroup{}
	var one [1]string
	for i := range w.input.Clusters {
		for _, name := range spreadGroupsOf(s, &w.input.Clusters[i], &one) {
			n, known := at[name]
			if !known {
				n, at[name] = len(out), len(out)
				out = append(out, SpreadGroup{Name: name})
			}
			out[n].Clusters++
		}
	}
	return out, at
}
