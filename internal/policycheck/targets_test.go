package policycheck

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// The target of a rule selects clusters as a placement does, but by nothing that agents report.
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
			errs := CheckTarget(&target, field.NewPath("t"))
			switch {
			case tc.path == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case tc.path != "" && (len(errs) != 1 || errs[0].Field != tc.path || !strings.Contains(errs[0].Detail, tc.reason)):
				t.Errorf("%v, want %s: %s", errs, tc.path, tc.reason)
			}
		})
	}
}
