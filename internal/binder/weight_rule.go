package binder

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
)

// nextWeightRule returns the rule for the static weights of a Bundle, from its stored spec and its
// next placement. A stored rule stays until the placement is edited, so that a new version of the
// hub moves no replicas.
func nextWeightRule(old *v1alpha1.BundleSpec, next *v1alpha1.PlacementSpec) v1alpha1.WeightRule {
	p := next.ReplicaScheduling.WeightPreference
	if p == nil || len(p.StaticWeightList) == 0 {
		return ""
	}
	isNew := old.Source.Kind == ""
	if isNew || !apiequality.Semantic.DeepEqual(&old.Placement, next) {
		return v1alpha1.WeightLargest
	}
	return old.WeightRule
}
