package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Rating is what a cluster's score is made of.
type Rating struct {
	// Parts in the order of the Choice's scores. The score is their mean by weight, less
	// 200,000 for each of Avoided.
	Parts []Rated
	// Avoided counts the PreferNoSchedule taints that are not tolerated.
	Avoided int
}

// Rated is one part of a score.
type Rated struct {
	// Points of 1,000,000, and Of what they are made, for people; empty: of what the name
	// of the score says.
	Points int64
	Of     string
}

// ScoreBy is one of the scores by which was chosen.
type ScoreBy struct {
	// Name with what it is about, such as "ResourceAvailable cpu".
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
}

// Choice tells how clusters were chosen among those that fit.
type Choice struct {
	// Most clusters that are wanted; 0: no bound.
	Most int
	// Fit counts the clusters that could be chosen, and Chosen those that were.
	Fit, Chosen int
	Scores      []ScoreBy
	// Lowest scores the least among those that were chosen, LowestScore of 1,000,000;
	// empty: none was chosen.
	Lowest      string
	LowestScore int64
	// RoomFor so many replicas counted beside the scores, since the clusters that score
	// best have not room enough; 0: it did not.
	RoomFor int64
	// Spread tells of each spread constraint, in their order.
	Spread []Spread
}

// Spread is what came of a spread constraint.
type Spread struct {
	// Over what it spreads, such as "zone".
	Over       string
	Constraint v1alpha1.SpreadConstraint
	// Groups by name; none where each cluster is its own group.
	Groups []SpreadGroup
}

// SpreadGroup is one of the groups over which a constraint spreads.
type SpreadGroup struct {
	Name string `json:"name"`
	// Clusters of it that the decision looked at, those of them that Fit, and Chosen.
	Clusters int `json:"clusters"`
	Fit      int `json:"fit"`
	Chosen   int `json:"chosen"`
	// Why none of it was chosen; empty where one was.
	Why string `json:"why,omitempty"`
}

// Discreet is the decision for somebody who may not know of all clusters: without what
// Choice and Groups count of those that do not hold the Bundle.
func (d Decision) Discreet() Decision {
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

// Points of a score of 1,000,000 as people see them, of 1000: without digits behind the
// point, but for those that tell it from the other.
func Points(score int64, other ...int64) string {
	for _, o := range other {
		if o != score && toThousand(o) == toThousand(score) {
			return strconv.FormatFloat(float64(score)*1000/fullScore, 'f', 3, 64)
		}
	}
	return strconv.FormatInt(toThousand(score), 10)
}

// by lists the scores, for people.
func (s *scorer) by() []ScoreBy {
	out := make([]ScoreBy, 0, len(s.parts))
	for i := range s.parts {
		p := &s.parts[i]
		name := string(p.name)
		if about := cmp.Or(string(p.resource), p.property, p.measure); about != "" {
			name += " " + about
		}
		out = append(out, ScoreBy{Name: name, Weight: p.weight})
	}
	return out
}

// rating of an option; nil in a Terse decision.
func (p *pool) rating(i int) *Rating {
	if p.facts == nil {
		return nil
	}
	c, f := &p.in.Clusters[p.options[i].at], &p.facts[i]
	out := &Rating{Parts: make([]Rated, len(p.scorer.parts)), Avoided: f.avoid}
	for n := range p.scorer.parts {
		out.Parts[n] = Rated{Points: p.scorer.part(n, c, f), Of: p.scorer.parts[n].of(c, f)}
	}
	return out
}

// of what a part is made, where its name does not say all.
func (p *scorePart) of(c *Cluster, f *facts) string {
	switch p.name {
	case v1alpha1.ScoreBalance:
		if f.own > 0 {
			return fmt.Sprintf("%d pods of others assigned, %d fit", f.load, podsOf(c))
		}
		return fmt.Sprintf("%d pods assigned, %d fit", f.load, podsOf(c))
	case v1alpha1.ScoreResourceAvailable:
		a, ok := c.amount(p.resource)
		if !ok {
			return "not reported"
		}
		return fmt.Sprintf("%s of %s free", p.amount(a.Free), p.amount(cmp.Or(p.full, a.Total)))
	case v1alpha1.ScoreProperty:
		if value, ok := c.Properties[p.property]; ok {
			return value
		}
		return "no such property that may be read"
	}
	return ""
}

// amount of the part's resource in words: memory in Gi, all else in its unit.
func (p *scorePart) amount(milli int64) string {
	units := float64(milli) / 1000
	if p.resource == corev1.ResourceMemory || p.resource == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(p.resource), corev1.ResourceHugePagesPrefix) {
		return strconv.FormatFloat(math.Round(units/(1<<30)*10)/10, 'f', -1, 64) + "Gi"
	}
	return strconv.FormatFloat(math.Round(units*10)/10, 'f', -1, 64)
}

// swapTests bounds the work of finding out in whose place others could be.
const swapTests = 2_000

// comparison of what was chosen with what was not.
type comparison struct {
	*pool
	got    picked
	taken  []bool
	counts [][]int32
	closed []bool
	// worst of those that were chosen by their class, the worst first.
	worst []int32
	tests int
	// left is why options of a class were left out.
	left map[int32]*classLeft
}

// classLeft is why options that are in the same groups were left out: by a rule of the
// spread, or since the rival, in whose place they could be, was better; noClass: none. Of
// maxGroups both is said: that no more groups may be, and why it is these.
type classLeft struct {
	rule  string
	rival int32
}

// explain how was chosen; nil in a Terse decision.
func (d *Decision) explain(p *pool, got picked, taken []bool) *comparison {
	if p.in.Terse {
		return nil
	}
	w := &comparison{pool: p, got: got, taken: taken, left: map[int32]*classLeft{}}
	if len(p.prob.rules) > 0 && p.solver == nil {
		p.solver = newSolver(&p.prob)
	}
	if len(p.prob.rules) > 0 {
		w.counts = p.solver.countAll(got.options)
		w.closed = p.solver.closed(w.counts)
	}
	w.findWorst()
	d.Choice = &Choice{Fit: len(p.options), Scores: p.scorer.by()}
	if p.prob.most < unlimited {
		d.Choice.Most = p.prob.most
	}
	if got.unmet == "" {
		w.lowest(d.Choice)
	}
	if p.weighed != nil {
		d.Choice.RoomFor = demand(p.in.Workloads)
	}
	for i := range p.spread {
		d.Choice.Spread = append(d.Choice.Spread, Spread{Over: what(&p.spread[i]), Constraint: p.spread[i]})
	}
	for rule, i := range p.rules {
		d.Choice.Spread[i].Groups = w.groupsOf(rule)
	}
	return w
}

// lowest score among those that were chosen.
func (w *comparison) lowest(c *Choice) {
	for i, is := range w.taken {
		if !is {
			continue
		}
		c.Chosen++
		if o := &w.options[i]; c.Lowest == "" || o.score < c.LowestScore {
			c.Lowest, c.LowestScore = w.name(int32(i)), o.score
		}
	}
}

func (w *comparison) name(i int32) string { return w.in.Clusters[w.options[i].at].Name }

// score by which options were compared.
func (w *comparison) score(i int32) int64 {
	if w.weighed != nil {
		return w.weighed[i]
	}
	return w.options[i].score
}

// better puts the option first that was taken first.
func (w *comparison) better(a, b int32) int {
	x, y := w.options[a], w.options[b]
	x.score, y.score = w.score(a), w.score(b)
	return x.compare(&y)
}

// findWorst of each class that were chosen.
func (w *comparison) findWorst() {
	worst := map[int32]int32{}
	for _, i := range w.got.options {
		was, known := worst[w.class(i)]
		if !known || w.better(i, was) > 0 {
			worst[w.class(i)] = i
		}
	}
	for _, i := range worst {
		w.worst = append(w.worst, i)
	}
	slices.SortFunc(w.worst, func(a, b int32) int { return w.better(b, a) })
}

func (w *comparison) class(i int32) int32 {
	if len(w.prob.rules) == 0 {
		return 0
	}
	return w.options[i].class
}

// why options that are in the same groups as this one were left out.
func (w *comparison) why(i int32) *classLeft {
	l := w.left[w.class(i)]
	if l == nil {
		l = &classLeft{rival: noClass}
		rule, closed := w.refused(i)
		if l.rule = rule; w.got.full || closed {
			l.rival = w.rival(i)
		}
		if l.rival != noClass && w.got.full {
			l.rule = ""
		}
		w.left[w.class(i)] = l
	}
	return l
}

// rival of those that were chosen that is the worst of those in whose place the option
// could be, as far as the spread goes; noClass: there is none.
func (w *comparison) rival(i int32) int32 {
	for _, r := range w.worst {
		if w.tests++; w.tests > swapTests {
			break
		}
		if w.allows(w.got.options, r, i) {
			return r
		}
	}
	return noClass
}

// refused says which rule keeps one more cluster of the option's groups out; empty: none.
// closed: it is maxGroups.
func (w *comparison) refused(i int32) (rule string, closed bool) {
	for n := range w.prob.rules {
		r, s := &w.prob.rules[n], &w.spread[w.rules[n]]
		g := r.of[i]
		if g == noGroup {
			continue
		}
		if w.closed[n] && w.counts[n][g] == 0 {
			return fmt.Sprintf("maxGroups of spreadConstraints[%d] is %d, and %s has none of those that were chosen (%s)",
				w.rules[n], r.max, w.groupName(n, g), w.groupsUsed(n)), true
		}
		if floor := w.solver.floor(n, w.counts); r.skew > 0 && !r.soft && int64(w.counts[n][g]) >= floor+int64(r.skew) {
			return fmt.Sprintf("maxSkew of spreadConstraints[%d] is %d: %s has %d, and another %s that counts has %d",
				w.rules[n], r.skew, w.groupName(n, g), w.counts[n][g], what(s), floor), false
		}
	}
	return "", false
}

// groupName such as "zone eu-a".
func (w *comparison) groupName(rule int, group int32) string {
	for name, id := range w.names[w.rules[rule]] {
		if id == group {
			return what(&w.spread[w.rules[rule]]) + " " + name
		}
	}
	return what(&w.spread[w.rules[rule]])
}

// groupsUsed by a rule, the first few of them.
func (w *comparison) groupsUsed(rule int) string {
	var used []string
	for name, id := range w.names[w.rules[rule]] {
		if w.counts[rule][id] > 0 {
			used = append(used, name)
		}
	}
	slices.Sort(used)
	return list(used)
}

// notChosen says why an option that fits was not.
func (w *comparison) notChosen(i int32) (filter, reason string) {
	l, score := w.why(i), w.options[i].score
	switch {
	case l.rule != "" && l.rival != noClass:
		return FilterSpread, l.rule + ": " + w.against(i, l.rival)
	case l.rule != "":
		return FilterSpread, fmt.Sprintf("it fits and scores %s of 1000; %s", Points(score), l.rule)
	case l.rival == noClass && w.got.full:
		return FilterSpread, fmt.Sprintf("it fits and scores %s of 1000; those that were chosen are all needed for the spread", Points(score))
	case l.rival == noClass:
		return FilterSpread, fmt.Sprintf("it fits and scores %s of 1000; the spread leaves it out", Points(score))
	}
	filter = FilterSpread
	if w.max > 0 && w.max <= w.prob.most {
		filter = FilterMost
	}
	return filter, w.against(i, l.rival)
}

// against a rival that was chosen.
func (w *comparison) against(i, rival int32) string {
	o, r := &w.options[i], &w.options[rival]
	mine, theirs, than := Points(o.score, r.score), Points(r.score, o.score), "the lowest that was chosen"
	if len(w.prob.rules) > 0 {
		than = "the lowest in whose place the spread lets it be"
	}
	switch {
	case w.taken[i]:
		return ""
	case r.prio > o.prio && o.score > r.score:
		return fmt.Sprintf("it fits and scores %s of 1000, more than %s with %s, which stays: %s", mine, w.name(rival), theirs, w.stays(o.score-r.score, rival))
	case w.weighed != nil && w.score(i) < w.score(rival):
		need := demand(w.in.Workloads)
		mine, theirs := w.fits(&w.in.Clusters[o.at], need), w.fits(&w.in.Clusters[r.at], need)
		return fmt.Sprintf("it fits and scores %s of 1000; %d replicas need room, which counts beside the scores: it has room for %d, %s for %d with a score of %s",
			Points(o.score), need, mine, w.name(rival), theirs, Points(r.score))
	case o.score < r.score:
		return fmt.Sprintf("it fits, and its score %s of 1000 is below %s, %s (%s)", mine, than, theirs, w.name(rival))
	case o.score == r.score && r.prio > o.prio:
		return fmt.Sprintf("it fits and scores %s of 1000 as %s does, which runs it already and stays", mine, w.name(rival))
	case o.score == r.score:
		return fmt.Sprintf("it fits and scores %s of 1000 as %s does, which was chosen: a hash of the Bundle and the cluster breaks ties", mine, w.name(rival))
	}
	return fmt.Sprintf("it fits and scores %s of 1000, more than %s with %s: with several spreadConstraints the best is not always found", mine, w.name(rival), theirs)
}

// stays says why a cluster that runs the Bundle is not left for one that is better by so
// much.
func (w *comparison) stays(gain int64, rival int32) string {
	if w.moving == nil {
		return "what runs moves only when the placement is edited, unless rescheduling.when is WhenBetter"
	}
	if gain <= w.moving.cost {
		return fmt.Sprintf("it would have to be better by more than the moveCost of %s", Points(w.moving.cost))
	}
	row := w.in.row(&w.in.Clusters[w.options[rival].at])
	if row != nil {
		if end := time.Unix(row.Came(), 0).Add(w.moving.dwell); end.After(w.in.Now) {
			return "it moves on from " + end.UTC().Format(time.RFC3339) + " at the earliest, by minDwell"
		}
	}
	return "it moves when nothing else of the Bundle is under way"
}

// groupsOf a rule, by name.
func (w *comparison) groupsOf(rule int) []SpreadGroup {
	s, r := &w.spread[w.rules[rule]], &w.prob.rules[rule]
	at, out := map[string]int{}, []SpreadGroup{}
	for i := range w.in.Clusters {
		name := groupOf(s, &w.in.Clusters[i])
		if name == "" {
			continue
		}
		n, known := at[name]
		if !known {
			n, at[name] = len(out), len(out)
			out = append(out, SpreadGroup{Name: name})
		}
		out[n].Clusters++
	}
	best := make([]int32, len(out)) // that was not chosen, from 1
	for i, g := range r.of {
		if g == noGroup {
			continue
		}
		n := at[groupOf(s, &w.in.Clusters[w.options[i].at])]
		if out[n].Fit++; w.taken[i] && w.got.unmet == "" {
			out[n].Chosen++
		} else if best[n] == 0 || w.better(int32(i), best[n]-1) < 0 {
			best[n] = int32(i) + 1
		}
	}
	for n := range out {
		switch g := &out[n]; {
		case g.Chosen > 0:
		case g.Fit == 0:
			g.Why = "none of its clusters fits"
		case w.got.unmet != "":
			g.Why = w.got.unmet
		default:
			_, reason := w.notChosen(best[n] - 1)
			g.Why = "its best is " + w.name(best[n]-1) + ": " + reason
		}
	}
	slices.SortFunc(out, func(a, b SpreadGroup) int { return strings.Compare(a.Name, b.Name) })
	return out
}
