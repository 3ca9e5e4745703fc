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

// Foretell says, in lines for people, what would come of an object's being written, or
// deleted: of what the user may read, and no later than ctx ends.
type Foretell func(ctx context.Context, u user.Info, o *unstructured.Unstructured, deleted bool) []string

// What a dry run says besides: so many warnings of so many bytes, after so long at most.
const (
	warningsSaid     = 12
	warningSize      = 240
	foretellPatience = 2 * time.Second
)

// foretold are the kinds of which a dry run says what would change: all that decide.
var foretold = []string{
	"PropagationPolicy", "ClusterPropagationPolicy", "OverridePolicy", "ClusterOverridePolicy", "Placement", "ClusterPlacement",
	"Cluster", "ClusterSet", "ClusterSetBinding", "ClusterScore", "HubSettings",
	"ResourceInterpreter", karmada.CustomizationKind,
}

// planned tells of the dry runs of `atoll plan`, which asks for the plan of all objects
// together.
func planned(a admission.Attributes) bool {
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

// foretell answers the dry run of what decides with warnings that say what would change.
func (p *Plugin) foretell(ctx context.Context, a admission.Attributes) {
	if p.Foretell == nil || !a.IsDryRun() || planned(a) || a.GetSubresource() != "" || !atoll.OwnKind(a.GetKind().GroupKind()) || !slices.Contains(foretold, a.GetKind().Kind) {
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
		lines = append(slices.Clone(lines[:warningsSaid-1]), "and more: `atoll plan -f FILE --state live` says all of it")
	}
	for _, line := range lines {
		if len(line) > warningSize {
			line = line[:warningSize-3] + "..."
		}
		warning.AddWarning(ctx, "", line)
	}
}
