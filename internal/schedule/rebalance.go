package schedule

import (
	"cmp"
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// FilterRebalance is what takes a Bundle that is placed from scratch out of a cluster,
// or keeps it from coming to one.
const FilterRebalance = "rebalance"

// What is placed from scratch is decided once: each row remembers the rebalance that it
// went through, and is then what any other row is. What a cluster's agent reports takes
// nothing away in a rebalance either, and nothing moves to a cluster that is away.

// anew tells whether the row has yet to go through the rebalance that was asked for.
func (f *Filter) anew(row *atoll.RowSpec) bool {
	return !f.rebalance.IsZero() && f.rebalance.After(row.Rebalanced())
}

// afresh tells whether a row that runs the Bundle has yet to.
func (f *Filter) afresh(rows map[string]atoll.RowSpec) bool {
	if f.rebalance.IsZero() {
		return false
	}
	for _, row := range rows {
		if row.Placement != f.print && (row.Phase == atoll.RowActive || row.Phase == "") && f.anew(&row) {
			return true
		}
	}
	return false
}

// remember gives what a row is to remember of the placement: its print, and the rebalance
// that it went through.
func (f *Filter) remember(row *atoll.RowSpec) string {
	if at := row.Rebalanced(); at.After(f.rebalance) {
		return atoll.WithRebalance(atoll.WithoutRebalance(f.print), at)
	}
	return f.print
}

// offerAnew offers a cluster whose row is to be chosen from scratch: as any newcomer, but
// that it wins a tie.
func (p *pool) offerAnew(at int, row *atoll.RowSpec, v *Verdict, d *Decision) {
	c, active := &p.in.Clusters[at], row.Phase == atoll.RowActive || row.Phase == ""
	if v.Outcome == Kept && active {
		p.add(c, option{at: int32(at), prio: prioLocked, verdict: int32(len(d.Verdicts))}, facts{holds: true, avoid: p.filter.avoided(c), near: p.near, rated: p.in.Rated})
		return
	}
	if v.Outcome == Kept {
		why := atoll.ParseRowReason(row.Reason)
		v.leave(FilterRebalance, cmp.Or(why.Word, atoll.RowPlacementEdited), why.Text)
		return
	}
	if i, lacks := p.lacks(c); lacks {
		v.leave(FilterSpread, atoll.RowRebalanced, fmt.Sprintf("it has no %s, over which spreadConstraints[%d] spreads", what(&p.spread[i]), i))
		return
	}
	about := facts{avoid: p.filter.avoided(c), near: p.near, rated: p.in.Rated}
	if p.scorer.load {
		about.load, about.own = p.in.loadAt(at, row)
	}
	p.add(c, option{at: int32(at), prio: prioNew, verdict: int32(len(d.Verdicts))}, about)
	p.options[len(p.options)-1].rank = 0
}

// away tells whether a newcomer is not to be chosen in a rebalance since it is not in
// touch; its verdict says so.
func (p *pool) away(c *Cluster, v *Verdict) bool {
	if !p.fresh || p.in.Healthy == nil || p.in.Healthy(c) {
		return false
	}
	v.Outcome, v.Placement = Out, ""
	v.Filter, v.Reason = FilterRebalance, "it is away, and a rebalance moves nothing to a cluster that is"
	return true
}

// leftBehind says of a cluster that runs the Bundle that others were chosen from scratch.
func (v *Verdict) leftBehind() {
	v.leave(FilterRebalance, atoll.RowRebalanced, fmt.Sprintf("others were chosen from scratch; it scores %d of 1000", toThousand(v.Score)))
}

// earlier looks for the group that a rebalance uses instead of the current one: the first
// in which a cluster that is in touch fits. Not found: the current one stays.
func (f *Filter) earlier(in *Input, current int) (group int, found bool) {
	if !f.afresh(in.Rows) {
		return 0, false
	}
	for g := range current {
		if f.fallbacks[g].admitsHealthy(in) {
			return g, true
		}
	}
	return 0, false
}

// fromScratch gives the claims as of clusters that have nothing of the workload yet, where
// that is to be divided so; what a cluster runs of it now is room that it has.
func (s *sharing) fromScratch(item int, claims []Claim) []Claim {
	if !s.anew || s.workloads[item].stateful() {
		return claims
	}
	out, key := make([]Claim, len(claims)), s.out.key(item)
	for i, c := range claims {
		if s.out.Shares[c.at].Anew {
			if c.Room >= 0 {
				c.Room += min(s.assigned(c.at, key), Unbounded-c.Room)
			}
			c.Has = 0
		}
		out[i] = c
	}
	return out
}
