package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// What keeps a cluster out that all filters let pass.
const (
	FilterSpread = "spreadConstraints"
	FilterMost   = "maxClusters"
)

// choice is how a placement chooses among the clusters that fit; nil where it takes
// them all.
type choice struct {
	max    int
	spread []v1alpha1.SpreadConstraint
	scorer scorer
	moving *moving
	// print of all but the scores, as rows remember it: where it is another, the user
	// edited how clusters are chosen.
	print string
}

func compileChoice(p *v1alpha1.PlacementSpec) *choice {
	if p.MaxClusters == 0 && len(p.SpreadConstraints) == 0 {
		return nil
	}
	return &choice{
		max: int(p.MaxClusters), spread: p.SpreadConstraints, scorer: compileScores(p.Scores), moving: compileMoving(p.Rescheduling),
		print: print8(struct {
			Max    int32
			Spread []v1alpha1.SpreadConstraint
		}{p.MaxClusters, p.SpreadConstraints}),
	}
}

// Chooses tells whether the placement takes only some of the clusters that fit, so that
// who is chosen depends on all of them.
func (f *Filter) Chooses() bool { return f.choice != nil }

// AsksLoad tells whether it asks of every cluster what that was assigned. Of groups it is
// not said.
func (f *Filter) AsksLoad() bool { return f.choice != nil && f.choice.scorer.load && !f.Grouped() }

// Rows remember the print of the filters, and behind a slash that of the choice.
func withChoice(filters, choice string) string {
	if choice == "" {
		return filters
	}
	return filters + "/" + choice
}

func printOfFilters(remembered string) string {
	filters, _, _ := strings.Cut(atoll.WithoutRebalance(remembered), "/")
	return filters
}

func printOfChoice(remembered string) string {
	_, choice, _ := strings.Cut(atoll.WithoutRebalance(remembered), "/")
	return choice
}

// pool is the clusters that may be chosen, as verdicts that are not decided yet.
type pool struct {
	*choice
	in     *Input
	filter *Filter
	// options are at the places of their clusters in the input.
	options []option
	// of each constraint: the group of each option.
	groups [][]int32
	names  []map[string]int32
	base   uint64 // hash of the Bundle
	near   []neighbours
	prob   problem
	solver *solver
	// fresh: what runs the Bundle is chosen from scratch.
	fresh bool
	// Where the decision is to be explained: the facts by which the options were scored.
	facts []facts
	// rules are the numbers of the constraints that the problem's rules are.
	rules []int
	// weighed scores, where room counted beside the scores; nil: it did not.
	weighed []int64
	// bounded: some of the clusters state their capacity.
	bounded bool
}

// usualGroups of a constraint: there is room for so many at once.
const usualGroups = 48

func newPool(f *Filter, in *Input) *pool {
	c, size := f.choice, len(in.Clusters)
	p := &pool{
		choice: c, in: in, filter: f, base: hash64(in.Bundle), near: c.scorer.neighbours(in.Near), options: make([]option, 0, size),
		fresh: f.afresh(in.Rows), groups: make([][]int32, len(c.spread)), names: make([]map[string]int32, len(c.spread)),
	}
	for i := range c.spread {
		p.names[i] = make(map[string]int32, min(size, usualGroups))
		p.groups[i] = make([]int32, 0, size)
	}
	return p
}

// inOrder of their names: groups are numbered as they are met.
func inOrder(cs []Cluster) []Cluster {
	for i := 1; i < len(cs); i++ {
		if cs[i].Name < cs[i-1].Name {
			return slices.SortedFunc(slices.Values(cs), func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	return cs
}

// lacks tells which hard constraint refuses a newcomer because the cluster is in none of
// its groups.
func (c *choice) lacks(cl *Cluster) (at int, lacks bool) {
	for i := range c.spread {
		if s := &c.spread[i]; s.WhenUnsatisfiable != v1alpha1.ScheduleAnyway && groupOf(s, cl) == "" {
			return i, true
		}
	}
	return 0, false
}

// groupOf a cluster; empty: none.
func groupOf(s *v1alpha1.SpreadConstraint, c *Cluster) string {
	switch s.SpreadByField {
	case v1alpha1.SpreadByCluster:
		return c.Name
	case v1alpha1.SpreadByRegion:
		return c.Region
	case v1alpha1.SpreadByZone:
		return c.Zone
	case v1alpha1.SpreadByProvider:
		return c.Provider
	}
	return c.Labels[s.SpreadByLabel]
}

// what a constraint spreads over, for people.
func what(s *v1alpha1.SpreadConstraint) string {
	if s.SpreadByLabel != "" {
		return "label " + s.SpreadByLabel
	}
	return string(s.SpreadByField)
}

// claim of a cluster that runs the Bundle on being chosen again: it stays, unless the
// user edited how clusters are chosen since it was.
func (c *choice) claim(row *atoll.RowSpec, outcome Outcome) int8 {
	switch {
	case row.Phase != atoll.RowActive && row.Phase != "":
		return prioGoing
	case printOfChoice(row.Placement) == c.print:
		return prioLocked
	case outcome == Kept:
		return prioUnfit
	}
	return prioRuns
}

// offer a cluster with the verdict of the filters; true: its verdict comes with the
// choice, or is said already. Those of clusters that run the Bundle stay, and are
// completed later.
func (p *pool) offer(at int, row *atoll.RowSpec, v *Verdict, d *Decision) bool {
	in, f := p.in, p.filter
	c := &in.Clusters[at]
	if v.Outcome != Placed && (v.Outcome != Kept || row == nil) {
		return false
	}
	if row == nil {
		if i, lacks := p.lacks(c); lacks {
			v.Outcome, v.Placement = Out, ""
			v.Filter, v.Reason = FilterSpread, fmt.Sprintf("it has no %s, over which spreadConstraints[%d] spreads", what(&p.spread[i]), i)
			return in.Terse
		}
		if p.away(c, v) {
			return in.Terse
		}
	} else if p.fresh && f.anew(row) {
		p.offerAnew(at, row, v, d)
		return false
	}
	about := facts{holds: row != nil && row.Phase == atoll.RowActive, avoid: f.avoided(c), near: p.near, rated: in.Rated}
	if p.scorer.load {
		about.load, about.own = in.loadAt(at, row)
	}
	o := option{at: int32(at), prio: prioNew, verdict: noVerdict}
	if row != nil {
		o.prio = p.claim(row, v.Outcome)
		o.verdict = int32(len(d.Verdicts))
	}
	p.add(c, o, about)
	return row == nil
}

// add a cluster that may be chosen.
func (p *pool) add(c *Cluster, o option, about facts) {
	o.score, o.rank = p.scorer.score(c, about), mix(p.base^hash64(c.Name))
	p.bounded = p.bounded || len(c.Capacity) > 0 && p.in.Demand != nil
	p.options = append(p.options, o)
	if !p.in.Terse {
		p.facts = append(p.facts, about)
	}
	for i := range p.spread {
		s, id := &p.spread[i], noGroup
		if name := groupOf(s, c); name != "" && s.SpreadByField != v1alpha1.SpreadByCluster {
			known, ok := p.names[i][name]
			if !ok {
				known = int32(len(p.names[i]))
				p.names[i][name] = known
			}
			id = known
		}
		p.groups[i] = append(p.groups[i], id)
	}
}

// picked is what came of a pool.
type picked struct {
	options []int32
	// unmet says which minimum cannot be had; empty: all can.
	unmet string
	// full: no more clusters are wanted, whatever others there may be.
	full bool
}

// choose among the options.
func (p *pool) choose() picked {
	prob, least := problem{options: p.options, most: unlimited}, 0
	if p.max > 0 {
		prob.most = p.max
	}
	for i := range p.spread {
		s := &p.spread[i]
		soft := s.WhenUnsatisfiable == v1alpha1.ScheduleAnyway
		if s.SpreadByField == v1alpha1.SpreadByCluster {
			if s.MaxGroups > 0 {
				prob.most = min(prob.most, int(s.MaxGroups))
			}
			if !soft {
				least = max(least, int(s.MinGroups))
			}
			continue
		}
		p.rules = append(p.rules, i)
		prob.rules = append(prob.rules, rule{
			min: max(1, int(s.MinGroups)), max: int(s.MaxGroups), skew: int(s.MaxSkew), soft: soft,
			groups: len(p.names[i]), of: p.groups[i],
		})
	}
	p.prob = prob
	options, short := p.roomier(p.prob.solve())
	out := picked{options: options, full: len(options) >= prob.most}
	for r, missing := range short {
		if s := &p.spread[p.rules[r]]; missing > 0 && len(options) > 0 {
			out.unmet = fmt.Sprintf("spreadConstraints[%d] asks for %d groups by %s, and the clusters that fit give %d",
				p.rules[r], prob.rules[r].min, what(s), prob.rules[r].min-missing)
			return out
		}
	}
	if len(options) < least && len(options) > 0 {
		out.unmet = fmt.Sprintf("spreadConstraints ask for %d clusters, and %d can be chosen", least, len(options))
	}
	return out
}

// hash64 of a text; mix makes hashes of similar texts differ everywhere.
func hash64(s string) uint64 { return mix(uint64(fnvBasis.write(s))) }

func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// choose among the clusters of the pool, complete the verdicts, and tell how many
// clusters fit; none where a minimum cannot be had.
func (d *Decision) choose(p *pool, part func(*Verdict, *Cluster)) (fit int) {
	in, got := p.in, p.choose()
	moves, again := p.better(got, d, in)
	if in.Terse && got.full && got.unmet == "" && !p.needsRoom() && !p.fresh {
		d.Reserve = p.reserve(got.options)
	}
	d.LookAt = again
	d.Hungry = !got.full || got.unmet != ""
	taken := make([]bool, len(p.options))
	for _, i := range got.options {
		taken[i] = true
	}
	if moves != nil {
		taken[moves.to] = true
	}
	why := d.explain(p, got, taken)
	for i := range p.options {
		c := &in.Clusters[p.options[i].at]
		if at := p.options[i].verdict; at != noVerdict {
			v := &d.Verdicts[at]
			if v.Outcome == Placed {
				fit++
			}
			v.Rating = p.rating(i)
			if v.Score = p.options[i].score; got.unmet != "" || !taken[i] {
				row := in.Rows[c.Name]
				v.decide(got.unmet, &row)
			}
			if moves != nil && moves.from == int32(i) {
				v.leave(FilterMove, atoll.RowMoved, moves.reason(p, in))
			}
			continue
		}
		fit++
		take := taken[i] && got.unmet == ""
		if !take && in.Terse {
			continue
		}
		v := Verdict{Cluster: c.Name, UID: c.UID, Outcome: Out, Score: p.options[i].score, Rating: p.rating(i)}
		switch {
		case take:
			v.Outcome, v.Placement = Placed, p.filter.print
			part(&v, c)
		case got.unmet != "":
			v.Filter, v.Reason = FilterSpread, got.unmet
		default:
			v.Filter, v.Reason = why.notChosen(int32(i))
		}
		d.Verdicts = append(d.Verdicts, v)
	}
	if got.unmet != "" {
		d.Unmet, fit = got.unmet, 0
	}
	return fit
}

// decide the verdict on a cluster that runs the Bundle, and was not chosen again or waits
// for what is unmet.
func (v *Verdict) decide(unmet string, row *atoll.RowSpec) {
	switch {
	case unmet != "":
		// Nothing changes, and what was edited is not forgotten.
		v.Outcome, v.Word, v.Filter, v.Reason = Kept, atoll.RowSpreadUnmet, FilterSpread, unmet
		v.Placement = atoll.WithRebalance(withChoice(printOfFilters(v.Placement), printOfChoice(row.Placement)), row.Rebalanced())
		v.Anew = false
	case v.Anew && row.Phase == atoll.RowActive:
		v.leftBehind()
	case row.Phase == atoll.RowActive:
		v.leave(FilterMost, atoll.RowPlacementEdited, "maxClusters and spreadConstraints choose others since they were edited")
	default:
		// It was on its way out, and others have its place.
		why := atoll.ParseRowReason(row.Reason)
		v.leave(FilterMost, cmp.Or(why.Word, atoll.RowPlacementEdited), why.Text)
	}
}

func (v *Verdict) leave(filter, word, reason string) {
	v.Outcome, v.Filter, v.Word, v.Reason = Leaves, filter, word, reason
	v.Weight, v.EvictAt, v.Placement, v.Group, v.Anew = 0, time.Time{}, "", "", false
}

// Points of a cluster among which was chosen, of 1000, as people see them.
func (v *Verdict) Points() int64 { return toThousand(v.Score) }

func toThousand(score int64) int64 { return int64(math.Round(float64(score) * 1000 / fullScore)) }

// ReserveDepth is how many of each kind a reserve holds: clusters that are in the same
// groups are of one kind.
const (
	ReserveDepth    = 2
	mostReserveKind = 256
)

// reserve of the options that were not chosen; nil where there are too many kinds.
func (p *pool) reserve(chosen []int32) []string {
	taken := make([]bool, len(p.options))
	for _, i := range chosen {
		taken[i] = true
	}
	kinds := 0
	for i := range p.options {
		kinds = max(kinds, int(p.options[i].class)+1)
	}
	if kinds > mostReserveKind {
		return nil
	}
	best := make([][ReserveDepth]*option, kinds)
	for i := range p.options {
		o := &p.options[i]
		if taken[i] || o.prio != prioNew {
			continue
		}
		for rank := range best[o.class] {
			if at := &best[o.class][rank]; *at == nil || o.compare(*at) < 0 {
				*at, o = o, *at
			}
			if o == nil {
				break
			}
		}
	}
	out := make([]string, 0, kinds*ReserveDepth)
	for _, kind := range best {
		for _, o := range kind {
			if o != nil {
				out = append(out, p.in.Clusters[o.at].Name)
			}
		}
	}
	return out
}
