package kinds

import (
	"maps"

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

// WithoutUnselected returns a shallow copy of an object's status without the condition of UnselectedStatus, and whether the
// object has the condition.
func WithoutUnselected(template *unstructured.Unstructured, reason string) (status map[string]any, has bool) {
	status = maps.Clone(statusOf(template))
	k, ok := nowhereKinds[template.GroupVersionKind().GroupKind()]
	if !ok {
		return status, false
	}
	var kept []any
	for _, raw := range listField(status, "conditions") {
		c, _ := raw.(map[string]any)
		if stringField(c, "type") == k.conditionType && stringField(c, "status") == "False" && stringField(c, "reason") == reason {
			has = true
			continue
		}
		kept = append(kept, raw)
	}
	if !has {
		return status, false
	}
	if delete(status, "conditions"); kept != nil {
		status["conditions"] = kept
	}
	return status, true
}
