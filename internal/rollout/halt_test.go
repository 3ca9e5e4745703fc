package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A freeze comes before a pause. One that has ended, and one that began before an exemption of the Bundle, stop nothing. The clocks of two
// hubs may be ten minutes apart.
func TestHalts(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	freeze := func(since, until time.Duration) *v1alpha1.ChangeFreeze {
		out := &v1alpha1.ChangeFreeze{Reason: "outage\n", By: "bob", Since: at(since)}
		if until != 0 {
			end := at(until)
			out.Until = &end
		}
		return out
	}
	exempt := func(d time.Duration) *v1alpha1.FreezeExemption { return &v1alpha1.FreezeExemption{At: at(d)} }
	for name, c := range map[string]struct {
		freeze    *v1alpha1.ChangeFreeze
		pause     *v1alpha1.RolloutPause
		exemption *v1alpha1.FreezeExemption
		reason    atoll.Reason
		describes string
		ends      time.Duration
	}{
		"none":                       {},
		"a pause":                    {pause: &v1alpha1.RolloutPause{By: "alice", Message: "lunch"}, reason: atoll.ReasonRolloutPaused, describes: "`atoll rollout resume`: alice paused it (lunch)"},
		"a freeze":                   {freeze: freeze(-time.Hour, 0), reason: atoll.ReasonChangesFrozen, describes: `bob froze all changes at 1970-01-12T12:46:40Z (outage\x0a)`},
		"with an end":                {freeze: freeze(-time.Hour, time.Hour), reason: atoll.ReasonChangesFrozen, ends: time.Hour},
		"that has ended":             {freeze: freeze(-time.Hour, -time.Second)},
		"that ends now":              {freeze: &v1alpha1.ChangeFreeze{Until: &metav1.Time{Time: now}}},
		"both":                       {freeze: freeze(-time.Hour, 0), pause: &v1alpha1.RolloutPause{By: "alice"}, reason: atoll.ReasonChangesFrozen},
		"of the future":              {freeze: freeze(10*time.Minute, 0), reason: atoll.ReasonChangesFrozen},
		"exempt":                     {freeze: freeze(-time.Hour, 0), exemption: exempt(-time.Minute)},
		"exempt by a clock behind":   {freeze: freeze(-time.Minute, 0), exemption: exempt(-11 * time.Minute)},
		"exempt from an earlier one": {freeze: freeze(-time.Minute, 0), exemption: exempt(-11*time.Minute - time.Second), reason: atoll.ReasonChangesFrozen},
		"exempt, and paused":         {freeze: freeze(-time.Hour, 0), exemption: exempt(0), pause: &v1alpha1.RolloutPause{By: "alice"}, reason: atoll.ReasonRolloutPaused},
	} {
		h := NewHalt(&v1alpha1.BundleSpec{Pause: c.pause, FreezeExemption: c.exemption}, c.freeze, now)
		if h.Reason() != c.reason || h.IsHalted() != (c.reason != "") {
			t.Errorf("%s: %q, want %q", name, h.Reason(), c.reason)
		}
		if got := h.Describe(); c.describes != "" && got != c.describes && got != "`atoll unfreeze`: "+c.describes {
			t.Errorf("%s: %s", name, got)
		}
		if end := h.EndsAt(); end.IsZero() != (c.ends == 0) || !end.IsZero() && !end.Equal(now.Add(c.ends)) {
			t.Errorf("%s: it ends at %s", name, end)
		}
	}
}
