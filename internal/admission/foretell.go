package admission

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Foretell returns, in lines for people, what would come of an object's being written, or deleted:
// of what the user may read, and no later than ctx ends.
type Foretell func(ctx context.Context, u user.Info, o *unstructured.Unstructured, deleted bool) []string

// The warnings of a dry run: their number, their bytes, and their longest time.
const (
	warningsSaid     = 12
	warningSize      = 240
	foretellPatience = 2 * time.Second
)

// foretold are the kinds whose dry run shows what would change: all that decide.
var foretold = []string{
	"PropagationPolicy", "ClusterPropagationPolicy", "OverridePolicy", "ClusterOverridePolicy", "Placement", "ClusterPlacement",
	"RolloutStrategy", "ClusterRolloutStrategy",
	"Cluster", "ClusterSet", "ClusterSetBinding", "ClusterScore", "HubSettings",
	"ResourceInterpreter", karmada.CustomizationKind,
}

// isPlanDryRun reports whether a dry run is of `atoll plan`, which requests the plan of all objects
// together.
func isPlanDryRun(a admission.Attributes) bool {
	switch o := a.GetOperationOptions().(type) {
	case *metav1.CreateOptions:
		return o.FieldManager == atoll.PlanManager
	case *metav1.UpdateOptions:
		return o.FieldManager == atoll.PlanManager
	case *metav1.PatchOptions:
		return o.FieldManager == atoll.PlanManager
	}
	return false
}

// answersDryRunWithPlan reports whether the request is a dry run that is answered with its plan.
func (p *AdmissionPlugin) answersDryRunWithPlan(a admission.Attributes) bool {
	kind := a.GetKind().GroupKind()
	return p.Foretell != nil && a.IsDryRun() && !isPlanDryRun(a) && a.GetSubresource() == "" && atoll.IsHubOwnedKind(kind) && slices.Contains(foretold, kind.Kind)
}

// warnWithDryRunPlan answers the dry run of what decides with warnings of what would change.
func (p *AdmissionPlugin) warnWithDryRunPlan(ctx context.Context, a admission.Attributes) {
	if !p.answersDryRunWithPlan(a) {
		return
	}
	deleted := a.GetOperation() == admission.Delete
	obj := a.GetObject()
	if deleted {
		obj = a.GetOldObject()
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return
	}
	ctx2, cancel := context.WithTimeout(ctx, foretellPatience)
	defer cancel()
	lines := p.Foretell(ctx2, a.GetUserInfo(), u.DeepCopy(), deleted)
	if n := len(lines); n > warningsSaid {
		lines = append(slices.Clone(lines[:warningsSaid-1]), "and more: `atoll plan -f FILE` shows all of it")
	}
	for _, line := range lines {
		if len(line) > warningSize {
			line = line[:warningSize-3] + "..."
		}
		warning.AddWarning(ctx, "", line)
	}
}
