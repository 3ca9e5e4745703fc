package atoll

import "atoll.dev/atoll/api/v1alpha1"

// Nowhere is the placement of an annotation that is "": no cluster, and on
// purpose. It differs from a placement that happens to fit no cluster, which
// leaves what runs alone. No cluster can have the empty name.
func Nowhere() v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{""}}}
}

// IsNowhere tells whether a placement is Nowhere.
func IsNowhere(p v1alpha1.PlacementSpec) bool {
	a := p.ClusterAffinity
	return a != nil && len(a.ClusterNames) == 1 && a.ClusterNames[0] == ""
}

// Placement of a policy as the API's schema would have completed it: a policy without one
// has none to be completed.
func Placement(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
	if p.ReplicaScheduling.ReplicaSchedulingType == "" {
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Duplicated
	}
	return p
}
