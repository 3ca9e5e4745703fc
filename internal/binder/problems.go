package binder

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/state"
)

// Events records Events about templates. It must not block.
type Events interface {
	RecordRefusal(key atoll.ItemKey, reason atoll.Reason, message string)
}

// reportProblems sets the Bundle's condition: which templates cannot be sent, which Placement or strategy is
// missing, or that all is well.
func (b *Binder) reportProblems(ctx context.Context, bundle state.Bundle, from bundleOrigin, missing missingReference, problems []bundlecontent.TemplateProblem) error {
	switch {
	case len(problems) > 0:
	case missing.why != "":
		return b.SetBundleCondition(ctx, bundle, missing.unboundCondition())
	default:
		return b.clearUnboundCondition(ctx, bundle, from)
	}
	why := redactSecrets(problems[0]) + "; members keep what they have of it"
	if n := len(problems) - 1; n > 0 {
		why += fmt.Sprintf(" (and %d objects more cannot be sent)", n)
	}
	return b.SetBundleCondition(ctx, bundle, metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonCannotSend), Message: why})
}

// redactSecrets words a problem for readers of the Bundle or its policy, which may lack the
// right to list Secrets.
func redactSecrets(p bundlecontent.TemplateProblem) string {
	if p.Key.IsSecret() {
		return "a Secret cannot be sent as it is: an Event on it has the reason"
	}
	return p.Err.Error()
}
