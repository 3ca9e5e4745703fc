package schedule

import (
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// NamedClusters that a placement may choose, in its affinity or in those of its groups;
// sorted, each once. Nil where it names none.
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

// Unweighed tells whether replicas are divided by static weights of which no chosen cluster
// has any: then each keeps the replicas that it has.
func (d Decision) Unweighed() bool {
	p := d.scheduling.WeightPreference
	if len(d.workloads) == 0 || p == nil || methodOf(d.scheduling) != ByWeight {
		return false
	}
	placed := false
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Outcome == Placed {
			if v.Weight > 0 {
				return false
			}
			placed = true
		}
	}
	return placed
}
