package schedule

import (
	"atoll.dev/atoll/api/v1alpha1"
)

// Bounds of a cluster's share of each divided workload.
type Bounds struct {
	// Min of replicas, where there are enough.
	Min int64
	// Max of replicas; 0: there is none.
	Max int64
}

func (b Bounds) most() int64 {
	if b.Max == 0 {
		return Unbounded
	}
	return b.Max
}

// weigher gives what a placement states of a cluster's part in divisions: its static
// weight, which is the sum of the entries that match it, or 1 for all where weights
// are not stated, and the tightest bounds among them.
func weigher(r v1alpha1.ReplicaScheduling) func(*Cluster) (int64, Bounds) {
	p := r.WeightPreference
	if p == nil {
		return func(*Cluster) (int64, Bounds) { return 1, Bounds{} }
	}
	type entry struct {
		v1alpha1.StaticClusterWeight
		filter *Filter
	}
	entries := make([]entry, 0, len(p.StaticWeightList))
	for _, e := range p.StaticWeightList {
		entries = append(entries, entry{e, Compile(v1alpha1.PlacementSpec{ClusterAffinity: &e.TargetCluster})})
	}
	weighted := methodOf(r) == ByWeight
	return func(c *Cluster) (weight int64, b Bounds) {
		for i := range entries {
			e := &entries[i]
			if !e.filter.matches(&c.ClusterView) {
				continue
			}
			if e.Weight > 0 {
				weight = min(weight+min(e.Weight, MaxWeight), MaxWeight)
			}
			b.Min = max(b.Min, e.MinReplicas)
			if e.MaxReplicas > 0 && (b.Max == 0 || e.MaxReplicas < b.Max) {
				b.Max = e.MaxReplicas
			}
		}
		if !weighted {
			weight = 1
		}
		return weight, b
	}
}
