package policycheck

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// A filter of a placement that cannot be honoured is refused with the path and the reason.
func TestFiltersAreRefused(t *testing.T) {
	listed, bare := RefuseUnlisted([]string{"nodes", "version"}), RefuseUnlisted(nil)
	for _, tc := range []struct{ placement, want string }{
		{"{}", ""},
		{"clusterSets: [eu, prod]", ""},
		{"clusterSets: [EU]", "placement.clusterSets[0]: Invalid value: \"EU\": is not the name of a cluster set"},
		{"celSelector: \"cluster.labels['env'] == 'prod'\"", ""},
		{"celSelector: \"cluster.nme == 'x'\"", "placement.celSelector: Invalid value: \"cluster.nme == 'x'\": line 1, column 1: cluster has no field \"nme\" here"},
		{"celSelector: cluster.name", "gives a string, and true or false is needed"},
		{"celSelector: 'cluster.labels.all(a, cluster.labels.all(b, cluster.labels.all(c, a != b || b != c)))'", "at most 2000 are allowed"},
		{"celSelector: \"quantity(cluster.properties['nodes']) > 3\"", ""},
		{"celSelector: \"'gpus' in cluster.properties\"", "placement.celSelector: Invalid value: \"gpus\": is a property that the hub's admin did not list: placement is steered by nodes, version"},
		{"apis: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1}]", ""},
		{"apis: [{apiVersion: a/b/c}]", "placement.apis[0].apiVersion: Invalid value"},
		{"apis: [{apiVersion: v1}, {apiVersion: ''}]", "placement.apis[1].apiVersion: Invalid value: \"\": must be GROUP/VERSION, or VERSION for the core group"},
		{"{clusterAffinities: [{affinityName: a}, {affinityName: b}], failback: {policy: WhenHealthy, holdTime: 24h}}", ""},
		{"{clusterAffinities: [{affinityName: a}, {affinityName: b}], failback: {policy: WhenHealthy, holdTime: 0s}}", ""},
		{"{clusterAffinities: [{affinityName: a}, {affinityName: b}], failback: {policy: WhenHealthy, holdTime: 24h1s}}", "placement.failback.holdTime: Invalid value: \"24h0m1s\": must be from 0s to 24h"},
		{"{clusterAffinities: [{affinityName: a}, {affinityName: b}], failback: {policy: WhenHealthy, holdTime: -1s}}", "placement.failback.holdTime: Invalid value: \"-1s\": must be from 0s to 24h"},
		{"apis: [{apiVersion: apps/v1, kind: deploy-ment}]", "placement.apis[0].kind: Invalid value"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Gt, values: ['3']}]}}", ""},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: gpus, operator: Exists}]}}", "placement.clusterAffinity.fieldSelector.matchExpressions[0].key: Invalid value: \"gpus\": is a property"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In}]}}", "matchExpressions[0].values: Required value: operator In needs at least one"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: Exists, values: [x]}]}}", "matchExpressions[0].values: Forbidden: operator Exists takes none"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Gt, values: [many]}]}}", "values[0]: Invalid value: \"many\": must be a quantity"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Lt, values: ['1', '2']}]}}", "operator Lt needs exactly one"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Exists}, {key: nodes, operator: DoesNotExist}]}}", "contradict each other"},
		{"clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: Near, values: [x]}]}}", "Unsupported value"},
		{"{clusterAffinities: [{affinityName: own, clusterNames: [a]}, {affinityName: cloud, celSelector: \"cluster.provider == 'aws'\", clusterSets: [burst]}], failback: {policy: WhenHealthy, holdTime: 1m}}", ""},
		{"{clusterAffinity: {clusterNames: [a]}, clusterAffinities: [{affinityName: own}]}", "placement.clusterAffinities: Forbidden: clusterAffinity and clusterAffinities exclude each other"},
		{"clusterAffinities: [{affinityName: own, labelSelector: {}}]", "placement.clusterAffinities[0].labelSelector: Required value"},
		{"clusterAffinities: [{affinityName: own, celSelector: cluster.name}]", "placement.clusterAffinities[0].celSelector: Invalid value"},
		{"clusterAffinities: [{affinityName: own}, {affinityName: b, clusterSets: [B]}]", "placement.clusterAffinities[1].clusterSets[0]: Invalid value"},
		{"clusterAffinities: [{affinityName: own, fieldSelector: {matchExpressions: [{key: gpus, operator: Exists}]}}]", "placement.clusterAffinities[0].fieldSelector.matchExpressions[0].key: Invalid value"},
		{"workloadAffinity: {affinity: {groupByLabelKey: app.example.com/stack}, antiAffinity: {groupByLabelKey: tier}}", ""},
		{"workloadAffinity: {}", "placement.workloadAffinity: Required value: give affinity or antiAffinity"},
		{"workloadAffinity: {affinity: {groupByLabelKey: ''}}", "placement.workloadAffinity.affinity.groupByLabelKey: Required value: the key of a label of the templates"},
		{"workloadAffinity: {antiAffinity: {groupByLabelKey: a/b/c}}", "placement.workloadAffinity.antiAffinity.groupByLabelKey: Invalid value: \"a/b/c\": is not the key of a label"},
		{"workloadAffinity: {affinity: {groupByLabelKey: tier}, antiAffinity: {groupByLabelKey: tier}}", "placement.workloadAffinity.antiAffinity.groupByLabelKey: Invalid value: \"tier\": is the key of affinity, too"},
		{"{maxClusters: 2, replicaScheduling: {overflow: Allow}}", ""},
		{"{spreadConstraints: [{maxGroups: 2}], replicaScheduling: {overflow: Allow}}", ""},
		{"{clusterAffinities: [{affinityName: own}, {affinityName: cloud}], replicaScheduling: {overflow: Allow}}", ""},
		{"{clusterAffinities: [{affinityName: own}], replicaScheduling: {overflow: Allow}}", "placement.replicaScheduling.overflow: Forbidden: all fitting clusters are chosen anyway"},
		{"{replicaScheduling: {overflow: None}}", ""},
		{"replicaScheduling: {replicaDivisionPreference: Aggregated, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, maxReplicas: 4}]}}", ""},
		{"replicaScheduling: {weightPreference: {dynamicWeight: AvailableReplicas, staticWeightList: [{targetCluster: {clusterNames: [a]}, minReplicas: 1}]}}", ""},
		{"{clusterAffinities: [{affinityName: own}], failback: {policy: WhenHealthy}}", "placement.failback: Forbidden: there is nothing to go back to"},
		{"{clusterAffinities: [{affinityName: a}, {affinityName: b}], failback: {policy: Never, holdTime: 1m}}", "placement.failback.holdTime: Forbidden: is for policy WhenHealthy"},
		{"replicaScheduling: {weightPreference: {staticWeightList: [{weight: 1, targetCluster: {fieldSelector: {matchExpressions: [{key: gpus, operator: Exists}]}}}]}}", "staticWeightList[0].targetCluster.fieldSelector.matchExpressions[0].key"},
	} {
		t.Run(tc.placement, func(t *testing.T) {
			var pl v1alpha1.PlacementSpec
			if err := yaml.UnmarshalStrict([]byte(tc.placement), &pl); err != nil {
				t.Fatal(err)
			}
			err := CheckPlacement(&pl, listed, field.NewPath("placement")).ToAggregate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if strings.Contains(tc.placement, "nodes") && CheckPlacement(&pl, bare, field.NewPath("placement")) == nil {
				t.Error("a hub that lists no property lets it pass")
			}
		})
	}
}

// A property that the hub's admin did not list is refused with the list.
func TestUnlistedPropertiesAreRefused(t *testing.T) {
	for _, c := range []struct {
		listed []string
		want   string
	}{
		{nil, "is a property that agents report, and the hub's admin listed none that steer placement"},
		{[]string{"gpus"}, ""},
		{[]string{"nodes", "version"}, "is a property that the hub's admin did not list: placement is steered by nodes, version"},
	} {
		if got := RefuseUnlisted(c.listed)("gpus"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Overrides do not see properties, whichever are listed.
func TestOverridesSeeNoProperties(t *testing.T) {
	s := &v1alpha1.FieldSelector{MatchExpressions: []v1alpha1.FieldRequirement{{Key: "zone", Operator: "Exists"}, {Key: "nodes", Operator: "Exists"}}}
	errs := checkFieldKeys(s, field.NewPath("fieldSelector"), refuseAllProperties)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "fieldSelector.matchExpressions[1].key") || !strings.Contains(errs[0].Error(), "label the Cluster") {
		t.Errorf("errors %v", errs)
	}
}
