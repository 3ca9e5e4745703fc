package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// FilterMove is what takes the Bundle out of a cluster for a better one.
const FilterMove = "rescheduling"

// Defaults of rescheduling WhenBetter.
const (
	defaultDwell    = 10 * time.Minute
	defaultMoveCost = 100
)

// moving is when what runs moves to clusters that score better; nil: never.
type moving struct {
	dwell time.Duration
	cost  int64 // of fullScore
}

func compileMoving(r *v1alpha1.Rescheduling) *moving {
	if r == nil || r.When != v1alpha1.RescheduleWhenBetter {
		return nil
	}
	m := &moving{dwell: defaultDwell, cost: defaultMoveCost * fullScore / 1000}
	if r.MinDwell != nil {
		m.dwell = r.MinDwell.Duration
	}
	if r.MoveCost != nil {
		m.cost = int64(*r.MoveCost) * fullScore / 1000
	}
	return m
}

// Standing of a decision that may move when scores change: the lowest score among the
// clusters that were chosen, and the highest among those that were not, then or since.
type Standing struct {
	Worst, Other int64
}

// Moves tells whether what runs may move when the cluster's score has changed since the
// decision that stood so. row is what runs of the Bundle there, nil if nothing does. Of the
// input of a decision Load and Rated count.
func (f *Filter) Moves(c *Cluster, row *atoll.RowSpec, in *Input, s *Standing) bool {
	moves, _ := f.Weigh(c, row, in, s)
	return moves
}

// Weigh is Moves, and what the cluster scores now, of which a Standing that stays is to be
// told: what matters to nobody by itself may matter beside what changes next.
func (f *Filter) Weigh(c *Cluster, row *atoll.RowSpec, in *Input, s *Standing) (moves bool, score int64) {
	if f.choice == nil || f.choice.moving == nil || s == nil {
		return false, 0
	}
	about := facts{holds: row != nil, avoid: f.avoided(c), rated: in.Rated}
	about.load, about.own = in.load(c, row)
	if row != nil {
		score = f.choice.scorer.score(c, about)
		return score+f.choice.moving.cost < s.Other, score
	}
	about.anywhere = fullScore
	score = f.choice.scorer.score(c, about)
	return score > s.Worst+f.choice.moving.cost, score
}

// move of a Bundle between options.
type move struct{ from, to int32 }

const (
	moveFrom = 8  // of the worst clusters that run the Bundle are compared
	moveTo   = 16 // with so many of the best others
)

// better looks for the one move that gains most, where nothing else is under way. With
// none, again is when a dwell that is in the way ends.
func (p *pool) better(got picked, d *Decision, in *Input) (m *move, again time.Time) {
	if p.moving == nil || got.unmet != "" || len(got.options) == 0 {
		return nil, again
	}
	from, to := p.standing(got.options, d)
	if len(from) == 0 || len(to) == 0 || slices.ContainsFunc(got.options, func(i int32) bool { return p.options[i].prio != prioLocked }) {
		return nil, again
	}
	for _, r := range in.Rows {
		if r.Phase != atoll.RowActive {
			return nil, again
		}
	}
	to = p.bestOfEachClass(to)
	gain := p.moving.cost
	for _, f := range from[:min(len(from), moveFrom)] {
		for _, t := range to[:min(len(to), moveTo)] {
			g := p.options[t].score - p.options[f].score
			if g <= gain || !p.allows(got.options, f, t) {
				continue
			}
			row := in.Rows[in.Clusters[p.options[f].at].Name]
			if end := time.Unix(row.Came(), 0).Add(p.moving.dwell); end.After(in.Now) {
				if again.IsZero() || end.Before(again) {
					again = end
				}
				continue
			}
			m, gain = &move{f, t}, g
		}
	}
	return m, again
}

// standing of the decision, and the options that may be moved from, the worst first, and
// to, the best first.
func (p *pool) standing(chosen []int32, d *Decision) (from, to []int32) {
	taken := make([]bool, len(p.options))
	for _, i := range chosen {
		taken[i] = true
		if at := p.options[i].verdict; at == noVerdict || d.Verdicts[at].Outcome == Placed {
			from = append(from, i)
		}
	}
	for i := range p.options {
		if !taken[i] && p.options[i].prio == prioNew {
			to = append(to, int32(i))
		}
	}
	slices.SortFunc(from, func(a, b int32) int { return cmp.Compare(p.options[a].score, p.options[b].score) })
	slices.SortFunc(to, func(a, b int32) int { return p.options[a].compare(&p.options[b]) })
	d.Standing = &Standing{Worst: math.MaxInt64 / 2, Other: math.MinInt64}
	if len(from) > 0 {
		d.Standing.Worst = p.options[from[0]].score
	}
	if len(to) > 0 {
		d.Standing.Other = p.options[to[0]].score
	}
	return from, to
}

// bestOfEachClass of options that are in the same groups.
func (p *pool) bestOfEachClass(sorted []int32) []int32 {
	if len(p.prob.rules) == 0 {
		return sorted[:1]
	}
	seen := map[string]bool{}
	var out []int32
	for _, i := range sorted {
		key := ""
		for r := range p.prob.rules {
			key += fmt.Sprint(p.prob.rules[r].of[i], " ")
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, i)
		}
	}
	return out
}

// allows tells whether the spread is kept as well with the move as without.
func (p *pool) allows(chosen []int32, from, to int32) bool {
	if len(p.prob.rules) == 0 {
		return true
	}
	if p.solver == nil {
		p.solver = newSolver(&p.prob)
	}
	after := slices.Clone(chosen)
	after[slices.Index(after, from)] = to
	was, is := try{chosen: chosen, counts: p.solver.countAll(chosen)}, try{chosen: after, counts: p.solver.countAll(after)}
	p.solver.judge(&was)
	p.solver.judge(&is)
	if is.value.short > was.value.short || is.value.uneven > was.value.uneven {
		return false
	}
	for i := range p.prob.rules {
		r := &p.prob.rules[i]
		if r.max > 0 && used(is.counts[i]) > max(r.max, used(was.counts[i])) {
			return false
		}
		if g := r.of[to]; r.skew > 0 && !r.soft && g != noGroup && g != r.of[from] &&
			int64(is.counts[i][g]) > p.solver.floor(i, is.counts)+int64(r.skew) {
			return false
		}
	}
	return true
}

// reason of the move, for the cluster that the Bundle leaves.
func (m *move) reason(p *pool, in *Input) string {
	from, to := &p.options[m.from], &p.options[m.to]
	return fmt.Sprintf("cluster %s scores %d of 1000, and this one %d", in.Clusters[to.at].Name, toThousand(to.score), toThousand(from.score))
}
