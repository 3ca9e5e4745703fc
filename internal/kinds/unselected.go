package kinds

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// UnselectedStatus returns the status of an object that nothing places, as NowhereStatus does. ok is false where the status is
// already that of the present generation, and where the status has anything else: then a controller on the hub writes it.
func UnselectedStatus(template *unstructured.Unstructured, reason, message string) (status map[string]any, ok bool) {
	old := statusOf(template)
	rest, has := WithoutUnselected(template, reason)
	for _, name := range []string{"observedGeneration", "phase", "qosClass"} {
		delete(rest, name)
	}
	if has && !observedGenerationLags(template) || !EqualStatusesIgnoringEmpty(rest, nil) {
		return nil, false
	}
	if status, ok = NowhereStatus(template, reason, message); !ok || EqualStatusesIgnoringEmpty(old, status) {
		return nil, false
	}
	return status, true
}

// HasUnselected reports whether an object has the condition of UnselectedStatus.
func HasUnselected(template *unstructured.Unstructured, reason string) bool {
	return slices.ContainsFunc(listField(statusOf(template), "conditions"), isUnselectedCondition(template, reason))
}

// WithoutUnselected returns a shallow copy of an object's status without the condition of UnselectedStatus, and whether the
// object has the condition.
func WithoutUnselected(template *unstructured.Unstructured, reason string) (status map[string]any, has bool) {
	status = maps.Clone(statusOf(template))
	if !HasUnselected(template, reason) {
		return status, false
	}
	kept := slices.DeleteFunc(slices.Clone(listField(status, "conditions")), isUnselectedCondition(template, reason))
	if delete(status, "conditions"); len(kept) > 0 {
		status["conditions"] = kept
	}
	return status, true
}

// isUnselectedCondition returns whether a condition is the kind's own, and False for the reason.
func isUnselectedCondition(template *unstructured.Unstructured, reason string) func(any) bool {
	k, ok := nowhereKinds[template.GroupVersionKind().GroupKind()]
	return func(raw any) bool {
		c, _ := raw.(map[string]any)
		return ok && stringField(c, "type") == k.conditionType && stringField(c, "status") == "False" && stringField(c, "reason") == reason
	}
}
