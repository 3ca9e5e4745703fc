package binder

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/policymatch"
)

// A Bundle of v0.1.0 keeps its rule for weights until its placement is edited; a new Bundle has the
// present rule.
func TestWeightRuleOfABundle(t *testing.T) {
	weighted := func(n int64) v1alpha1.PlacementSpec {
		return v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
			ReplicaSchedulingType: v1alpha1.Divided,
			WeightPreference:      &v1alpha1.ClusterPreferences{StaticWeightList: []v1alpha1.StaticClusterWeight{{Weight: n}}},
		}}
	}
	moved := weighted(1)
	moved.MaxClusters = 2
	source := v1alpha1.BundleSource{Kind: policyKind, Name: "web"}
	for name, tc := range map[string]struct {
		old  v1alpha1.BundleSpec
		next v1alpha1.PlacementSpec
		want v1alpha1.WeightRule
	}{
		"new":                      {v1alpha1.BundleSpec{}, weighted(1), v1alpha1.WeightLargest},
		"new, without weights":     {v1alpha1.BundleSpec{}, v1alpha1.PlacementSpec{}, ""},
		"of v0.1.0, not edited":    {v1alpha1.BundleSpec{Source: source, Placement: weighted(1)}, weighted(1), ""},
		"of v0.1.0, a new weight":  {v1alpha1.BundleSpec{Source: source, Placement: weighted(1)}, weighted(2), v1alpha1.WeightLargest},
		"of v0.1.0, other edit":    {v1alpha1.BundleSpec{Source: source, Placement: weighted(1)}, moved, v1alpha1.WeightLargest},
		"of v0.1.0, first weights": {v1alpha1.BundleSpec{Source: source}, weighted(1), v1alpha1.WeightLargest},
		"present rule, not edited": {v1alpha1.BundleSpec{Source: source, Placement: weighted(1), WeightRule: v1alpha1.WeightLargest}, weighted(1), v1alpha1.WeightLargest},
		"weights are removed":      {v1alpha1.BundleSpec{Source: source, Placement: weighted(1), WeightRule: v1alpha1.WeightLargest}, v1alpha1.PlacementSpec{}, ""},
	} {
		p := bundlePlan{origin: bundleOrigin{source: source}, intent: &policymatch.Intent{Spec: v1alpha1.PropagationSpec{Placement: tc.next}}}
		if got := p.bundleSpec(tc.old).WeightRule; got != tc.want {
			t.Errorf("%s: rule %q, want %q", name, got, tc.want)
		}
	}
	gone := bundlePlan{origin: bundleOrigin{source: source}}
	if got := gone.bundleSpec(v1alpha1.BundleSpec{Source: source, Placement: weighted(1), WeightRule: v1alpha1.WeightLargest}).WeightRule; got != v1alpha1.WeightLargest {
		t.Errorf("without a source: rule %q", got)
	}
}
