package atoll

import "atoll.dev/atoll/api/v1alpha1"

// NowherePlacement is the placement of an annotation that is "": no cluster, and on
// purpose. It differs from a placement that happens to fit no cluster, which
// leaves what runs alone. No cluster can have the empty name.
func NowherePlacement() v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{""}}}
}

// IsNowhere reports whether a placement is NowherePlacement.
func IsNowhere(p v1alpha1.PlacementSpec) bool {
	a := p.ClusterAffinity
	return a != nil && len(a.ClusterNames) == 1 && a.ClusterNames[0] == ""
}

// WithPlacementDefaults returns a placement with its defaults. Without a type, replicas are divided where another field
// of replicaScheduling is stated.
func WithPlacementDefaults(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
	if r := &p.ReplicaScheduling; r.ReplicaSchedulingType == "" {
		r.ReplicaSchedulingType = v1alpha1.Divided
		if r.ReplicaDivisionPreference == "" && r.WeightPreference == nil && r.OnShortage == "" && r.Ordinals == nil && r.ReplicaOverrides == "" && r.Overflow == "" {
			r.ReplicaSchedulingType = v1alpha1.Duplicated
		}
	}
	return p
}
