package schedule

import "math"

// FilterPodFit refuses a newcomer, because undivided pods fit sooner in the clusters that are chosen.
const FilterPodFit = "podFit"

// Penalties of newcomers where the pods do not fit now. Each is more than any score, and both are less than
// that of a disconnected cluster.
const (
	afterScaleUpPenalty = fullScore + fullScore/4
	neverFitsPenalty    = 2*fullScore + fullScore/2
)

// A placement that limits its clusters takes newcomers where the pods of undivided items fit now before
// others. Nothing is refused: where none fits, the best of the others is taken, and what runs stays.

// decideAvoidingUnfit decides by a placement without groups, or by one of its groups. If the pods do not fit in a
// chosen newcomer, it decides again and weighs that. So a decision reads the free capacity of what it
// chooses alone where the pods fit.
func (f *CompiledPlacement) decideAvoidingUnfit(in Input) Decision {
	d := f.decideAvoidingDisconnected(in)
	if !d.ChoseUnfit || f.choice == nil {
		return d
	}
	in.weighsFit = true
	return f.decideAvoidingDisconnected(in)
}

// choicePenalty returns what a newcomer with the answer has less.
func (f PodFit) choicePenalty() int32 {
	switch f.When {
	case FitAfterScaleUp:
		return afterScaleUpPenalty
	case FitNever:
		return neverFitsPenalty
	}
	return 0
}

// penalizeUnfit puts a newcomer behind those where the pods fit sooner.
func (p *candidatePool) penalizeUnfit(o *candidateOption, c *Cluster) {
	if p.input.weighsFit {
		o.fitPenalty = p.input.PodFitOf(c, false).choicePenalty()
	}
}

// plainScore returns the score without penalties.
func (o *candidateOption) plainScore() int64 { return o.score + o.sumPenalties() }

func (o *candidateOption) sumPenalties() int64 { return int64(o.penalty) + int64(o.fitPenalty) }

// recordPodFit records whether the pods fit in a placed newcomer.
func (d *groupDecider) recordPodFit(v *Verdict, c *Cluster) {
	in := d.input
	if in.PodFitOf == nil || v.Outcome != OutcomePlaced || in.heldRow(c) != nil || d.pool == nil && in.SkipExplanations {
		return
	}
	fit := in.PodFitOf(c, !in.SkipExplanations)
	v.SetPodFit(fit)
	d.ChoseUnfit = d.ChoseUnfit || fit.choicePenalty() > 0
}

// leastFitPenalty returns the least penalty for unfit pods of the newcomers that were taken. No option has more where none
// was taken.
func (p *candidatePool) leastFitPenalty(isTaken []bool) int32 {
	least := int32(math.MaxInt32)
	for i := range p.options {
		if o := &p.options[i]; isTaken[i] && o.priority == prioNew {
			least = min(least, o.fitPenalty)
		}
	}
	return least
}
