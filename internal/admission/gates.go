package admission

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
)

// validateGateSecrets refuses Secrets of gates that the writer of a policy may not read: the writer chooses the server to which
// the hub sends them. An edit that keeps the rollout keeps its Secrets.
func (p *AdmissionPlugin) validateGateSecrets(ctx context.Context, a admission.Attributes, now, before *v1alpha1.PropagationPolicy) (err error) {
	if before != nil && apiequality.Semantic.DeepEqual(before.Spec.Rollout, now.Spec.Rollout) {
		return nil
	}
	rollout.CheckGateSecrets(now.Spec.Rollout, a.GetNamespace(), field.NewPath("spec", "rollout"), func(at *field.Path, ref v1alpha1.GateSecretRef) {
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
