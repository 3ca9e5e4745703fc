package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// AffinityGroup describes why one of the clusterAffinities is in use or not.
type AffinityGroup struct {
	Name  string `json:"name"`
	InUse bool   `json:"inUse,omitempty"`
	// TakesOverflow: it takes replicas that have no place in the group in use.
	TakesOverflow bool `json:"takesOverflow,omitempty"`
	// Fit counts the clusters that fit in it, Healthy those of them that are connected.
	Fit     int `json:"fit"`
	Healthy int `json:"healthy"`
	// Refused counts the others by the filter that refuses them, the most first.
	Refused []RefusalCount `json:"refused,omitempty"`
	// Needs is how many replicas need free capacity in it, where they are divided by it.
	// Room is how many are known to fit.
	Needs int64 `json:"needs,omitempty"`
	Room  int64 `json:"room,omitempty"`
	// Why it is not in use; empty for the group that is.
	Why string `json:"why,omitempty"`
	// Since is when an earlier group became usable again, and Again when it will be used;
	// nil: it is not or will not be.
	Since *time.Time `json:"since,omitempty"`
	Again *time.Time `json:"again,omitempty"`
}

// RefusalCount counts clusters that a filter refuses.
type RefusalCount struct {
	Filter   string `json:"filter"`
	Clusters int    `json:"clusters"`
}

// explainGroups explains the groups as the decision found them.
func (t *groupTrials) explainGroups(used int, overflow []bool, p groupPick) []AffinityGroup {
	out := make([]AffinityGroup, len(t.byGroup))
	for g, f := range t.f.affinityGroups {
		out[g] = AffinityGroup{Name: f.groupName, InUse: g == used}
		out[g].countClusters(f, t.in)
		one := t.byGroup[g]
		if one == nil && g < used {
			one = t.decideGroup(g)
		}
		if one != nil {
			out[g].Needs, out[g].Room = one.needs, one.capacity
		}
		out[g].TakesOverflow = overflow != nil && overflow[g]
		if g != used {
			out[g].Why = t.explainUnused(g, used, &out[g])
		}
		if p.pendingFailback.Group == f.groupName && g != used {
			out[g].Since = &p.pendingFailback.Since
			if !p.failbackAt.IsZero() {
				out[g].Again = &p.failbackAt
			}
		}
	}
	return out
}

func (g *AffinityGroup) countClusters(f *CompiledPlacement, in *Input) {
	by := map[string]int{}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if r, refused := f.firstRefusal(c, false); refused {
			by[r.filter]++
		} else if group := in.findGroupRefusal(c); group != nil {
			by[group.filterName()]++
		} else if in.refusesFailed(c) {
			by[FilterFailover]++
		} else if _, full := in.exceedsCapacity(c); full && in.heldRow(c) == nil {
			by[FilterCapacity]++
		} else if g.Fit++; in.isConnected(c) {
			g.Healthy++
		}
	}
	for filter, n := range by {
		g.Refused = append(g.Refused, RefusalCount{filter, n})
	}
	slices.SortFunc(g.Refused, func(a, b RefusalCount) int {
		return cmp.Or(b.Clusters-a.Clusters, strings.Compare(a.Filter, b.Filter))
	})
}

const notInTouchReason = "none of its clusters that fit is in touch"

// explainUnused returns why the group is not in use, and another one is.
func (t *groupTrials) explainUnused(g, used int, is *AffinityGroup) string {
	if g > used {
		return t.explainLaterGroup(g, used, is)
	}
	name, one := t.f.affinityGroups[used].groupName, t.byGroup[g]
	hold, back := t.in.Placement.Failback.HoldDuration()
	switch {
	case is.Fit == 0:
		return "no cluster fits in it"
	case one.needsDisconnected && is.Healthy == 0:
		return notInTouchReason
	case one.needsDisconnected:
		return "its connected clusters are not enough"
	case one.decision.UnmetSpread != "":
		return one.decision.UnmetSpread
	case one.decision.NoFit:
		return "none of its clusters can be chosen"
	case one.short:
		return fmt.Sprintf("it has room for %d of %d replicas", one.capacity, one.needs)
	case !back:
		return fmt.Sprintf("it could be used, and what runs stays in %s: failback.policy is %s", name, v1alpha1.FailbackNever)
	case is.Healthy == 0:
		return notInTouchReason
	}
	return fmt.Sprintf("it is used again once it could be for %s without a break", hold)
}

// explainLaterGroup returns why a group that comes after the one in use is not used.
func (t *groupTrials) explainLaterGroup(g, used int, is *AffinityGroup) string {
	name, one := t.f.affinityGroups[used].groupName, t.byGroup[g]
	switch {
	case is.TakesOverflow:
		return fmt.Sprintf("it takes the replicas that have no place in %s", name)
	case is.Fit == 0:
		return fmt.Sprintf("it comes after %s, and no cluster fits in it", name)
	case one != nil && one.short:
		return fmt.Sprintf("it comes after %s, and has room for %d of %d replicas only", name, one.capacity, one.needs)
	case t.decideGroup(used).short:
		return fmt.Sprintf("it comes after %s, where something runs already: that changes its group only for an earlier one, or when nothing of it can stay", name)
	}
	return "it comes after " + name
}
