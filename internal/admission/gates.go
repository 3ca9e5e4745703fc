package admission

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/rollout"
)

// validateGateSecrets refuses Secrets of gates that the writer of a policy or a strategy may not read: the writer chooses the server to which
// the hub sends them. An edit that keeps the rollout keeps its Secrets.
func (p *AdmissionPlugin) validateGateSecrets(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Rollout, at *field.Path) (err error) {
	if before != nil && apiequality.Semantic.DeepEqual(before, now) {
		return nil
	}
	rollout.CheckGateSecrets(now, a.GetNamespace(), at, func(at *field.Path, ref v1alpha1.GateSecretRef) {
		namespace := a.GetNamespace()
		if namespace == "" {
			namespace = ref.Namespace
		}
		if err == nil {
			err = p.requireReadableSecretIn(ctx, a, at.String(), types.NamespacedName{Namespace: namespace, Name: ref.Name})
		}
	})
	return err
}

// validateStrategy is for both kinds of rollout strategies. A writer of one steers the rollouts of the policies that name it, which are of its
// namespace, or of all namespaces for a ClusterRolloutStrategy.
func (p *AdmissionPlugin) validateStrategy(ctx context.Context, a admission.Attributes) error {
	if errs := checkRolloutFitsInt32(a.GetObject(), "spec"); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	now, before, err := typedObjects[v1alpha1.ClusterRolloutStrategy](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	at := field.NewPath("spec")
	errs := append(checkStrategySize(&now.Spec, at), policycheck.CheckRolloutStrategy(&now.Spec, a.GetNamespace(), at)...)
	if len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	var had *v1alpha1.Rollout
	if before != nil {
		had = &before.Spec.Rollout
	}
	return p.validateGateSecrets(ctx, a, &now.Spec.Rollout, had, at)
}
