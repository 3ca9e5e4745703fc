package schedule

import (
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// FilterRebalance is what takes a Bundle that is placed from scratch out of a cluster, or
// keeps it from coming to one.
const FilterRebalance = "rebalance"

// A rebalance is decided once: each row stores the rebalance that it went through, and is
// then like any other row. A refusal that the agent reported takes nothing away in a
// rebalance either, and nothing moves to a disconnected cluster.

// needsRebalance reports whether the row has yet to go through the requested rebalance.
func (f *CompiledPlacement) needsRebalance(row *atoll.RowSpec) bool {
	return !f.rebalanceAt.IsZero() && f.rebalanceAt.After(row.LastRebalance())
}

// hasRowsToRebalance reports whether a row that runs the Bundle has yet to go through the
// requested rebalance.
func (f *CompiledPlacement) hasRowsToRebalance(rows map[string]atoll.RowSpec) bool {
	if f.rebalanceAt.IsZero() {
		return false
	}
	for _, row := range rows {
		if row.PlacementFingerprint != f.placementFingerprint && row.Phase.IsChosen() && f.needsRebalance(&row) {
			return true
		}
	}
	return false
}

// fingerprintWithLastRebalance returns what a row stores of the placement: its fingerprint,
// and the rebalance that it went through.
func (f *CompiledPlacement) fingerprintWithLastRebalance(row *atoll.RowSpec) string {
	if at := row.LastRebalance(); at.After(f.rebalanceAt) {
		return atoll.AppendRebalance(atoll.TrimRebalance(f.placementFingerprint), at)
	}
	return f.placementFingerprint
}

// offerHolderLikeNewcomer offers a cluster whose row is to be chosen from scratch: like a newcomer,
// except that it wins a tie.
func (p *candidatePool) offerHolderLikeNewcomer(at int, row *atoll.RowSpec, v *Verdict, d *Decision) {
	c, active := &p.input.Clusters[at], row.Phase.IsChosen()
	if v.Outcome == OutcomeKept && active {
		p.addOption(c, candidateOption{clusterIndex: int32(at), priority: prioLocked, verdictIndex: int32(len(d.Verdicts))}, clusterFacts{runsBundle: true, avoidedTaints: p.filter.countAvoidedTaints(c), nearby: p.nearby, fleet: p.input.resolveFacts()})
		return
	}
	if v.Outcome == OutcomeKept {
		v.keepLeaving(FilterRebalance, row)
		return
	}
	if i, lacks := p.firstMissingSpread(c); lacks {
		v.setLeaving(FilterSpread, atoll.ReasonRebalanced, fmt.Sprintf("it has no %s, over which spreadConstraints[%d] spreads", spreadFieldName(&p.spread[i]), i))
		return
	}
	about := clusterFacts{avoidedTaints: p.filter.countAvoidedTaints(c), nearby: p.nearby, fleet: p.input.resolveFacts()}
	if p.scores.needsPodLoad {
		about.othersPods, about.ownPods = p.input.podLoadAt(at, row)
	}
	p.addOption(c, candidateOption{clusterIndex: int32(at), priority: prioNew, verdictIndex: int32(len(d.Verdicts))}, about)
	p.options[len(p.options)-1].rank = 0
}

// leaveForRebalance sets the verdict on a cluster that runs the Bundle when others were
// chosen from scratch.
func (v *Verdict) leaveForRebalance() {
	v.setLeaving(FilterRebalance, atoll.ReasonRebalanced, fmt.Sprintf("others were chosen from scratch; it scores %d of 1000", toThousand(v.Score)))
}

// findRebalanceGroup finds the group that a rebalance uses instead of the current one: the
// first in which a connected cluster fits. Not found: the current one stays.
func (f *CompiledPlacement) findRebalanceGroup(in *Input, current int) (group int, found bool) {
	if !f.hasRowsToRebalance(in.Rows) {
		return 0, false
	}
	for g := range current {
		if f.affinityGroups[g].fitsConnectedCluster(in) {
			return g, true
		}
	}
	return 0, false
}

// clearSharesDividedFromScratch returns the candidates without current shares, where the workload is
// divided from scratch. Running replicas of it count as free capacity.
func (s *shareAssigner) clearSharesDividedFromScratch(item int, candidates []ShareCandidate) []ShareCandidate {
	if len(s.assignment.fromScratch) == 0 || s.workloads[item].needsOneCluster() {
		return candidates
	}
	out, key := make([]ShareCandidate, len(candidates)), s.assignment.itemKey(item)
	for i, c := range candidates {
		if s.assignment.fromScratch[c.shareIndex] {
			if c.FreeCapacity >= 0 {
				c.FreeCapacity += min(s.replicasAssignedByRow(c.shareIndex, key), Unbounded-c.FreeCapacity)
			}
			c.Current = 0
		}
		out[i] = c
	}
	return out
}
