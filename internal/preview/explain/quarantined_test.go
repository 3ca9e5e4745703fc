package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A quarantine is why a Bundle waits, before the conditions that follow from it.
func TestAQuarantinedBundleIsExplained(t *testing.T) {
	since := time.Unix(1000, 0)
	b := Bundle{Status: v1alpha1.BundleStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.BundleReady, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonProgressing), LastTransitionTime: metav1.NewTime(time.Unix(1, 0))},
		{Type: v1alpha1.BundleQuarantined, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonQuarantined), Message: "it costs too much", LastTransitionTime: metav1.NewTime(since)},
	}}}
	if reason, at := b.waitStart(); reason != atoll.ReasonQuarantined || at == nil || !at.Equal(since) {
		t.Errorf("%s since %v", reason, at)
	}
	var text strings.Builder
	Explanation{now: since.Add(5 * time.Minute)}.writeWaits(&text, BundleExplanation{Quarantined: b.findQuarantine().Message, WaitsSince: &since})
	if want := "  Quarantined for 5m: it costs too much; to act: the application's owner.\n"; text.String() != want {
		t.Errorf("%q, want %q", text.String(), want)
	}
	b.Status.Conditions = b.Status.Conditions[:1]
	if reason, _ := b.waitStart(); reason != atoll.ReasonProgressing || b.findQuarantine() != nil {
		t.Errorf("%s", reason)
	}
}
