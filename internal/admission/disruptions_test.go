package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/api/v1alpha1"
)

// A number that the typed object could not hold is refused and not cut.
func TestADisruptionBudgetFitsItsType(t *testing.T) {
	for want, budget := range map[string]map[string]any{
		"<nil>": {"minAvailable": int64(2)}, "spec.disruptionBudget.minAvailable: Invalid value: 4294967298": {"minAvailable": int64(1<<32 + 2)},
		"spec.disruptionBudget.maxUnavailable: Invalid value: 4294967297": {"maxUnavailable": int64(1<<32 + 1)},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"disruptionBudget": budget}}}
		if got := fmt.Sprint(checkDisruptionBudgetFitsInt32(u).ToAggregate()); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A budget that lets no copy go, however many are available, is a warning.
func TestAStrictDisruptionBudgetIsWarnedOf(t *testing.T) {
	names := func(n ...string) v1alpha1.PlacementSpec {
		return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: n}}
	}
	for name, c := range map[string]struct {
		least, most string
		placement   v1alpha1.PlacementSpec
		want        string
	}{
		"none":                          {"", "", names("a"), ""},
		"all must stay":                 {"100%", "", v1alpha1.PlacementSpec{}, "minAvailable 100% lets no copy in any cluster go"},
		"most must stay":                {"99%", "", v1alpha1.PlacementSpec{}, ""},
		"as many as there are":          {"2", "", names("a", "b"), "minAvailable 2 lets no copy in 2 clusters go"},
		"fewer than there are":          {"2", "", names("a", "b", "c"), ""},
		"as many as are chosen":         {"3", "", v1alpha1.PlacementSpec{MaxClusters: 3}, "minAvailable 3 lets no copy in 3 clusters go"},
		"more clusters than are chosen": {"2", "", v1alpha1.PlacementSpec{MaxClusters: 2, ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"a", "b", "c"}}}, "lets no copy in 2 clusters go"},
		"none may go":                   {"", "0", v1alpha1.PlacementSpec{}, "maxUnavailable 0 lets no copy in any cluster go"},
		"no share may go":               {"", "0%", names("a"), "maxUnavailable 0% lets no copy in 1 cluster go"},
		"one may go":                    {"", "1", names("a"), ""},
	} {
		var h heard
		spec := &v1alpha1.PropagationSpec{Placement: c.placement}
		if c.least+c.most != "" {
			spec.DisruptionBudget = &v1alpha1.DisruptionBudget{}
		}
		if c.least != "" {
			b := intstr.Parse(c.least)
			spec.DisruptionBudget.MinAvailable = &b
		}
		if c.most != "" {
			b := intstr.Parse(c.most)
			spec.DisruptionBudget.MaxUnavailable = &b
		}
		warnOfStrictBudget(warning.WithWarningRecorder(t.Context(), &h), spec)
		if got := strings.Join(h, ""); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
