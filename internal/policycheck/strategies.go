package policycheck

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
)

// CheckRolloutStrategy returns the fields of a strategy's spec that could not be honoured. The namespace is empty for a
// ClusterRolloutStrategy.
func CheckRolloutStrategy(spec *v1alpha1.ClusterRolloutStrategySpec, namespace string, at *field.Path) field.ErrorList {
	errs := checkStatedRollout(&spec.Rollout, namespace, at)
	if spec.EnforcedFor == nil {
		return errs
	}
	// An empty selector selects all namespaces on purpose.
	if s := &spec.EnforcedFor.NamespaceSelector; len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		errs = append(errs, CheckLabelSelector(s, at.Child("enforcedFor", "namespaceSelector"))...)
	}
	return errs
}

// checkStatedRollout returns the fields of a rollout that could not be honoured, for an object of the namespace; it is empty for an object
// without one.
func checkStatedRollout(r *v1alpha1.Rollout, namespace string, at *field.Path) field.ErrorList {
	return append(checkRollout(r, at), rollout.CheckGateSecrets(r, namespace, at, func(*field.Path, v1alpha1.GateSecretRef) {})...)
}

// checkRolloutRef refuses a reference to a strategy that no policy of the namespace can use, or that stands next to a rollout. The namespace is empty for a
// cluster policy.
func checkRolloutRef(spec *v1alpha1.PropagationSpec, namespace string, at *field.Path) (errs field.ErrorList) {
	ref := spec.RolloutRef
	if ref == nil {
		return nil
	}
	if spec.Rollout != nil {
		errs = append(errs, field.Forbidden(at, "rollout and rolloutRef exclude each other: give one of them"))
	}
	switch {
	case ref.Kind != "" && ref.Kind != v1alpha1.KindRolloutStrategy && ref.Kind != v1alpha1.KindClusterRolloutStrategy:
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, []string{v1alpha1.KindRolloutStrategy, v1alpha1.KindClusterRolloutStrategy}))
	case ref.Kind == v1alpha1.KindRolloutStrategy && namespace == "":
		errs = append(errs, field.Forbidden(at.Child("kind"), "a policy without a namespace uses a ClusterRolloutStrategy"))
	}
	for _, msg := range validation.IsDNS1123Subdomain(ref.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), ref.Name, msg))
	}
	return errs
}
