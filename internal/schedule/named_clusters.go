package schedule

import (
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// NamedClusters lists the clusters that a placement names, in its affinity or in those of
// its groups; sorted, each once. Nil where it names none.
func NamedClusters(p *v1alpha1.PlacementSpec) (out []string) {
	if p.ClusterAffinity != nil {
		out = append(out, p.ClusterAffinity.ClusterNames...)
	}
	for i := range p.ClusterAffinities {
		out = append(out, p.ClusterAffinities[i].ClusterNames...)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(name string) bool { return name == "" }) // which is nowhere, on purpose
}

// SumsWeights reports whether the weights of several entries add up for a chosen cluster, by the
// rule of PlacementTerms.SummedWeights. By the present rule its weight would be less.
func (d Decision) SumsWeights() bool { return d.hasSummedWeight }

// KeepsReplicasWithoutWeights reports whether replicas are divided by static weights, no chosen cluster has one,
// and each keeps the replicas that it has. This is the rule of PlacementTerms.SummedWeights.
func (d Decision) KeepsReplicasWithoutWeights() bool { return d.summedWeights && d.lacksWeights() }

// FallsBackToEvenDivision reports whether replicas are divided evenly since no chosen cluster has one of the
// static weights.
func (d Decision) FallsBackToEvenDivision() bool { return !d.summedWeights && d.lacksWeights() }

// lacksWeights reports whether static weights are stated and no chosen cluster has one.
func (d Decision) lacksWeights() bool {
	if len(d.workloads) == 0 || !hasStaticWeights(d.scheduling) {
		return false
	}
	placed := false
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Outcome == OutcomePlaced {
			if v.Weight > 0 {
				return false
			}
			placed = true
		}
	}
	return placed
}
