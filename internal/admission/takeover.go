package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Overwriting takes over what others made in members. It needs the verb takeover on the policy, and for an
// annotation on the policies of the object's namespace.

// overwritingField returns the field of a policy by which it overwrites; empty without one.
func overwritingField(spec *v1alpha1.PropagationSpec) string {
	if spec.ConflictResolution == v1alpha1.ConflictOverwrite {
		return "spec.conflictResolution"
	}
	for i := range spec.ItemRules {
		if spec.ItemRules[i].ConflictResolution == v1alpha1.ConflictOverwrite {
			return fmt.Sprintf("spec.itemRules[%d].conflictResolution", i)
		}
	}
	return ""
}

// validatePolicyOverwriteRight checks the right of a user that writes a policy, also to widen what it overwrites.
func (p *AdmissionPlugin) validatePolicyOverwriteRight(ctx context.Context, a admission.Attributes, spec *v1alpha1.PropagationSpec) error {
	what := overwritingField(spec)
	if what == "" {
		return nil
	}
	return p.checkTakeoverPermission(ctx, a, what, requiredRead{resource: a.GetResource().GroupResource(), namespace: a.GetNamespace(), name: a.GetName()})
}

// validateConflictAnnotationRight checks the right of a user that annotates an object so that it overwrites.
func (p *AdmissionPlugin) validateConflictAnnotationRight(ctx context.Context, a admission.Attributes) error {
	now, before, err := objectMetas(a)
	if err != nil {
		return nil // not an object that is stored
	}
	const overwrites = string(v1alpha1.ConflictOverwrite)
	if now.GetAnnotations()[atoll.AnnotationConflict] != overwrites || before != nil && before.GetAnnotations()[atoll.AnnotationConflict] == overwrites {
		return nil
	}
	policies := requiredRead{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "propagationpolicies"}, namespace: a.GetNamespace()}
	if policies.namespace == "" {
		policies.resource.Resource = "clusterpropagationpolicies"
	}
	return p.checkTakeoverPermission(ctx, a, "annotation "+atoll.AnnotationConflict, policies)
}

// checkTakeoverPermission refuses a user without the verb takeover on policies. what states that the user overwrites.
func (p *AdmissionPlugin) checkTakeoverPermission(ctx context.Context, a admission.Attributes, what string, policies requiredRead) error {
	if p.isAllowed(ctx, a.GetUserInfo(), "takeover", policies) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%s: Overwrite takes over what others made in members: the verb takeover on %s is needed, which %q lacks", what, policies.resource, a.GetUserInfo().GetName()))
}
