package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/overrides"
)

// TestManyTargetsAreNotDear: each rule's expression may be cheap enough, and all of a
// policy's together are not.
func TestManyTargetsAreNotDear(t *testing.T) {
	rules := func(n int) (out []v1alpha1.RuleWithCluster) {
		for i := range n {
			target := &v1alpha1.ClusterTarget{CELSelector: fmt.Sprintf("cluster.labels.exists(k, k == 'a%d')", i)}
			out = append(out, v1alpha1.RuleWithCluster{TargetCluster: target})
		}
		return out
	}
	if cost, over := overrides.SumExpressionCost(rules(2)); over {
		t.Errorf("two rules cost %d", cost)
	}
	if cost, over := overrides.SumExpressionCost(rules(256)); !over {
		t.Errorf("256 rules cost %d", cost)
	}
	same := rules(1)
	for range 255 {
		same = append(same, same[0])
	}
	if cost, over := overrides.SumExpressionCost(same); over {
		t.Errorf("one expression in 256 rules costs %d", cost)
	}
}

// TestTargetsNameWhatIsTheirs: sets that rules name are reached for like those of
// placements.
func TestTargetsNameWhatIsTheirs(t *testing.T) {
	rules := []v1alpha1.RuleWithCluster{{}, {TargetCluster: &v1alpha1.ClusterTarget{
		ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}, ExcludeClusters: []string{"rome"}}, ClusterSets: []string{"asia"},
	}}}
	var got []string
	for _, r := range ruleReferences(rules, field.NewPath("rules")) {
		got = append(got, r.kind+r.name+" "+r.path.String())
	}
	if want := "cluster/oslo rules[1].targetCluster.clusterNames[0], set/asia rules[1].targetCluster.clusterSets[0]"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
