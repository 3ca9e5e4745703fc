package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// AffinityGroup tells of one of the clusterAffinities why it is in use or not.
type AffinityGroup struct {
	Name  string `json:"name"`
	InUse bool   `json:"inUse,omitempty"`
	// Fit counts the clusters that fit in it, and Healthy those of them that are in touch.
	Fit     int `json:"fit"`
	Healthy int `json:"healthy"`
	// Refused counts the others by the filter that refuses them, the most first.
	Refused []Refused `json:"refused,omitempty"`
	// Needs is for how many replicas it has to have room, where they are divided by room,
	// and Room for how many of them is known that it has.
	Needs int64 `json:"needs,omitempty"`
	Room  int64 `json:"room,omitempty"`
	// Why it is not in use; empty for the one that is.
	Why string `json:"why,omitempty"`
	// Since when an earlier one could be used again, and Again when it will be; nil: it
	// cannot, or will not.
	Since *time.Time `json:"since,omitempty"`
	Again *time.Time `json:"again,omitempty"`
}

// Refused counts clusters that a filter refuses.
type Refused struct {
	Filter   string `json:"filter"`
	Clusters int    `json:"clusters"`
}

// groups as the decision found them.
func (t *trials) groups(used int, p pick) []AffinityGroup {
	out := make([]AffinityGroup, len(t.done))
	for g, f := range t.f.fallbacks {
		out[g] = AffinityGroup{Name: f.term, InUse: g == used}
		out[g].count(f, t.in)
		one := t.done[g]
		if one == nil && g < used {
			one = t.of(g)
		}
		if one != nil {
			out[g].Needs, out[g].Room = one.needs, one.room
		}
		if g != used {
			out[g].Why = t.notUsed(g, used, &out[g])
		}
		if p.better.Group == f.term && g != used {
			out[g].Since = &p.better.Since
			if !p.at.IsZero() {
				out[g].Again = &p.at
			}
		}
	}
	return out
}

func (g *AffinityGroup) count(f *Filter, in *Input) {
	by := map[string]int{}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		if r, refused := f.first(c, false); refused {
			by[r.filter]++
		} else if _, full := in.full(c); full && in.row(c) == nil {
			by[FilterCapacity]++
		} else if g.Fit++; in.Healthy == nil || in.Healthy(c) {
			g.Healthy++
		}
	}
	for filter, n := range by {
		g.Refused = append(g.Refused, Refused{filter, n})
	}
	slices.SortFunc(g.Refused, func(a, b Refused) int {
		return cmp.Or(b.Clusters-a.Clusters, strings.Compare(a.Filter, b.Filter))
	})
}

// notUsed says why the group is not in use, and another one is.
func (t *trials) notUsed(g, used int, is *AffinityGroup) string {
	name, one := t.f.fallbacks[used].term, t.done[g]
	switch {
	case g > used && is.Fit == 0:
		return fmt.Sprintf("it comes after %s, and no cluster fits in it", name)
	case g > used && one != nil && one.short:
		return fmt.Sprintf("it comes after %s, and has room for %d of %d replicas only", name, one.room, one.needs)
	case g > used && t.of(used).short:
		return fmt.Sprintf("it comes after %s, where something runs already: that changes its group only for an earlier one, or when nothing of it can stay", name)
	case g > used:
		return "it comes after " + name
	case is.Fit == 0:
		return "no cluster fits in it"
	case one.d.Unmet != "":
		return one.d.Unmet
	case one.d.NoFit:
		return "none of its clusters can be chosen"
	case one.short:
		return fmt.Sprintf("it has room for %d of %d replicas", one.room, one.needs)
	}
	switch hold, back := t.in.Placement.Failback.Hold(); {
	case !back:
		return fmt.Sprintf("it could be used, and what runs stays in %s: failback.policy is %s", name, v1alpha1.FailbackNever)
	case is.Healthy == 0:
		return "none of its clusters that fit is in touch"
	default:
		return fmt.Sprintf("it is used again once it could be for %s without a break", hold)
	}
}
