package placer

import (
	"encoding/json"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// The rule of a Bundle's weights reaches the decision: by the present one, a cluster without a
// weight is no candidate. By that of earlier versions it is one.
func TestWeightRuleOfTerms(t *testing.T) {
	for rule, want := range map[v1alpha1.WeightRule]string{
		v1alpha1.WeightLargest: "b Active r1",
		"":                     "a Active r1, b Active r1",
	} {
		m := newFakeHub()
		addClusters(m, "a", "b")
		runWith(t, m, func(*Config) {}, func(t *testing.T, _ *PlacementReconciler) {
			m.changeBundle("web", func(b *state.Bundle) {
				b.Spec.WeightRule = rule
				b.Spec.Placement.MaxClusters = 2
				b.Spec.Placement.ReplicaScheduling = v1alpha1.ReplicaScheduling{
					ReplicaSchedulingType: v1alpha1.Divided,
					WeightPreference: &v1alpha1.ClusterPreferences{StaticWeightList: []v1alpha1.StaticClusterWeight{
						{TargetCluster: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}, Weight: 1},
					}},
				}
			})
			thing := atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "t"}, APIVersion: "v1", Object: json.RawMessage(`{}`)}
			m.cutRevision("web", &atoll.Content{Items: []atoll.Item{thing}})
			expectRows(t, m, "web", want)
		})
	}
}
