package render_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
)

// Each leaf of a rule's targetCluster lets cluster a pass and refuses b, which differs
// from it in everything.
func TestTargetClusterFields(t *testing.T) {
	a := atoll.ViewOf(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Region: "eu", Zone: "eu-a", Provider: "aws"}})
	a.Name, a.Labels = "a", map[string]string{"env": "prod"}
	b := atoll.ViewOf(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Region: "us", Zone: "us-a", Provider: "gcp"}})
	b.Name, b.Labels = "b", map[string]string{"env": "test"}
	for _, tc := range []struct{ field, target string }{
		{"clusterNames", "{clusterNames: [a, c]}"},
		{"exclude", "{exclude: [b, c]}"},
		{"labelSelector matchLabels", "{labelSelector: {matchLabels: {env: prod}}}"},
		{"labelSelector matchExpressions In", "{labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, stage]}]}}"},
		{"labelSelector matchExpressions NotIn", "{labelSelector: {matchExpressions: [{key: env, operator: NotIn, values: [test]}]}}"},
		{"fieldSelector.matchExpressions.key region", "{fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}}"},
		{"fieldSelector.matchExpressions.key zone", "{fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [eu-a]}]}}"},
		{"fieldSelector.matchExpressions.key provider", "{fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [aws]}]}}"},
		{"fieldSelector.matchExpressions.operator", "{fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [us]}]}}"},
		{"fieldSelector.matchExpressions.values", "{fieldSelector: {matchExpressions: [{key: region, operator: In, values: [ap, eu]}]}}"},
		{"all of it", "{clusterNames: [a, b], fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu, us]}, {key: provider, operator: NotIn, values: [gcp]}]}}"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			var target v1alpha1.ClusterAffinity
			if err := yaml.UnmarshalStrict([]byte(tc.target), &target); err != nil {
				t.Fatal(err)
			}
			c := content(rule("OverridePolicy/shop/p", v1alpha1.Overriders{Replicas: ptr(int32(8))}, webKey))
			c.Rules[0].Target = &target
			if rules, _ := render.Rules(c, a); len(rules) != 1 {
				t.Error("the rule does not apply in cluster a")
			}
			if rules, _ := render.Rules(c, b); len(rules) != 0 {
				t.Error("the rule applies in cluster b")
			}
		})
	}
}
