package policycheck

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// checkDisruptionBudget returns the fields of a disruption budget that could not be honoured.
func checkDisruptionBudget(b *v1alpha1.DisruptionBudget, at *field.Path) (errs field.ErrorList) {
	switch {
	case b == nil:
		return nil
	case b.MaxUnavailable != nil && b.MinAvailable != nil:
		errs = append(errs, field.Forbidden(at.Child("minAvailable"), "give exactly one of maxUnavailable and minAvailable"))
	case b.MaxUnavailable == nil && b.MinAvailable == nil:
		errs = append(errs, field.Required(at, "give exactly one of maxUnavailable and minAvailable"))
	}
	errs = append(errs, checkBound(b.MaxUnavailable, 0, at.Child("maxUnavailable"))...)
	errs = append(errs, checkBound(b.MinAvailable, 0, at.Child("minAvailable"))...)
	switch b.PodDisruptionBudgets {
	case "", v1alpha1.PodDisruptionBudgetsHonor, v1alpha1.PodDisruptionBudgetsIgnore:
		return errs
	}
	return append(errs, field.NotSupported(at.Child("podDisruptionBudgets"), b.PodDisruptionBudgets, []v1alpha1.PodDisruptionBudgetMode{v1alpha1.PodDisruptionBudgetsHonor, v1alpha1.PodDisruptionBudgetsIgnore}))
}
