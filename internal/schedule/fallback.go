package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Better is an earlier group of clusterAffinities that is about to be used again.
type Better struct {
	// Group that it is; empty: none.
	Group string
	// Since when, as far as the caller remembers, a healthy cluster of it fits.
	Since time.Time
}

const betterWords, betterSince = "group ", " could be used since "

// String of it, which ParseBetter reads again; empty where there is none.
func (b Better) String() string {
	if b.Group == "" {
		return ""
	}
	return betterWords + b.Group + betterSince + b.Since.UTC().Format(time.RFC3339Nano)
}

// ParseBetter reads what a text says at its begin; none where it says nothing of it.
func ParseBetter(text string) Better {
	text, _, _ = strings.Cut(text, "; ")
	group, since, ok := strings.Cut(strings.TrimPrefix(text, betterWords), betterSince)
	at, err := time.Parse(time.RFC3339Nano, since)
	if !ok || err != nil {
		return Better{}
	}
	return Better{Group: group, Since: at}
}

// Grouped tells whether the placement has clusterAffinities and the Filter is not one of
// them.
func (f *Filter) Grouped() bool { return f.fallbacks != nil && f.term == "" }

// Earlier tells whether the cluster fits in a group that comes before the named one.
func (f *Filter) Earlier(group string, c *Cluster) bool {
	for _, g := range f.fallbacks {
		if g.term == group {
			return false
		}
		if g.Admits(c) {
			return true
		}
	}
	return false
}

// rememberedGroup of a row; empty: none.
func rememberedGroup(remembered string) string {
	_, group, _ := strings.Cut(printOfFilters(remembered), groupMark)
	return group
}

// named group; nil: there is none.
func (f *Filter) byName(group string) *Filter {
	for _, g := range f.fallbacks {
		if g.term == group {
			return g
		}
	}
	return nil
}

// inNoGroup refuses a newcomer that no group takes. What all groups say is said once.
func (f *Filter) inNoGroup(c *Cluster) (refusal, bool) {
	var all refusal
	var reasons []string
	for i, g := range f.fallbacks {
		r, refused := g.first(c, true)
		if !refused {
			return refusal{}, false
		}
		if i == 0 {
			all = r
		} else if r.filter != all.filter || r.reason != all.reason {
			all = refusal{filter: FilterGroups}
		}
		reasons = append(reasons, g.term+": "+r.reason)
	}
	if all.filter == FilterGroups {
		all.reason = "in no group: " + strings.Join(reasons, "; ")
	}
	return all, true
}

// pick is which group is used.
type pick struct {
	group int
	// held: something of the Bundle stays in it, so that no later one is tried.
	held bool
	// better group that will be used at some time.
	better Better
	at     time.Time
	// full: an earlier group would be better, had it room for all replicas.
	full bool
	// back: a rebalance goes back to an earlier group than the last, which is the one that
	// is in use.
	back bool
	last int
}

// trials of the groups of one placement, each decided on once.
type trials struct {
	f    *Filter
	in   *Input
	done []*trial
}

// trial is what comes of a Bundle in a group.
type trial struct {
	d Decision
	// needs so many replicas room, and room is what is known of; short: it is less, and
	// known of all clusters. Needs is 0 where the division does not go by room.
	needs, room int64
	short       bool
}

func (t *trials) of(g int) *trial {
	if t.done[g] == nil {
		one := &trial{d: t.f.fallbacks[g].decide(*t.in)}
		one.measure(t.in)
		t.done[g] = one
	}
	return t.done[g]
}

// usable group: clusters of it can be chosen, and they have room for all replicas.
func (t *trial) usable() bool { return !t.d.NoFit && !t.short }

// measure the room of the clusters that would hold the Bundle. One of which nobody knows
// takes what the others have no room for, so that nothing is short.
func (t *trial) measure(in *Input) {
	if in.Fits == nil || methodOf(in.Placement.ReplicaScheduling) == ByWeight {
		return
	}
	if t.needs = demand(in.Workloads); t.needs == 0 {
		return
	}
	byName := make(map[string]*Cluster, len(in.Clusters))
	for i := range in.Clusters {
		byName[in.Clusters[i].Name] = &in.Clusters[i]
	}
	t.short = !t.d.NoFit
	for i := range t.d.Verdicts {
		v := &t.d.Verdicts[i]
		if v.Outcome != Placed && v.Outcome != Kept || byName[v.Cluster] == nil {
			continue
		}
		n, known := in.Fits(byName[v.Cluster])
		t.short = t.short && known
		t.room += min(max(n, 0), t.needs-t.room)
	}
	t.short = t.short && t.room < t.needs
}

// decideGroups decides by the group that is in use, or else by the first that can be: in
// which clusters can be chosen, and have room for all replicas where these are divided by
// room. Where none has the room, by the first in which clusters can be chosen.
func (f *Filter) decideGroups(in Input) Decision {
	t := &trials{f: f, in: &in, done: make([]*trial, len(f.fallbacks))}
	p := f.pick(t)
	used := p.group
	switch {
	case p.back:
		used = t.firstBefore(used, p.last)
	case !p.held:
		used = t.first(used)
	}
	d := t.of(used).d
	d.Crowded = t.crowded()
	_, back := in.Placement.Failback.Hold()
	d.Group, d.Better, d.BetterAt, d.FailsBack = f.fallbacks[used].term, p.better, p.at, back && used > 0
	if d.EarlierFull = p.full; !p.held {
		d.EarlierFull = back && slices.ContainsFunc(t.done[:used], func(t *trial) bool { return t != nil && t.short })
	}
	if d.LookAt.IsZero() || !p.at.IsZero() && p.at.Before(d.LookAt) {
		d.LookAt = p.at
	}
	if !in.Terse {
		d.Groups = t.groups(used, p)
	}
	return d
}

// crowded are the clusters that any of the trials found without capacity.
func (t *trials) crowded() (names []string) {
	for _, one := range t.done {
		if one != nil {
			names = append(names, one.d.Crowded...)
		}
	}
	return append(names, t.in.crowded...)
}

// first group that can be used, from one on.
func (t *trials) first(from int) int {
	fits := -1
	for g := from; g < len(t.done); g++ {
		if one := t.of(g); one.usable() {
			return g
		} else if fits < 0 && !one.d.NoFit {
			fits = g
		}
	}
	return max(from, fits)
}

// firstBefore gives the first group from one on that can be used, or else the last: what
// runs stays in its group where no earlier one can be had after all.
func (t *trials) firstBefore(from, last int) int {
	for g := from; g < last; g++ {
		if t.of(g).usable() {
			return g
		}
	}
	return last
}

// standing of what a Bundle has in a group.
type standing struct{ placed, kept, leaves bool }

func (f *Filter) pick(t *trials) (p pick) {
	in := t.in
	stands := make([]standing, len(f.fallbacks))
	for i := range in.Clusters {
		if row := in.row(&in.Clusters[i]); row != nil {
			f.stand(stands, &in.Clusters[i], row, in)
		}
	}
	current := -1
	for g, s := range stands {
		// What only stays for want of a better place does not keep a group that others
		// have to leave, and that nothing fits in.
		if s.placed || s.kept && (!s.leaves || f.fallbacks[g].admitsAny(in)) {
			current = g
			break
		}
	}
	if current < 0 {
		for g := range f.fallbacks {
			if f.fallbacks[g].admitsAny(in) {
				return pick{group: g}
			}
		}
		return pick{}
	}
	p = pick{group: current, held: true}
	hold, back := in.Placement.Failback.Hold()
	if g, found := f.earlier(in, current); found {
		return pick{group: g, back: true, last: current}
	}
	if !back {
		return p
	}
	for g := range current {
		if !f.fallbacks[g].admitsHealthy(in) || !t.of(g).usable() {
			p.full = p.full || t.done[g] != nil && t.done[g].short
			continue
		}
		p.better = Better{Group: f.fallbacks[g].term, Since: in.Now}
		if in.Better.Group == p.better.Group {
			p.better.Since = in.Better.Since
		}
		if p.at = p.better.Since.Add(hold); p.at.Before(in.NotBackBefore) {
			p.at = in.NotBackBefore
		}
		if !in.Now.Before(p.at) {
			p = pick{group: g, better: p.better}
		}
		break
	}
	return p
}

// stand notes what becomes of a row in the group that it came by, or where it remembers
// none in the first in which its cluster fits.
func (f *Filter) stand(stands []standing, c *Cluster, row *atoll.RowSpec, in *Input) {
	name := rememberedGroup(row.Placement)
	for g, home := range f.fallbacks {
		if name != "" && home.term != name {
			continue
		}
		v := home.judgeAlone(c, row, in.WhenUnfit, in.Now)
		switch {
		case v.Outcome == Placed:
			stands[g].placed = true
		case name == "":
			continue
		case v.Outcome == Kept:
			stands[g].kept = true
		case v.Outcome == Leaves:
			stands[g].leaves = true
		}
		return
	}
}

func (f *Filter) admitsAny(in *Input) bool {
	for i := range in.Clusters {
		if in.takes(f, &in.Clusters[i]) {
			return true
		}
	}
	return false
}

func (f *Filter) admitsHealthy(in *Input) bool {
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if in.takes(f, c) && (in.Healthy == nil || in.Healthy(c)) {
			return true
		}
	}
	return false
}

// judge a cluster by the group that is in use. What came by another group, and is not in
// this one too, leaves where its own would keep it: that group is not in use any more.
func (f *Filter) judge(c *Cluster, row *atoll.RowSpec, unfit v1alpha1.WhenUnfit, now time.Time) Verdict {
	v := f.judgeAlone(c, row, unfit, now)
	if row == nil || f.term == "" || v.Outcome == Placed || v.Outcome == Gone || v.Filter == FilterRemoval {
		return v
	}
	home := f.byName(rememberedGroup(row.Placement))
	if home == nil || home == f {
		return v
	}
	if v = home.judgeAlone(c, row, unfit, now); v.Outcome == Placed {
		v.Outcome, v.Word, v.Filter = Leaves, atoll.RowGroupLeft, FilterGroups
		v.Reason = fmt.Sprintf("group %s is used again, which comes before %s", f.term, home.term)
		v.EvictAt, v.Placement = time.Time{}, ""
	}
	return v
}

// notInUse says of a newcomer that the group in use refuses whether another would take it.
func (f *Filter) notInUse(c *Cluster, r refusal) refusal {
	if g := f.other(c); g != nil {
		return refusal{filter: FilterGroups, reason: fmt.Sprintf("it fits in group %s, and group %s is in use", g.term, f.term)}
	}
	if all, refused := f.inNoGroup(c); refused {
		return all
	}
	return r
}

// other group that would take a newcomer; nil: there is none.
func (f *Filter) other(c *Cluster) *Filter {
	for _, g := range f.fallbacks {
		if g != f && g.Admits(c) {
			return g
		}
	}
	return nil
}

// judgeByHome judges a cluster by the group that its row came by, or where it remembers
// none by the first in which it fits; a newcomer by all.
func (f *Filter) judgeByHome(c *Cluster, row *atoll.RowSpec, unfit v1alpha1.WhenUnfit, now time.Time) (v Verdict) {
	if row == nil {
		v = Verdict{Cluster: c.Name, UID: c.UID, Outcome: Placed, Orphan: c.Removal == v1alpha1.ClusterOrphan}
		if r, refused := f.inNoGroup(c); refused {
			v.Outcome, v.Filter, v.Reason = Out, r.filter, r.reason
		}
		return v
	}
	if home := f.byName(rememberedGroup(row.Placement)); home != nil {
		return home.judgeAlone(c, row, unfit, now)
	}
	for i, g := range f.fallbacks {
		if other := g.judgeAlone(c, row, unfit, now); i == 0 || other.Outcome == Placed {
			if v = other; v.Outcome == Placed {
				break
			}
		}
	}
	return v
}
