package offline

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/policymatch"
)

// checkPolicies refuses what a hub would refuse of policies and placements. All objects are read: one of them lists the properties
// that steer placement.
func (w *World) checkPolicies() error {
	refused, at := w.refuseUnlistedProperties(), field.NewPath("spec")
	dependencies := w.dependenciesOfPolicies()
	checkPropagation := func(spec *v1alpha1.PropagationSpec, own v1alpha1.PolicyRef) field.ErrorList {
		errs := policycheck.CheckPropagation(spec, own.Namespace, refused, at)
		errs = append(errs, policycheck.CheckDependencyCycles(own, spec.DependsOn, dependencies, at.Child("dependsOn"))...)
		return append(errs, assess.CheckItemRules(spec.ItemRules, at.Child("itemRules"))...)
	}
	var errs []error
	for _, p := range w.clusterPropagation {
		errs = append(errs, refuseObject(p.Kind, p, checkPropagation(&p.Spec, clusterPolicyRef(p))))
	}
	for _, p := range w.propagation {
		errs = append(errs, refuseObject(p.Kind, p, checkPropagation(&p.Spec, policyRef(p))))
	}
	for _, p := range w.clusterPlacements {
		errs = append(errs, refuseObject(p.Kind, p, policycheck.CheckPlacement(&p.Spec, refused, at)))
	}
	for _, p := range w.placements {
		errs = append(errs, refuseObject(p.Kind, p, policycheck.CheckPlacement(&p.Spec, refused, at)))
	}
	for _, s := range w.clusterStrategies {
		errs = append(errs, refuseObject(s.Kind, s, policycheck.CheckRolloutStrategy(&s.Spec, "", at)))
	}
	for _, s := range w.strategies {
		errs = append(errs, refuseObject(s.Kind, s, policycheck.CheckRolloutStrategy(&v1alpha1.ClusterRolloutStrategySpec{Rollout: s.Spec}, s.Namespace, at)))
	}
	return cmp.Or(errs...)
}

func clusterPolicyRef(p *v1alpha1.ClusterPropagationPolicy) v1alpha1.PolicyRef {
	return v1alpha1.PolicyRef{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: p.Name}
}

func policyRef(p *v1alpha1.PropagationPolicy) v1alpha1.PolicyRef {
	return v1alpha1.PolicyRef{Kind: v1alpha1.SourcePropagationPolicy, Namespace: p.Namespace, Name: p.Name}
}

// dependenciesOfPolicies returns what the policies of the files depend on.
func (w *World) dependenciesOfPolicies() policycheck.DependenciesOf {
	byPolicy := map[v1alpha1.PolicyRef][]v1alpha1.PolicyDependency{}
	for _, p := range w.clusterPropagation {
		byPolicy[clusterPolicyRef(p)] = p.Spec.DependsOn
	}
	for _, p := range w.propagation {
		byPolicy[policyRef(p)] = p.Spec.DependsOn
	}
	return func(policy v1alpha1.PolicyRef) []v1alpha1.PolicyDependency { return byPolicy[policy] }
}

// refuseUnlistedProperties refuses no property when the files have no settings of the hub.
func (w *World) refuseUnlistedProperties() policycheck.PropertyRefusal {
	if w.settings == nil {
		return func(string) string { return "" }
	}
	return policycheck.RefuseUnlisted(w.settings.Spec.PlacementProperties)
}

// checkOverrides refuses patches, fields and expressions that a hub would refuse, with their path.
func (w *World) checkOverrides(spec *v1alpha1.OverrideSpec) (errs field.ErrorList) {
	at := field.NewPath("spec", "overrideRules")
	var selected []schema.GroupKind
	for _, rs := range spec.ResourceSelectors {
		if gk := policymatch.SelectorKind(rs); !slices.Contains(selected, gk) {
			selected = append(selected, gk)
		}
	}
	definitionOf := func(gk schema.GroupKind) *unstructured.Unstructured { return w.customKinds[gk] }
	for i := range spec.OverrideRules {
		rule := &spec.OverrideRules[i]
		errs = append(errs, policycheck.CheckTarget(rule.TargetCluster, at.Index(i).Child("targetCluster"))...)
		problems := overrides.CheckOverriders(rule.Overriders)
		if len(problems) == 0 {
			problems = overrides.UnknownFields(rule, selected, definitionOf)
		}
		for _, problem := range problems {
			errs = append(errs, field.Invalid(at.Index(i).Child("overriders").Child(problem.Path), field.OmitValueType{}, problem.Reason))
		}
	}
	if cost, over := overrides.SumExpressionCost(spec.OverrideRules); over {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("their expressions may cost %d units together, and at most %d are allowed in a cluster", cost, overrides.MaxRowCost)))
	}
	return errs
}
