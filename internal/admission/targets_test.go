package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/overrides"
)

// TestTargetsThatCannotBe: what a rule selects clusters by is what a placement may say, but
// for what agents report.
func TestTargetsThatCannotBe(t *testing.T) {
	for _, tc := range []struct{ target, path, reason string }{
		{"{clusterSets: [asia, paid], celSelector: \"'asia' in cluster.sets && cluster.labels['env'] == 'prod'\"}", "", ""},
		{"{clusterSets: ['not a set']}", "t.clusterSets[0]", "is not the name of a cluster set"},
		{"{celSelector: \"cluster.labels['env'] = 'prod'\"}", "t.celSelector", "line 1"},
		{"{celSelector: \"cluster.labels['env']\"}", "t.celSelector", "true or false is needed"},
		{"{celSelector: \"cluster.properties['gpus'] == '8'\"}", "t.celSelector", "label the Cluster instead"},
		{"{fieldSelector: {matchExpressions: [{key: gpus, operator: Exists}]}}", "t.fieldSelector.matchExpressions[0].key", "label the Cluster instead"},
		{"{celSelector: \"clusters['other'].labels['owner'] == 'x'\"}", "t.celSelector", "undeclared reference to 'clusters'"},
		{"{celSelector: \"cluster.labels.all(a, cluster.labels.all(b, cluster.labels.all(c, a + b + c != '')))\"}", "t.celSelector", "may cost"},
	} {
		t.Run(tc.target, func(t *testing.T) {
			var target v1alpha1.ClusterTarget
			if err := yaml.UnmarshalStrict([]byte(tc.target), &target); err != nil {
				t.Fatal(err)
			}
			errs := checkTarget(&target, field.NewPath("t"))
			switch {
			case tc.path == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case tc.path != "" && (len(errs) != 1 || errs[0].Field != tc.path || !strings.Contains(errs[0].Detail, tc.reason)):
				t.Errorf("%v, want %s: %s", errs, tc.path, tc.reason)
			}
		})
	}
}

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
