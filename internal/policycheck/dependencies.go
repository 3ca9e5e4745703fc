package policycheck

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// checkDependencies returns the dependencies of a policy that could not be honoured, but for circles. The namespace is empty for a cluster policy.
func checkDependencies(list []v1alpha1.PolicyDependency, namespace string, at *field.Path) (errs field.ErrorList) {
	if len(list) > v1alpha1.MaxDependencies {
		errs = append(errs, field.TooMany(at, len(list), v1alpha1.MaxDependencies))
	}
	own := v1alpha1.PolicyRef{Kind: v1alpha1.SourcePropagationPolicy, Namespace: namespace}
	if namespace == "" {
		own.Kind = v1alpha1.SourceClusterPropagationPolicy
	}
	seen := map[v1alpha1.PolicyRef]bool{}
	for i := range list {
		d, in := &list[i], at.Index(i)
		for _, msg := range validation.IsDNS1123Subdomain(d.Name) {
			errs = append(errs, field.Invalid(in.Child("name"), d.Name, msg))
		}
		ref := d.RefFrom(own)
		switch {
		case namespace == "" && ref.Kind == v1alpha1.SourcePropagationPolicy:
			errs = append(errs, field.Forbidden(in.Child("kind"), "a ClusterPropagationPolicy depends on ClusterPropagationPolicies alone"))
		case ref.Kind != v1alpha1.SourcePropagationPolicy && ref.Kind != v1alpha1.SourceClusterPropagationPolicy:
			errs = append(errs, field.NotSupported(in.Child("kind"), d.Kind, []string{v1alpha1.SourcePropagationPolicy, v1alpha1.SourceClusterPropagationPolicy}))
		case seen[ref]:
			errs = append(errs, field.Duplicate(in, ref.String()))
		}
		seen[ref] = true
		errs = append(errs, checkDependencyChoices(d, in)...)
	}
	return errs
}

// checkDependencyChoices checks what the schema checks, too, for plans without a hub.
func checkDependencyChoices(d *v1alpha1.PolicyDependency, at *field.Path) (errs field.ErrorList) {
	if scopes := []v1alpha1.DependencyScope{v1alpha1.DependencyCluster, v1alpha1.DependencyAll}; d.Scope != "" && !slices.Contains(scopes, d.Scope) {
		errs = append(errs, field.NotSupported(at.Child("scope"), d.Scope, scopes))
	}
	states := []v1alpha1.DependencyState{v1alpha1.DependencyReady, v1alpha1.DependencyApplied}
	for i, s := range d.AcceptedStates {
		if !slices.Contains(states, s) {
			errs = append(errs, field.NotSupported(at.Child("acceptedStates").Index(i), s, states))
		}
	}
	return errs
}

// checkDependentOverrides refuses malformed names of override policies, and a name that stands twice.
func checkDependentOverrides(names []string, at *field.Path) (errs field.ErrorList) {
	if len(names) > v1alpha1.MaxDependentOverrides {
		errs = append(errs, field.TooMany(at, len(names), v1alpha1.MaxDependentOverrides))
	}
	for i, name := range names {
		for _, msg := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(at.Index(i), name, msg))
		}
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at.Index(i), name))
		}
	}
	return errs
}

// DependenciesOf returns what a policy depends on; nil: nothing, or there is no such policy.
type DependenciesOf func(policy v1alpha1.PolicyRef) []v1alpha1.PolicyDependency

// CheckDependencyCycles returns the first dependency of a policy that leads back to it, over one or more steps. Each policy is looked at once.
func CheckDependencyCycles(own v1alpha1.PolicyRef, list []v1alpha1.PolicyDependency, others DependenciesOf, at *field.Path) field.ErrorList {
	looked := map[v1alpha1.PolicyRef]bool{}
	for i := range list {
		path := rollout.FindDependencyPath(own, own, func(of v1alpha1.PolicyRef) []v1alpha1.PolicyDependency {
			switch {
			case of == own:
				return list[i : i+1]
			case looked[of]:
				return nil
			}
			looked[of] = true
			return others(of)
		})
		if path == nil {
			continue
		}
		names := []string{own.String()}
		for _, p := range path {
			names = append(names, p.String())
		}
		return field.ErrorList{field.Forbidden(at.Index(i), "the policies would depend on each other: "+phrase.JoinFirstBy(" on ", names, maxCycleNames))}
	}
	return nil
}

// maxCycleNames is how many policies of a circle a refusal names.
const maxCycleNames = 8
