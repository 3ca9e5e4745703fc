package bundlestatus

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// Conditions follow upstream's conventions: the generation that they are about, a time
// that moves only when the status turns, and words for people.
func TestConditionFields(t *testing.T) {
	b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	b.Meta.Generation = 3
	look := func(at int64, st *atoll.RowStatus) map[string]metav1.Condition {
		b.Status = ComputeStatus(StatusInput{Bundle: b, Rows: []Row{newRow("a", st)}, Latest: latest, Now: time.Unix(at, 0)})
		out := map[string]metav1.Condition{}
		for _, c := range b.Status.Conditions {
			if out[c.Type] = c; c.ObservedGeneration != b.Meta.Generation || c.Reason == "" || c.Message == "" {
				t.Errorf("at %d: condition %+v", at, c)
			}
		}
		return out
	}
	first := look(1000, nil)
	b.Meta.Generation = 4
	second := look(2000, readyStatus())
	for _, kind := range []string{v1alpha1.BundleScheduled, v1alpha1.BundleApplied, v1alpha1.BundleReady} {
		before, after := first[kind], second[kind]
		turned := before.Status != after.Status
		if want := map[bool]int64{true: 2000, false: 1000}[turned]; after.LastTransitionTime.Unix() != want {
			t.Errorf("%s turned: %t, at %s", kind, turned, after.LastTransitionTime)
		}
	}
	if c := second[v1alpha1.BundleReady]; c.Status != metav1.ConditionTrue || first[v1alpha1.BundleReady].Status != metav1.ConditionFalse {
		t.Errorf("Ready %+v", c)
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleApplied); !strings.Contains(c.Message, "applied its revision") {
		t.Errorf("Applied says %q", c.Message)
	}
}
