package offline

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/overrides"
)

// checkPlacement refuses expressions that a hub would refuse, with their place.
func checkPlacement(p *v1alpha1.PlacementSpec, at *field.Path) (errs field.ErrorList) {
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
	if _, err := expr.CompileSelector(text); err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	return nil
}

// checkOverrides refuses patches and expressions that a hub would refuse, with their path.
func checkOverrides(rules []v1alpha1.RuleWithCluster) (errs field.ErrorList) {
	at := field.NewPath("spec", "overrideRules")
	for i := range rules {
		in := at.Index(i).Child("overriders")
		for _, problem := range overrides.CheckOverriders(rules[i].Overriders) {
			errs = append(errs, field.Invalid(in.Child(problem.Path), field.OmitValueType{}, problem.Reason))
		}
	}
	if cost, over := overrides.SumExpressionCost(rules); over {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("their expressions may cost %d units together, and at most %d are allowed in a cluster", cost, overrides.MaxRowCost)))
	}
	return errs
}
