package admission

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policycheck"
)

// Policies are the propagation policies on the hub.
type Policies interface {
	GetPropagationPolicy(namespace, name string) (*v1alpha1.PropagationPolicy, bool)
	GetClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool)
}

// validateDependencies refuses policies that would depend on each other. Policies of the same namespace and cluster policies are
// read: no dependency leads to others. Two writes at one time can still make a circle: their Bundles show it then, and it refuses no other
// edit of the policies.
func (p *AdmissionPlugin) validateDependencies(a admission.Attributes, now, before *v1alpha1.PropagationPolicy) error {
	hub, ready := p.currentHub()
	list := now.Spec.DependsOn
	if len(list) == 0 || !ready || hub.Policies == nil || before != nil && apiequality.Semantic.DeepEqual(before.Spec.DependsOn, list) {
		return nil
	}
	own := v1alpha1.PolicyRef{Kind: a.GetKind().Kind, Namespace: a.GetNamespace(), Name: a.GetName()}
	if errs := policycheck.CheckDependencyCycles(own, list, dependenciesIn(hub.Policies), field.NewPath("spec", "dependsOn")); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	return nil
}

// dependenciesIn returns what policies of a table depend on.
func dependenciesIn(policies Policies) policycheck.DependenciesOf {
	return func(of v1alpha1.PolicyRef) []v1alpha1.PolicyDependency {
		if of.Kind == v1alpha1.SourcePropagationPolicy {
			if p, ok := policies.GetPropagationPolicy(of.Namespace, of.Name); ok {
				return p.Spec.DependsOn
			}
			return nil
		}
		if p, ok := policies.GetClusterPropagationPolicy(of.Name); ok {
			return p.Spec.DependsOn
		}
		return nil
	}
}
