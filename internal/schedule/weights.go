package schedule

import (
	"slices"

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

// clusterWeight is a cluster's static weight and the tightest of its bounds.
type clusterWeight struct {
	weight int64
	bounds ReplicaBounds
}

// addEntry adds an entry that matches the cluster. The order of entries makes no difference.
func (w *clusterWeight) addEntry(e clusterWeight, summed bool) {
	if summed {
		w.weight = min(w.weight+e.weight, MaxWeight)
	} else {
		w.weight = max(w.weight, e.weight)
	}
	w.bounds.Min = max(w.bounds.Min, e.bounds.Min)
	if e.bounds.Max > 0 && (w.bounds.Max == 0 || e.bounds.Max < w.bounds.Max) {
		w.bounds.Max = e.bounds.Max
	}
}

// staticWeights is a compiled list of static weights. Entries that require one label and nothing else
// are looked up by the label's value, so that a hundred of them cost a cluster what one costs.
type staticWeights struct {
	summed  bool
	byLabel []labelWeights
	others  []targetWeight
}

// labelWeights are the weights by the value of one label.
type labelWeights struct {
	label   string
	byValue map[string]clusterWeight
}

type targetWeight struct {
	clusterWeight
	target *ClusterTarget
}

// addEntry adds an entry of the list.
func (s *staticWeights) addEntry(e *v1alpha1.StaticClusterWeight) {
	t := CompileTarget(&v1alpha1.ClusterTarget{ClusterAffinity: e.TargetCluster})
	w := clusterWeight{min(max(e.Weight, 0), MaxWeight), ReplicaBounds{e.MinReplicas, e.MaxReplicas}}
	label, only := t.onlyLabel()
	if !only {
		s.others = append(s.others, targetWeight{w, t})
		return
	}
	at := slices.IndexFunc(s.byLabel, func(l labelWeights) bool { return l.label == label.key })
	if at < 0 {
		at, s.byLabel = len(s.byLabel), append(s.byLabel, labelWeights{label.key, map[string]clusterWeight{}})
	}
	known := s.byLabel[at].byValue[label.value]
	known.addEntry(w, s.summed)
	s.byLabel[at].byValue[label.value] = known
}

// weightOf returns the weight and the bounds of a cluster; zero where no entry matches it.
func (s *staticWeights) weightOf(c *Cluster) (w clusterWeight) {
	for i := range s.byLabel {
		if value, has := c.Labels[s.byLabel[i].label]; has {
			if e, matches := s.byLabel[i].byValue[value]; matches {
				w.addEntry(e, s.summed)
			}
		}
	}
	for i := range s.others {
		if s.others[i].target.MatchesCluster(&c.ClusterView) {
			w.addEntry(s.others[i].clusterWeight, s.summed)
		}
	}
	return w
}

// compileWeights returns a function that gives a cluster's static weight and the tightest of
// its bounds. The weight is the largest of the entries that match the cluster, with summed
// their sum. It is 1 for all clusters where weights are not stated.
func compileWeights(r v1alpha1.ReplicaScheduling, summed bool) func(*Cluster) (int64, ReplicaBounds) {
	p := r.WeightPreference
	if p == nil {
		return func(*Cluster) (int64, ReplicaBounds) { return 1, ReplicaBounds{} }
	}
	s := staticWeights{summed: summed}
	for i := range p.StaticWeightList {
		s.addEntry(&p.StaticWeightList[i])
	}
	weighted := methodOf(r) == ByWeight
	return func(c *Cluster) (int64, ReplicaBounds) {
		w := s.weightOf(c)
		if !weighted {
			w.weight = 1
		}
		return w.weight, w.bounds
	}
}
