package schedule

import "slices"

// FilterConnection refuses a disconnected cluster that holds nothing of the Bundle.
const FilterConnection = "connection"

const disconnectedReason = "it is disconnected, and gets nothing new"

// A disconnected cluster gets nothing new while connected clusters can have it. A placement that limits
// its clusters chooses others, and divided replicas grow elsewhere. The cluster keeps all that it has. A
// placement that takes all fitting clusters takes disconnected ones, too, because nothing else could
// hold their copy. Disconnected clusters count like all others where no other fits, or a hard minimum of
// the spread needs one, so that they block nothing.

// newcomerRule is how disconnected newcomers count in a choice.
type newcomerRule int

const (
	countAll newcomerRule = iota
	refuseDisconnected
	preferConnected
)

// decideByConnection decides. If a disconnected newcomer is chosen, it decides again without such
// clusters, and with them at last where others are not enough. So a decision in a connected fleet reads
// the connections of what it chooses alone.
func (f *Filter) decideByConnection(in Input) Decision {
	d := f.decideOnce(in)
	if d.choseDisconnected {
		in.newcomers = refuseDisconnected
		if d = f.decideOnce(in); d.NoFit && d.leftOutDisconnected {
			in.newcomers = preferConnected
			d = f.decideOnce(in)
		}
	}
	d.holdDisconnected(in.AvoidDisconnected)
	return d
}

func (f *Filter) decideOnce(in Input) Decision {
	if f.HasGroups() {
		return f.decideByGroups(in)
	}
	return f.decideSingleGroup(in)
}

// disconnectedPenalty is more than any score. A disconnected newcomer that a minimum may need has so much
// less.
const disconnectedPenalty = 4 * fullScore

// readChosen records whether a chosen newcomer is disconnected.
func (d *groupDecider) readChosen(c *Cluster) {
	if d.input.AvoidDisconnected && d.input.newcomers == countAll && !d.choseDisconnected {
		d.choseDisconnected = !d.input.resolveFacts().IsConnected(c)
	}
}

// penalizeDisconnected puts a disconnected newcomer behind all others.
func (p *candidatePool) penalizeDisconnected(o *candidateOption, c *Cluster) {
	if p.input.newcomers == preferConnected && !p.input.resolveFacts().IsConnected(c) {
		o.penalty = disconnectedPenalty
	}
}

// hasConnectedHolder reports whether the decision gives the Bundle to a connected cluster, or leaves it
// where it runs.
func (d *Decision) hasConnectedHolder(in *Input) bool {
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if v, ok := d.FindVerdict(c.Name); ok && v.IsHolder() && (in.heldRow(c) != nil || in.resolveFacts().IsConnected(c)) {
			return true
		}
	}
	return false
}

// refuseDisconnected refuses a disconnected newcomer, and sets its verdict.
func (p *candidatePool) refuseDisconnected(c *Cluster, v *Verdict, d *Decision) bool {
	if !p.fromScratch && p.input.newcomers != refuseDisconnected || p.input.resolveFacts().IsConnected(c) {
		return false
	}
	v.Outcome, v.PlacementFingerprint = OutcomeOut, ""
	v.Filter, v.Reason = FilterConnection, disconnectedReason
	if p.fromScratch {
		v.Filter, v.Reason = FilterRebalance, "it is disconnected, and a rebalance moves nothing there"
	}
	d.leftOutDisconnected = true
	return true
}

// readConnection records in the verdict whether the cluster is disconnected, where divided replicas
// depend on it.
func (d *groupDecider) readConnection(v *Verdict, c *Cluster) {
	if len(d.workloads) > 0 && (d.input.AvoidDisconnected || d.statesOverflow()) {
		v.isDisconnected = !d.input.resolveFacts().IsConnected(c)
	}
}

// holdDisconnected keeps new replicas from disconnected clusters: always where replicas overflow, and
// with avoid where a connected cluster divides them, too.
func (d *Decision) holdDisconnected(avoid bool) {
	d.AwaitsConnection = avoid && d.leftOutDisconnected && d.WantsMore
	if len(d.workloads) == 0 {
		return
	}
	if !d.Overflows && !(avoid && d.dividesToConnected()) {
		return
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.isDisconnected && v.IsHolder() {
			v.GetsNothingNew = true
			d.AwaitsConnection = d.AwaitsConnection || avoid
		}
	}
}

// dividesToConnected reports whether a connected cluster takes part in divisions.
func (d *Decision) dividesToConnected() bool {
	all := methodOf(d.scheduling) != ByWeight || d.DividesEvenly()
	return slices.ContainsFunc(d.Verdicts, func(v Verdict) bool {
		return v.Outcome == OutcomePlaced && !v.isDisconnected && (all || v.Weight > 0)
	})
}
