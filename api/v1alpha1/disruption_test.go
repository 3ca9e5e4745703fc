package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// A budget rounds percentages up, as a PodDisruptionBudget does, and one that cannot be read keeps all copies.
func TestCopiesThatABudgetRequires(t *testing.T) {
	for name, c := range map[string]struct {
		least, most        string
		expected, required int
		text               string
		letsNoneGo         bool
	}{
		"a number":                   {"2", "", 3, 2, "minAvailable 2", false},
		"more than there are":        {"5", "", 3, 5, "minAvailable 5", true},
		"half of an odd number":      {"50%", "", 5, 3, "minAvailable 50%", false},
		"all":                        {"100%", "", 4, 4, "minAvailable 100%", true},
		"one may go":                 {"", "1", 3, 2, "maxUnavailable 1", false},
		"a share may go":             {"", "30%", 7, 4, "maxUnavailable 30%", false},
		"more may go than there are": {"", "9", 3, 0, "maxUnavailable 9", false},
		"none may go":                {"", "0", 3, 3, "maxUnavailable 0", true},
		"a word":                     {"most", "", 3, 3, "minAvailable most", true},
		"nothing":                    {"", "", 3, 3, "no bound", true},
		"of none":                    {"", "0", 0, 0, "maxUnavailable 0", false},
	} {
		b := &DisruptionBudget{}
		if bound := intstr.Parse(c.least + c.most); c.least != "" {
			b.MinAvailable = &bound
		} else if c.most != "" {
			b.MaxUnavailable = &bound
		}
		if got := b.RequiredOf(c.expected); got != c.required || b.String() != c.text || b.LetsNoneGo(c.expected) != c.letsNoneGo {
			t.Errorf("%s: %d of %d, %s, lets none go: %t", name, got, c.expected, b, b.LetsNoneGo(c.expected))
		}
	}
	var none *DisruptionBudget
	if none.LetsNoneGo(3) || none.HonorsPodDisruptionBudgets() || !(&DisruptionBudget{}).HonorsPodDisruptionBudgets() || (&DisruptionBudget{PodDisruptionBudgets: PodDisruptionBudgetsIgnore}).HonorsPodDisruptionBudgets() {
		t.Error("the modes of PodDisruptionBudgets are mistaken")
	}
}
