package migrate

import (
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// preferenceWeight is the weight of the score by which the new cluster is chosen before others.
const preferenceWeight = 100

// moveInPlacement returns the placement with one cluster in the place of another. The name of the old cluster
// is replaced where the placement has it. Elsewhere the old cluster is excluded. A placement that chooses some of its clusters prefers the
// new one. The exclusion and the preference of an earlier move back go. It changes no argument.
func moveInPlacement(p v1alpha1.PlacementSpec, from, to string) v1alpha1.PlacementSpec {
	out := *p.DeepCopy()
	for i := range out.ClusterAffinities {
		moveInAffinity(&out.ClusterAffinities[i].ClusterAffinity, from, to)
	}
	if len(out.ClusterAffinities) == 0 {
		if out.ClusterAffinity == nil {
			out.ClusterAffinity = &v1alpha1.ClusterAffinity{}
		}
		moveInAffinity(out.ClusterAffinity, from, to)
	}
	if w := out.ReplicaScheduling.WeightPreference; w != nil {
		for i := range w.StaticWeightList {
			replaceName(w.StaticWeightList[i].TargetCluster.ClusterNames, from, to)
		}
	}
	out.Scores = slices.DeleteFunc(out.Scores, func(s v1alpha1.Score) bool { return isPreferenceOf(s, from) || isPreferenceOf(s, to) })
	if out.MaxClusters > 0 || len(out.SpreadConstraints) > 0 {
		if len(out.Scores) == 0 {
			out.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreBalance}} // what holds without scores
		}
		out.Scores = append(out.Scores, preferenceOf(to))
	}
	return out
}

// moveInAffinity replaces the name of a cluster, or excludes the cluster where the affinity names none.
func moveInAffinity(a *v1alpha1.ClusterAffinity, from, to string) {
	a.ExcludeClusters = slices.DeleteFunc(a.ExcludeClusters, func(name string) bool { return name == to })
	switch {
	case len(a.ClusterNames) == 0:
		if !slices.Contains(a.ExcludeClusters, from) {
			a.ExcludeClusters = append(a.ExcludeClusters, from)
		}
	case slices.Contains(a.ClusterNames, to):
		a.ClusterNames = slices.DeleteFunc(a.ClusterNames, func(name string) bool { return name == from })
	default:
		replaceName(a.ClusterNames, from, to)
	}
}

// replaceName replaces a name in place, where the new one is not there yet.
func replaceName(names []string, from, to string) {
	if i := slices.Index(names, from); i >= 0 && !slices.Contains(names, to) {
		names[i] = to
	}
}

// preferenceOf returns the score by which a cluster is chosen before others.
func preferenceOf(cluster string) v1alpha1.Score {
	return v1alpha1.Score{Name: v1alpha1.ScoreClusterAffinity, Weight: preferenceWeight, ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{cluster}}}
}

// isPreferenceOf reports whether the score is one that an earlier move added.
func isPreferenceOf(s v1alpha1.Score, cluster string) bool {
	a := s.ClusterAffinity
	return s.Name == v1alpha1.ScoreClusterAffinity && s.Weight == preferenceWeight && a != nil && a.LabelSelector == nil && a.FieldSelector == nil &&
		len(a.ExcludeClusters) == 0 && slices.Equal(a.ClusterNames, []string{cluster})
}
