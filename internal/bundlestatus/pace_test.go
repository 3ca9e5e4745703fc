package bundlestatus

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A Bundle's status is written at once when its class changes. How far a rollout is makes no class of
// its own; what waits for a confirmation does, by its plan.
func TestClassesOfProgress(t *testing.T) {
	status := func(reason atoll.Reason, held, revision, waitsFor string) v1alpha1.BundleStatus {
		st := v1alpha1.BundleStatus{Revision: revision, WaitsFor: waitsFor}
		st.Conditions = []metav1.Condition{{Type: v1alpha1.BundleReady, Status: metav1.ConditionFalse, Reason: string(reason)}}
		if held != "" {
			st.Conditions = append(st.Conditions, metav1.Condition{Type: v1alpha1.BundleRemovalHeld, Status: metav1.ConditionTrue, Message: held})
		} else {
			st.Conditions = append(st.Conditions, metav1.Condition{Type: v1alpha1.BundleRemovalHeld, Status: metav1.ConditionFalse, Message: "none"})
		}
		return st
	}
	ready := status(ReasonReady, "", "r1", "")
	for name, c := range map[string]struct {
		a, b v1alpha1.BundleStatus
		same bool
	}{
		"another revision is ready":      {ready, status(ReasonReady, "", "r2", ""), false},
		"the same revision is ready":     {ready, status(ReasonReady, "", "r1", ""), true},
		"ready, and something waits":     {ready, status(ReasonReady, "", "r1", "lima"), false},
		"other clusters are waited for":  {status(ReasonReady, "", "r1", "oslo"), status(ReasonReady, "", "r2", "lima"), true},
		"under way, another revision":    {status(ReasonApplying, "", "r1", ""), status(ReasonApplying, "", "r2", "lima"), true},
		"a plan is held":                 {ready, status(ReasonReady, "plan p1", "r1", ""), false},
		"another plan is held":           {status(ReasonReady, "plan p1", "r1", ""), status(ReasonReady, "plan p2", "r1", ""), false},
		"the plan stays, a row is ready": {status(ReasonApplying, "plan p1", "r1", ""), status(ReasonReady, "plan p1", "r1", ""), true},
		"it begins":                      {v1alpha1.BundleStatus{}, ready, false},
		"it fails":                       {ready, status(ReasonFailed, "", "r1", ""), false},
	} {
		if got := coarseBundleState(c.a, true) == coarseBundleState(c.b, true); got != c.same {
			t.Errorf("%s: the class %q becomes %q", name, coarseBundleState(c.a, true), coarseBundleState(c.b, true))
		}
	}
}
