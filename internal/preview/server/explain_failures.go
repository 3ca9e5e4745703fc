package server

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview/explain"
	"atoll.dev/atoll/internal/state"
)

// scriptFailures returns failures of scripts that the hub runs for an object: those that the
// binder needs of a template, run here again, and the last ones of the bundle status.
func (x *userQuery) scriptFailures(key atoll.ItemKey, bundles []state.Bundle) (out []explain.Failure) {
	t, ok := x.sources.State.Templates.Get(key)
	if !ok || key.Group == v1alpha1.GroupVersion.Group {
		return nil
	}
	if library := x.sources.State.Policies.InterpreterLibrary(); library != nil {
		if _, err := library.Interpreters.InterpretTemplate(t); err != nil {
			f := explain.Failure{Asked: explain.FailureSent, Message: err.Error()}
			for _, b := range bundles {
				bound := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleBound)
				if bound != nil && bound.Status == metav1.ConditionFalse && bound.Reason == string(atoll.ReasonCannotSend) {
					f.Since = &bound.LastTransitionTime.Time
				}
			}
			out = append(out, f)
		}
	}
	for _, b := range bundles {
		if why, since, failed := x.sources.BundleStatus.JoinFailure(b.Ref.UID, string(t.GetUID())); failed {
			out = append(out, explain.Failure{Asked: explain.FailureJoined, Message: why, Since: &since})
		}
	}
	return out
}
