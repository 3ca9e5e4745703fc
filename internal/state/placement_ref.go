package state

import (
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
)

// PolicyLister lists the policies of a namespace, and the cluster-scoped ones.
type PolicyLister interface {
	PropagationPolicies(ns string) []*v1alpha1.PropagationPolicy
	ClusterPropagationPolicies() []*v1alpha1.ClusterPropagationPolicy
}

// ReferencedPlacement returns the Placement to which a policy refers: in the policy's namespace,
// or cluster-scoped for a cluster policy and for the hub's default placement.
func ReferencedPlacement(kind, namespace string, spec *v1alpha1.PropagationSpec) (key types.NamespacedName, refers bool) {
	if spec.PlacementRef == nil {
		return key, false
	}
	if kind != v1alpha1.SourcePropagationPolicy {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: spec.PlacementRef.Name}, true
}

// PoliciesOfPlacement lists the policies that refer to a Placement. For a ClusterPlacement, of an empty
// namespace, they are cluster-scoped. It reads all policies in scope, because only people edit Placements.
func PoliciesOfPlacement(policies PolicyLister, placement types.NamespacedName) (kind string, out []types.NamespacedName) {
	kind = v1alpha1.SourcePropagationPolicy
	add := func(namespace, name string, spec *v1alpha1.PropagationSpec) {
		if key, refers := ReferencedPlacement(kind, namespace, spec); refers && key == placement {
			out = append(out, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	if placement.Namespace != "" {
		for _, p := range policies.PropagationPolicies(placement.Namespace) {
			add(p.Namespace, p.Name, &p.Spec)
		}
		return kind, out
	}
	kind = v1alpha1.SourceClusterPropagationPolicy
	for _, p := range policies.ClusterPropagationPolicies() {
		add("", p.Name, &p.Spec)
	}
	return kind, out
}
