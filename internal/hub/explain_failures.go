package hub

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/explain"
	"atoll.dev/atoll/internal/state"
)

// failures of scripts that the hub asks about an object: what bind asks of a template, asked
// here again, and what summarise was told last.
func (x *explainer) failures(key atoll.ItemKey, bundles []state.Bundle) (out []explain.Failure) {
	t, ok := x.parts.state.Templates.Get(key)
	if !ok || key.Group == v1alpha1.GroupVersion.Group {
		return nil
	}
	if library := x.parts.state.Policies.Interpreters(); library != nil {
		if _, err := library.Interpreters.Interpret(t); err != nil {
			f := explain.Failure{Asked: explain.FailureSent, Message: err.Error()}
			for _, b := range bundles {
				bound := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleBound)
				if bound != nil && bound.Status == metav1.ConditionFalse && bound.Reason == bind.ReasonCannotSend {
					f.Since = &bound.LastTransitionTime.Time
				}
			}
			out = append(out, f)
		}
	}
	for _, b := range bundles {
		if why, since, failed := x.parts.summarise.Unjoined(b.Ref.UID, string(t.GetUID())); failed {
			out = append(out, explain.Failure{Asked: explain.FailureJoined, Message: why, Since: &since})
		}
	}
	return out
}
