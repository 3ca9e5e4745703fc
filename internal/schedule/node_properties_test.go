package schedule

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// Properties of node labels have slashes and equals signs in their names, and select and rate clusters as others do.
func TestPropertiesOfNodeLabels(t *testing.T) {
	const nodes, cpu = "nodes.atoll.dev/kubernetes.io/arch=arm64", "cpu.nodes.atoll.dev/kubernetes.io/arch=arm64"
	reports := func(list ...v1alpha1.ClusterProperty) func(*Cluster) {
		return func(c *Cluster) { c.AddListedProperties(list, []string{cpu, nodes}) }
	}
	w := newWorld(
		newCluster("few", reports(v1alpha1.ClusterProperty{Name: nodes, Value: "2"}, v1alpha1.ClusterProperty{Name: cpu, Value: "128"})),
		newCluster("many", reports(v1alpha1.ClusterProperty{Name: nodes, Value: "10"}, v1alpha1.ClusterProperty{Name: cpu, Value: "40500m"})),
		newCluster("none"),
	)
	for placement, want := range map[string]string{
		`{celSelector: "int(cluster.properties['` + nodes + `']) >= 3"}`:                                                     "many",
		`{celSelector: "'` + nodes + `' in cluster.properties"}`:                                                             "few many",
		`{clusterAffinity: {fieldSelector: {matchExpressions: [{key: "` + nodes + `", operator: Gt, values: ['1']}]}}}`:      "few many",
		`{clusterAffinity: {fieldSelector: {matchExpressions: [{key: "` + nodes + `", operator: DoesNotExist}]}}}`:           "none",
		`{maxClusters: 1, scores: [{name: Property, property: {name: "` + cpu + `", from: '0', to: '256'}}]}`:                "few",
		`{maxClusters: 2, spreadConstraints: [{spreadByProperty: "` + nodes + `", minGroups: 2}], scores: [{name: Steady}]}`: "few many",
	} {
		if got := formatOutcomes(DecidePlacement(w.buildInput(parsePlacement(t, placement))), OutcomePlaced); got != want {
			t.Errorf("%s: %s, want %s", placement, got, want)
		}
	}
}
