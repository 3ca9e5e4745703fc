package policycheck

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestCheckChoice(t *testing.T) {
	for _, tc := range []struct{ placement, want string }{
		{"{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3}, {spreadByLabel: rack}], scores: [{name: Balance}, {name: ResourceAvailable, resource: cpu}, {name: ResourceAvailable, resource: memory, full: 1Gi}]}", ""},
		{"{spreadConstraints: [{spreadByLabel: 'a b'}]}", "p.spreadConstraints[0].spreadByLabel"},
		{"{spreadConstraints: [{spreadByField: zone}, {spreadByField: region}, {spreadByField: zone}]}", "p.spreadConstraints[2]"},
		{"{spreadConstraints: [{spreadByLabel: zone}, {spreadByField: zone}]}", ""},
		{"{spreadConstraints: [{minGroups: 2}, {spreadByField: cluster}]}", "p.spreadConstraints[1]"},
		{"{spreadConstraints: [{spreadByProperty: nodes}, {spreadByLabel: nodes}]}", ""},
		{"{spreadConstraints: [{spreadByProperty: nodes}, {spreadByProperty: nodes}]}", "p.spreadConstraints[1]"},
		{"{spreadConstraints: [{spreadByProperty: secret}]}", "p.spreadConstraints[0].spreadByProperty"},
		{"{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}, {name: ClusterAffinity, clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Exists}]}}}]}", ""},
		{"{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {}}]}", "p.scores[0].clusterAffinity"},
		{"{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {exclude: [A]}}]}", "p.scores[0].clusterAffinity.exclude[0]"},
		{"{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {fieldSelector: {matchExpressions: [{key: secret, operator: Exists}]}}}]}", "p.scores[0].clusterAffinity.fieldSelector.matchExpressions[0].key"},
		{"{maxClusters: 2, spreadConstraints: [{spreadByField: provider, minGroups: 3}]}", "p.spreadConstraints[0].minGroups"},
		{"{maxClusters: 2, spreadConstraints: [{spreadByField: zone, minGroups: 32}]}", ""},
		{"{maxClusters: 2, spreadConstraints: [{spreadByField: zone, minGroups: 33}]}", "p.spreadConstraints[0].minGroups"},
		{"{maxClusters: 1, scores: [{name: Balance}, {name: Balance, weight: 3}]}", "p.scores[1]"},
		{"{maxClusters: 1, scores: [{name: ResourceAvailable, resource: '-'}]}", "p.scores[0].resource"},
		{"{maxClusters: 1, scores: [{name: ResourceAvailable, resource: cpu, full: '0'}]}", "p.scores[0].full"},
		{"{scores: [{name: Balance}]}", "p.scores"},
		{"{spreadConstraints: [{spreadByField: zone}], scores: [{name: Balance}]}", ""},
		{"{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 3}, {spreadByField: region, minGroups: 4}]}", "p.spreadConstraints[1].minGroups"},
		{"{maxClusters: 1, scores: [{name: ClusterScore, measure: price}, {name: ClusterScore, measure: noise}]}", ""},
		{"{maxClusters: 1, scores: [{name: ClusterScore, measure: Price}]}", "p.scores[0].measure"},
		{"{maxClusters: 1, scores: [{name: ClusterScore, measure: price}, {name: ClusterScore, measure: price}]}", "p.scores[1]"},
		{"{decisionGroups: [{groupName: a, labelSelector: {matchLabels: {k: v}}}, {groupName: b, labelSelector: {matchExpressions: [{key: k, operator: In}]}}, {groupName: a, labelSelector: {matchLabels: {k: w}}}]}", "p.decisionGroups[1].labelSelector.matchExpressions[0].values p.decisionGroups[2].groupName"},
		{"{decisionGroups: [{groupName: a, labelSelector: {matchLabels: {k: v}}}, {groupName: rest, labelSelector: {}}]}", ""},
		{"{decisionGroups: [{groupName: rest, labelSelector: {}}, {groupName: a, labelSelector: {matchLabels: {k: v}}}]}", "p.decisionGroups[0].labelSelector"},
		{"{rescheduling: {when: WhenBetter}}", "p.rescheduling.when"},
		{"{rescheduling: {when: OnEdit}}", ""},
		{"{maxClusters: 1, rescheduling: {when: WhenBetter}, scores: [{name: Steady}, {name: Affinity, bundles: {names: [a]}}, {name: Affinity, bundles: {names: [b], within: zone}}, {name: Property, property: {name: nodes, from: 0, to: 9}}]}", ""},
		{"{maxClusters: 1, scores: [{name: Property, property: {name: secret, from: 0, to: 9}}]}", "p.scores[0].property.name"},
		{"{maxClusters: 1, scores: [{name: Property, property: {name: nodes, from: 9, to: 9}}]}", "p.scores[0].property.to"},
		{"{maxClusters: 1, scores: [{name: AntiAffinity, bundles: {labelSelector: {matchExpressions: [{key: a, operator: Like}]}}}]}", "p.scores[0].bundles.labelSelector.matchExpressions[0].operator"},
	} {
		var p v1alpha1.PlacementSpec
		if err := yaml.UnmarshalStrict([]byte(tc.placement), &p); err != nil {
			t.Fatal(err)
		}
		var at []string
		for _, e := range checkSpreadScoresAndGroups(&p, RefuseUnlisted([]string{"nodes"}), field.NewPath("p")) {
			at = append(at, e.Field)
		}
		if got := strings.Join(at, " "); got != tc.want {
			t.Errorf("%s is refused at %q, want %q", tc.placement, got, tc.want)
		}
	}
}
