package policycheck

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/rollout"
)

// CheckPropagation returns the fields of a propagation policy's spec that could not be honoured, but for its resource selectors and
// for rules whose meaning an earlier version accepted. The namespace is empty for a cluster policy.
func CheckPropagation(spec *v1alpha1.PropagationSpec, namespace string, refused PropertyRefusal, at *field.Path) field.ErrorList {
	errs := CheckPlacement(&spec.Placement, refused, at.Child("placement"))
	if ref := spec.PlacementRef; ref != nil {
		for _, msg := range validation.IsDNS1123Subdomain(ref.Name) {
			errs = append(errs, field.Invalid(at.Child("placementRef", "name"), ref.Name, msg))
		}
	}
	if spec.GroupBy.LabelKey != "" {
		for _, msg := range validation.IsQualifiedName(spec.GroupBy.LabelKey) {
			errs = append(errs, field.Invalid(at.Child("groupBy", "labelKey"), spec.GroupBy.LabelKey, msg))
		}
	}
	errs = append(errs, checkRollout(spec.Rollout, at.Child("rollout"))...)
	errs = append(errs, rollout.CheckGateSecrets(spec.Rollout, namespace, at.Child("rollout"), func(*field.Path, v1alpha1.GateSecretRef) {})...)
	errs = append(errs, checkSuspension(spec.Suspension, at.Child("suspension"))...)
	errs = append(errs, checkDependencies(spec.DependsOn, namespace, at.Child("dependsOn"))...)
	errs = append(errs, checkDependentOverrides(spec.DependentOverrides, at.Child("dependentOverrides"))...)
	errs = append(errs, policymatch.CheckIgnoredFieldsOfRules(spec.ItemRules, at.Child("itemRules"))...)
	return append(errs, checkRemovalBudget(spec.Removal.Budget, at.Child("removal", "budget"))...)
}
