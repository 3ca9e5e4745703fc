package decisions

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// SupposedTables are hypothetical tables; nil: the real ones.
type SupposedTables struct {
	Placements interface {
		Get(key types.NamespacedName) (state.Placement, bool)
	}
	Clusters Clusters
	Views    Views
	Sets     Sets
	// SetInterest sets the inputs of scores in a decision for the namespace.
	SetInterest func(in *schedule.Input, namespace string)
}

// PreviewedPlacement is what a Placement would publish.
type PreviewedPlacement struct {
	Key types.NamespacedName
	// Before and After name the clusters that are and would be chosen. Sorted.
	Before, After []string
	// NoFit means that no cluster would fit, and the choice stays. UnmetSpread names the minimum
	// of the spread that cannot be met.
	NoFit       bool
	UnmetSpread string
}

// PreviewPlacements returns what Placements would publish, by the function that publishes. A
// Placement that would not exist publishes nothing. Nothing is written.
func (p *DecisionPublisher) PreviewPlacements(t SupposedTables, keys []types.NamespacedName) (out []PreviewedPlacement) {
	f := p.forkForPreview()
	if t.Clusters != nil {
		f.Clusters = t.Clusters
	}
	if t.Views != nil {
		f.Views = t.Views
	}
	if t.Sets != nil {
		f.Sets = t.Sets
	}
	if t.SetInterest != nil {
		f.SetInterest = t.SetInterest
	}
	placements := t.Placements
	if placements == nil {
		placements = p.Placements
	}
	for _, key := range keys {
		one := PreviewedPlacement{Key: key}
		now := p.Decisions.OfPlacement(key)
		for _, d := range now {
			one.Before = append(one.Before, clusterNames(d.Status.Decisions)...)
		}
		if pl, ok := placements.Get(key); ok {
			now = slices.DeleteFunc(now, func(d state.Decision) bool { return !hasNoOtherController(d, pl) })
			f.lastDecisions[key] = p.lastDecisionOf(key)
			chosen, d := f.chooseClusters(pl, now)
			one.NoFit, one.UnmetSpread = d.NoFit, d.UnmetSpread
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

// forkForPreview makes a Publisher that decides as p does, and writes nothing.
func (p *DecisionPublisher) forkForPreview() *DecisionPublisher {
	return &DecisionPublisher{Config: p.Config, filters: map[types.NamespacedName]compiledFilter{}, lastDecisions: map[types.NamespacedName]lastDecision{}}
}

// ExplainPlacement returns what a Placement chooses, with a reason for every cluster, and what
// is published, sorted. It returns false when there is no such Placement.
func (p *DecisionPublisher) ExplainPlacement(key types.NamespacedName) (pl state.Placement, d schedule.Decision, published []string, ok bool) {
	if pl, ok = p.Placements.Get(key); !ok {
		return pl, d, nil, false
	}
	f := p.forkForPreview()
	f.explainAll, f.lastDecisions[key] = true, p.lastDecisionOf(key)
	now := slices.DeleteFunc(p.Decisions.OfPlacement(key), func(d state.Decision) bool { return !hasNoOtherController(d, pl) })
	for _, d := range now {
		published = append(published, clusterNames(d.Status.Decisions)...)
	}
	slices.Sort(published)
	_, d = f.chooseClusters(pl, now)
	return pl, d, published, true
}

func clusterNames(list []v1alpha1.ClusterDecision) (out []string) {
	for i := range list {
		out = append(out, list[i].ClusterName)
	}
	return out
}
