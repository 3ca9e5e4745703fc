package policycheck

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// A disruption budget that could not be honoured is refused by the path of its field.
func TestFieldsOfADisruptionBudget(t *testing.T) {
	bound := func(text string) *intstr.IntOrString {
		out := intstr.Parse(text)
		return &out
	}
	for name, c := range map[string]struct {
		is      *v1alpha1.DisruptionBudget
		refused string
	}{
		"none":                       {nil, ""},
		"a number that must stay":    {&v1alpha1.DisruptionBudget{MinAvailable: bound("2")}, ""},
		"a share that must stay":     {&v1alpha1.DisruptionBudget{MinAvailable: bound("100%"), PodDisruptionBudgets: v1alpha1.PodDisruptionBudgetsIgnore}, ""},
		"a number that may go":       {&v1alpha1.DisruptionBudget{MaxUnavailable: bound("0"), PodDisruptionBudgets: v1alpha1.PodDisruptionBudgetsHonor}, ""},
		"a share that may go":        {&v1alpha1.DisruptionBudget{MaxUnavailable: bound("0%")}, ""},
		"no bound":                   {&v1alpha1.DisruptionBudget{PodDisruptionBudgets: v1alpha1.PodDisruptionBudgetsHonor}, "spec.disruptionBudget: Required"},
		"both":                       {&v1alpha1.DisruptionBudget{MinAvailable: bound("2"), MaxUnavailable: bound("1")}, "spec.disruptionBudget.minAvailable: Forbidden"},
		"a negative number":          {&v1alpha1.DisruptionBudget{MinAvailable: bound("-1")}, "spec.disruptionBudget.minAvailable: Invalid"},
		"more than all":              {&v1alpha1.DisruptionBudget{MaxUnavailable: bound("101%")}, "spec.disruptionBudget.maxUnavailable: Invalid"},
		"a word":                     {&v1alpha1.DisruptionBudget{MinAvailable: bound("most")}, "spec.disruptionBudget.minAvailable: Invalid"},
		"a mode that does not exist": {&v1alpha1.DisruptionBudget{MinAvailable: bound("2"), PodDisruptionBudgets: "Ask"}, "spec.disruptionBudget.podDisruptionBudgets: Unsupported"},
	} {
		got := fmt.Sprint(checkDisruptionBudget(c.is, field.NewPath("spec", "disruptionBudget")).ToAggregate())
		if c.refused == "" && got != "<nil>" || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}
