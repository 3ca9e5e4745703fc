package decisions

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Tables that decide, as they would be; nil ones are as they are.
type Tables struct {
	Placements interface {
		Get(key types.NamespacedName) (state.Placement, bool)
	}
	Clusters Clusters
	Views    Views
	Sets     Sets
	// Feed adds to a decision for the namespace what scores ask for.
	Feed func(in *schedule.Input, namespace string)
}

// Foreseen is what a Placement would publish.
type Foreseen struct {
	Key types.NamespacedName
	// Before and After name the clusters that are and would be chosen. Sorted.
	Before, After []string
	// NoFit: no cluster would fit; what was chosen stays. Unmet says which minimum of the
	// spread could not be had.
	NoFit bool
	Unmet string
}

// Foresee what Placements would publish, by the function that publishes. One that would not
// be there publishes nothing. Nothing is written.
func (p *Publisher) Foresee(t Tables, keys []types.NamespacedName) (out []Foreseen) {
	f := p.fork()
	if t.Clusters != nil {
		f.Clusters = t.Clusters
	}
	if t.Views != nil {
		f.Views = t.Views
	}
	if t.Sets != nil {
		f.Sets = t.Sets
	}
	if t.Feed != nil {
		f.Feed = t.Feed
	}
	placements := t.Placements
	if placements == nil {
		placements = p.Placements
	}
	for _, key := range keys {
		one := Foreseen{Key: key}
		now := p.Decisions.OfPlacement(key)
		for _, d := range now {
			one.Before = append(one.Before, names(d.Status.Decisions)...)
		}
		if pl, ok := placements.Get(key); ok {
			now = slices.DeleteFunc(now, func(d state.Decision) bool { return !ownedBy(d, pl) })
			f.standings[key] = p.stood(key)
			chosen, d := f.choose(pl, now)
			one.NoFit, one.Unmet = d.NoFit, d.Unmet
			for name := range chosen {
				one.After = append(one.After, name)
			}
		}
		slices.Sort(one.Before)
		slices.Sort(one.After)
		out = append(out, one)
	}
	return out
}

// fork a Publisher that decides as p does, and writes nothing.
func (p *Publisher) fork() *Publisher {
	return &Publisher{Config: p.Config, filters: map[types.NamespacedName]compiled{}, standings: map[types.NamespacedName]standing{}}
}

// Explain what a Placement chooses, by the function that publishes, with a reason for every
// cluster, and what is published, sorted; false where there is no such Placement.
func (p *Publisher) Explain(key types.NamespacedName) (pl state.Placement, d schedule.Decision, published []string, ok bool) {
	if pl, ok = p.Placements.Get(key); !ok {
		return pl, d, nil, false
	}
	f := p.fork()
	f.telling, f.standings[key] = true, p.stood(key)
	now := slices.DeleteFunc(p.Decisions.OfPlacement(key), func(d state.Decision) bool { return !ownedBy(d, pl) })
	for _, d := range now {
		published = append(published, names(d.Status.Decisions)...)
	}
	slices.Sort(published)
	_, d = f.choose(pl, now)
	return pl, d, published, true
}

func names(list []v1alpha1.ClusterDecision) (out []string) {
	for i := range list {
		out = append(out, list[i].ClusterName)
	}
	return out
}
