package bind

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// ReasonCannotSend of conditions and Events.
const ReasonCannotSend = "CannotSend"

// Events is told what people should know of a template. It must not block.
type Events interface {
	Refused(key atoll.ItemKey, reason, message string)
}

// tell in the Bundle, if there is one yet, what of it cannot be sent, or that it has lost
// its Placement, or that all is well.
func (b *Binder) tell(ctx context.Context, bundle state.Bundle, from origin, unplaced string, problems []claim.Problem) error {
	switch {
	case len(problems) > 0:
	case unplaced != "":
		return b.Say(ctx, bundle, frozen(unplaced))
	default:
		return b.resume(ctx, bundle, from)
	}
	why := openly(problems[0]) + "; members keep what they have of it"
	if n := len(problems) - 1; n > 0 {
		why += fmt.Sprintf(" (and %d objects more cannot be sent)", n)
	}
	return b.Say(ctx, bundle, metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: ReasonCannotSend, Message: why})
}

// openly says the problem to those who may see the Bundle or its policy, and may not
// always list Secrets.
func openly(p claim.Problem) string {
	if p.Key.IsSecret() {
		return "a Secret cannot be sent as it is: an Event on it says why"
	}
	return p.Err.Error()
}
