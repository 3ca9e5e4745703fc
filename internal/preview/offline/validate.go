package offline

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/policymatch"
)

// checkPlacementCEL refuses expressions that a hub would refuse, with their place.
func checkPlacementCEL(p *v1alpha1.PlacementSpec, at *field.Path) (errs field.ErrorList) {
	errs = checkCEL(p.CELSelector, at.Child("celSelector"))
	for i := range p.ClusterAffinities {
		errs = append(errs, checkCEL(p.ClusterAffinities[i].CELSelector, at.Child("clusterAffinities").Index(i).Child("celSelector"))...)
	}
	return errs
}

func checkCEL(text string, at *field.Path) field.ErrorList {
	if text == "" {
		return nil
	}
	if _, err := expr.CompileClusterSelector(text); err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	return nil
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
