package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The status of a Bundle that was just exempted is of before. An exemption from an earlier freeze is none from this one.
func TestAnExemptionIsAnAnswer(t *testing.T) {
	began := metav1.NewTime(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		at   *metav1.Time
		want bool
	}{
		"none":   {nil, false},
		"before": {&metav1.Time{Time: began.Add(-time.Hour)}, false},
		"after":  {&metav1.Time{Time: began.Add(time.Minute)}, true},
	} {
		b := &v1alpha1.Bundle{}
		b.Status.Rollout = &v1alpha1.RolloutStatus{Reason: string(atoll.ReasonChangesFrozen), Since: &began}
		if c.at != nil {
			b.Spec.FreezeExemption = &v1alpha1.FreezeExemption{At: *c.at}
		}
		if got := hasPersonActed(b, atoll.ReasonChangesFrozen, began.Add(time.Hour)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
