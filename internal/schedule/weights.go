package schedule

import (
	"atoll.dev/atoll/api/v1alpha1"
)

// ReplicaBounds of a cluster's share of each divided workload.
type ReplicaBounds struct {
	// Min replicas, where there are enough.
	Min int64
	// Max replicas; 0: no bound.
	Max int64
}

func (b ReplicaBounds) maxReplicas() int64 {
	if b.Max == 0 {
		return Unbounded
	}
	return b.Max
}

// hasStaticWeights reports whether replicas are divided by a list of static weights.
func hasStaticWeights(r v1alpha1.ReplicaScheduling) bool {
	p := r.WeightPreference
	return p != nil && len(p.StaticWeightList) > 0 && methodOf(r) == ByWeight
}

// weightTargets returns which clusters the entries of a static weight list target; nil where
// there are no static weights.
func weightTargets(r v1alpha1.ReplicaScheduling) (out []v1alpha1.ClusterAffinity) {
	if !hasStaticWeights(r) {
		return nil
	}
	for _, e := range r.WeightPreference.StaticWeightList {
		out = append(out, e.TargetCluster)
	}
	return out
}

// compileWeights returns a function that gives a cluster's static weight and the tightest of
// its bounds. The weight is the largest of the entries that match the cluster, with summed
// their sum. It is 1 for all clusters where weights are not stated.
func compileWeights(r v1alpha1.ReplicaScheduling, summed bool) func(*Cluster) (int64, ReplicaBounds) {
	p := r.WeightPreference
	if p == nil {
		return func(*Cluster) (int64, ReplicaBounds) { return 1, ReplicaBounds{} }
	}
	type entry struct {
		v1alpha1.StaticClusterWeight
		target *ClusterTarget
	}
	entries := make([]entry, 0, len(p.StaticWeightList))
	for _, e := range p.StaticWeightList {
		entries = append(entries, entry{e, CompileTarget(&v1alpha1.ClusterTarget{ClusterAffinity: e.TargetCluster})})
	}
	weighted := methodOf(r) == ByWeight
	return func(c *Cluster) (weight int64, b ReplicaBounds) {
		for i := range entries {
			e := &entries[i]
			if !e.target.MatchesCluster(&c.ClusterView) {
				continue
			}
			if one := min(max(e.Weight, 0), MaxWeight); summed {
				weight = min(weight+one, MaxWeight)
			} else {
				weight = max(weight, one)
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
