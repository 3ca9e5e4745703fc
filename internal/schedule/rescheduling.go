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

// FilterRescheduling is what takes the Bundle out of a cluster for a better one.
const FilterRescheduling = "rescheduling"

// Defaults of rescheduling WhenBetter.
const (
	defaultDwell    = 10 * time.Minute
	defaultMoveCost = 100
)

// moveRule is when rows move to clusters that score better; nil: never.
type moveRule struct {
	minDwell time.Duration
	moveCost int64 // of fullScore
}

func compileMoveRule(r *v1alpha1.Rescheduling) *moveRule {
	if r == nil || r.When != v1alpha1.RescheduleWhenBetter {
		return nil
	}
	m := &moveRule{minDwell: defaultDwell, moveCost: defaultMoveCost * fullScore / 1000}
	if r.MinDwell != nil {
		m.minDwell = r.MinDwell.Duration
	}
	if r.MoveCost != nil {
		m.moveCost = int64(*r.MoveCost) * fullScore / 1000
	}
	return m
}

// ScoreThresholds of a decision that may move when scores change: the lowest score among the
// chosen clusters, and the highest among the others, then or since.
type ScoreThresholds struct {
	LowestChosen, HighestOther int64
}

// CanMove reports whether rows may move when the cluster's score has changed since the
// decision with these thresholds. row is the Bundle's row there, nil if there is none. Only
// the facts AssignedPods and RatingOf of the input count.
func (f *CompiledPlacement) CanMove(c *Cluster, row *atoll.RowSpec, in *Input, s *ScoreThresholds) bool {
	moves, _ := f.ScoreForMove(c, row, in, s)
	return moves
}

// ScoreForMove is CanMove, and returns the cluster's score. The caller records it in
// thresholds that stay: a change that matters little by itself may matter with the next one.
func (f *CompiledPlacement) ScoreForMove(c *Cluster, row *atoll.RowSpec, in *Input, s *ScoreThresholds) (moves bool, score int64) {
	if f.choice == nil || f.choice.moveRule == nil || s == nil {
		return false, 0
	}
	about := clusterFacts{runsBundle: row != nil, avoidedTaints: f.countAvoidedTaints(c), fleet: in.resolveFacts()}
	about.othersPods, about.ownPods = in.podLoad(c, row)
	if row != nil {
		score = f.choice.scores.scoreCluster(c, about)
		return score+f.choice.moveRule.moveCost < s.HighestOther, score
	}
	about.withoutNearby = fullScore
	score = f.choice.scores.scoreCluster(c, about)
	return score > s.LowestChosen+f.choice.moveRule.moveCost, score
}

// clusterMove moves a Bundle between options.
type clusterMove struct{ from, to int32 }

const (
	maxMoveSources = 8  // of the worst clusters that run the Bundle are compared
	maxMoveTargets = 16 // with so many of the best others
)

// findBestMove finds the one move that gains most, where nothing else is under way. Without
// a move, again is when a dwell ends that prevents one.
func (p *candidatePool) findBestMove(got poolChoice, d *Decision) (m *clusterMove, again time.Time) {
	if p.moveRule == nil || got.unmetReason != "" || len(got.options) == 0 {
		return nil, again
	}
	from, to := p.rankMoveOptions(got.options, d)
	if !p.isPlacementStable(got.options) {
		return nil, again
	}
	to = p.bestOfEachClass(to)
	gain := p.moveRule.moveCost
	for _, f := range from[:min(len(from), maxMoveSources)] {
		for _, t := range to[:min(len(to), maxMoveTargets)] {
			g := p.options[t].score - p.options[f].score
			if g <= gain || !p.keepsSpread(got.options, f, t) {
				continue
			}
			row := p.input.Rows[p.input.Clusters[p.options[f].clusterIndex].Name]
			if end := time.Unix(row.JoinedOrGrownAt(), 0).Add(p.moveRule.minDwell); !end.After(p.input.Now) {
				m, gain = &clusterMove{f, t}, g
			} else if again.IsZero() || end.Before(again) {
				again = end
			}
		}
	}
	return m, again
}

// isPlacementStable reports whether nothing of the Bundle is under way: all rows are active, and all
// chosen clusters were chosen under the same constraints before.
func (p *candidatePool) isPlacementStable(chosen []int32) bool {
	for _, i := range chosen {
		if p.options[i].priority != prioLocked {
			return false
		}
	}
	for _, r := range p.input.Rows {
		if r.Phase != atoll.RowActive {
			return false
		}
	}
	return true
}

// mayMove reports whether the row of a cluster that fits is free to leave for a better one.
func (v *Verdict) mayMove() bool {
	n := v.Notes()
	return v.Outcome == OutcomePlaced && n.KeptLost == "" && n.DrainReason == ""
}

// rankMoveOptions lists the options that the Bundle may move from, the worst first, and to,
// the best first, and records the thresholds of the decision.
func (p *candidatePool) rankMoveOptions(chosen []int32, d *Decision) (from, to []int32) {
	taken := p.markOptions(chosen)
	for _, i := range chosen {
		if at := p.options[i].verdictIndex; at == noVerdict || d.Verdicts[at].mayMove() {
			from = append(from, i)
		}
	}
	for i := range p.options {
		if !taken[i] && p.options[i].priority == prioNew {
			to = append(to, int32(i))
		}
	}
	slices.SortFunc(from, func(a, b int32) int { return cmp.Compare(p.options[a].score, p.options[b].score) })
	slices.SortFunc(to, func(a, b int32) int { return p.options[a].compareOption(&p.options[b]) })
	d.ScoreThresholds = &ScoreThresholds{LowestChosen: math.MaxInt64 / 2, HighestOther: math.MinInt64}
	if len(from) > 0 {
		d.ScoreThresholds.LowestChosen = p.options[from[0]].score
	}
	if len(to) > 0 {
		d.ScoreThresholds.HighestOther = p.options[to[0]].score
	}
	return from, to
}

// bestOfEachClass returns the first of the options that are in the same groups.
func (p *candidatePool) bestOfEachClass(sorted []int32) []int32 {
	if len(p.problem.rules) == 0 {
		return sorted[:min(1, len(sorted))]
	}
	seen := map[string]bool{}
	var out []int32
	for _, i := range sorted {
		key := ""
		for r := range p.problem.rules {
			key += fmt.Sprint(p.problem.rules[r].groupOf[i], " ")
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, i)
		}
	}
	return out
}

// keepsSpread reports whether the spread is kept as well with the move as without.
func (p *candidatePool) keepsSpread(chosen []int32, from, to int32) bool {
	if len(p.problem.rules) == 0 {
		return true
	}
	if p.solver == nil {
		p.solver = newSolver(&p.problem)
	}
	after := slices.Clone(chosen)
	after[slices.Index(after, from)] = to
	was, is := choiceAttempt{chosen: chosen, counts: p.solver.countGroups(chosen)}, choiceAttempt{chosen: after, counts: p.solver.countGroups(after)}
	p.solver.judgeAttempt(&was)
	p.solver.judgeAttempt(&is)
	if is.value.missingHardGroups > was.value.missingHardGroups || is.value.softViolations > was.value.softViolations {
		return false
	}
	for i := range p.problem.rules {
		r := &p.problem.rules[i]
		if r.max > 0 && countUsed(is.counts[i]) > max(r.max, countUsed(was.counts[i])) {
			return false
		}
		if r.groupOf[to] != r.groupOf[from] && p.solver.breaksHardSkew(i, from, to, is.counts) {
			return false
		}
	}
	return true
}

// breaksHardSkew reports whether a group that the move enters has more than a hard maximum skew allows.
func (s *choiceSolver) breaksHardSkew(rule int, from, to int32, counts [][]int32) bool {
	r := &s.rules[rule]
	if r.skew == 0 || r.isSoft {
		return false
	}
	var one, other [1]int32
	left := r.listGroups(r.groupOf[from], &one)
	for _, g := range r.listGroups(r.groupOf[to], &other) {
		if !slices.Contains(left, g) && int64(counts[rule][g]) > s.skewFloor(rule, counts)+int64(r.skew) {
			return true
		}
	}
	return false
}

// formatReason returns the reason of the move, for the cluster that the Bundle leaves.
func (m *clusterMove) formatReason(p *candidatePool, in *Input) string {
	from, to := &p.options[m.from], &p.options[m.to]
	return fmt.Sprintf("cluster %s scores %d of 1000, and this one %d", in.Clusters[to.clusterIndex].Name, toThousand(to.score), toThousand(from.score))
}
