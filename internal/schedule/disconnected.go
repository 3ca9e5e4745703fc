package schedule

import "slices"

// FilterConnection refuses a disconnected cluster that holds nothing of the Bundle.
const FilterConnection = "connection"

const disconnectedReason = "it is disconnected, and gets nothing new"

// A disconnected cluster gets nothing new while connected clusters can have it. A placement that limits
// its clusters chooses others, and divided replicas grow elsewhere. The cluster keeps all that it has. A
// placement that takes all fitting clusters takes disconnected ones, too, because nothing else could
// hold their copy. Disconnected clusters count behind all others where no other fits, or a hard minimum
// of the spread needs one, so that they block nothing.

// newcomerRule is how disconnected newcomers count in a choice.
type newcomerRule int

const (
	countAll newcomerRule = iota
	refuseDisconnected
	preferConnected
)

// decideAvoidingDisconnected decides by a placement without groups, or by one of its groups. If a disconnected
// newcomer is chosen, it decides again without such clusters, and with them at last where others are not
// enough. So a decision in a connected fleet reads the connections of what it chooses alone.
func (f *CompiledPlacement) decideAvoidingDisconnected(in Input) Decision {
	d := f.decideSingleGroup(in)
	if !d.choseDisconnected {
		return d
	}
	in.newcomers = refuseDisconnected
	if d = f.decideSingleGroup(in); d.NoFit && !d.keepsFailedCopy() {
		in.newcomers = preferConnected
		d = f.decideSingleGroup(in)
		d.needsDisconnected = true
		return d
	}
	d.AwaitsConnection = d.leftOutDisconnected && (d.WantsMore || f.choice.moveRule != nil)
	return d
}

// isConnected reports whether a cluster is surely connected.
func (in *Input) isConnected(c *Cluster) bool { return in.resolveFacts().ConnectionOf(c) == Connected }

// isDisconnected reports whether a cluster is surely disconnected.
func (in *Input) isDisconnected(c *Cluster) bool {
	return in.resolveFacts().ConnectionOf(c) == Disconnected
}

// disconnectedPenalty is more than any score. A disconnected newcomer that a minimum may need has so much
// less.
const disconnectedPenalty = 4 * fullScore

// noteDisconnectedChoice records whether a chosen newcomer is disconnected.
func (d *groupDecider) noteDisconnectedChoice(c *Cluster) {
	if d.input.AvoidDisconnected && d.input.newcomers == countAll && !d.choseDisconnected {
		d.choseDisconnected = d.input.isDisconnected(c)
	}
}

// penalizeDisconnected puts a disconnected newcomer behind all others.
func (p *candidatePool) penalizeDisconnected(o *candidateOption, c *Cluster) {
	if p.input.newcomers == preferConnected && p.input.isDisconnected(c) {
		o.penalty = disconnectedPenalty
	}
}

// needsDisconnectedClusters reports whether the group would hold the Bundle in disconnected newcomers
// alone, or needs one. It is false for a group that holds it in no cluster.
func (d *Decision) needsDisconnectedClusters(in *Input) bool {
	if d.NoFit || !in.AvoidDisconnected {
		return false
	}
	if d.needsDisconnected {
		return true
	}
	return !slices.ContainsFunc(in.Clusters, func(c Cluster) bool {
		v, ok := d.FindVerdict(c.Name)
		return ok && v.IsHolder() && (in.heldRow(&c) != nil || !in.isDisconnected(&c))
	})
}

// refuseDisconnected refuses a disconnected newcomer, and sets its verdict.
func (p *candidatePool) refuseDisconnected(c *Cluster, v *Verdict, d *Decision) bool {
	refuses := p.input.newcomers == refuseDisconnected && p.input.isDisconnected(c)
	if !refuses && !(p.fromScratch && !p.input.isConnected(c)) {
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

// recordConnection records the connection in the verdict, where divided replicas depend on it.
func (d *groupDecider) recordConnection(v *Verdict, c *Cluster) {
	if len(d.workloads) > 0 && (d.input.AvoidDisconnected || d.placementAllowsOverflow()) {
		v.connection = d.input.resolveFacts().ConnectionOf(c)
	}
}

// withholdFromDisconnected keeps new replicas from disconnected clusters. With overflow they get none. With avoid
// they get none while a connected cluster takes part in the division, and keep their share otherwise.
func (d *Decision) withholdFromDisconnected(avoid bool) {
	if len(d.workloads) == 0 || !avoid && !d.Overflows {
		return
	}
	holds := d.Overflows || d.dividesToSomeConnectedCluster()
	d.keepsShares = !holds
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.connection == Connected || v.connection == Uncertain && !d.Overflows || !v.IsHolder() {
			continue
		}
		if v.GetsNothingNew = holds; avoid {
			d.DisconnectedHolders = append(d.DisconnectedHolders, v.Cluster)
		}
	}
}

// dividesToSomeConnectedCluster reports whether a connected cluster takes part in divisions.
func (d *Decision) dividesToSomeConnectedCluster() bool {
	all := methodOf(d.scheduling) != ByWeight || d.FallsBackToEvenDivision()
	return slices.ContainsFunc(d.Verdicts, func(v Verdict) bool {
		return v.Outcome == OutcomePlaced && v.connection != Disconnected && (all || v.Weight > 0)
	})
}

// withCurrentMinimum returns the candidates with their current shares as minimum, where the total reaches
// for them: more replicas are divided, and none moves. A stated minimum would move some.
func withCurrentMinimum(candidates []ShareCandidate, total int64) []ShareCandidate {
	out := slices.Clone(candidates)
	for i := range out {
		has := min(out[i].Current, out[i].Max)
		if total -= has; total < 0 {
			return candidates
		}
		out[i].Min = has
	}
	return out
}
