package migrate

import (
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

func parsePlacement(t *testing.T, text string) (p v1alpha1.PlacementSpec) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAMoveIsAnEditOfThePlacement(t *testing.T) {
	const prefersB = "scores: [{name: Balance}, {name: ClusterAffinity, weight: 100, clusterAffinity: {clusterNames: [b]}}]"
	for name, tc := range map[string]struct{ before, after string }{
		"all clusters":                  {"{}", "{clusterAffinity: {exclude: [a]}}"},
		"selected ones":                 {"{clusterAffinity: {labelSelector: {matchLabels: {env: prod}}, exclude: [b, c]}}", "{clusterAffinity: {labelSelector: {matchLabels: {env: prod}}, exclude: [c, a]}}"},
		"named ones":                    {"{clusterAffinity: {clusterNames: [a, c]}}", "{clusterAffinity: {clusterNames: [b, c]}}"},
		"both are named":                {"{clusterAffinity: {clusterNames: [a, b]}}", "{clusterAffinity: {clusterNames: [b]}}"},
		"some are chosen":               {"{maxClusters: 1}", "{maxClusters: 1, clusterAffinity: {exclude: [a]}, " + prefersB + "}"},
		"some are chosen by scores":     {"{maxClusters: 1, clusterAffinity: {clusterNames: [a, b]}, scores: [{name: Steady}]}", "{maxClusters: 1, clusterAffinity: {clusterNames: [b]}, scores: [{name: Steady}, {name: ClusterAffinity, weight: 100, clusterAffinity: {clusterNames: [b]}}]}"},
		"a move back":                   {"{maxClusters: 1, clusterAffinity: {exclude: [b]}, scores: [{name: Balance}, {name: ClusterAffinity, weight: 100, clusterAffinity: {clusterNames: [a]}}]}", "{maxClusters: 1, clusterAffinity: {exclude: [a]}, " + prefersB + "}"},
		"groups":                        {"{clusterAffinities: [{affinityName: own, clusterNames: [a]}, {affinityName: near, exclude: [b]}]}", "{clusterAffinities: [{affinityName: own, clusterNames: [b]}, {affinityName: near, exclude: [a]}]}"},
		"spread":                        {"{spreadConstraints: [{spreadByField: region}]}", "{spreadConstraints: [{spreadByField: region}], clusterAffinity: {exclude: [a]}, " + prefersB + "}"},
		"static weights":                {"{clusterAffinity: {clusterNames: [a]}, replicaScheduling: {weightPreference: {staticWeightList: [{weight: 2, targetCluster: {clusterNames: [a, c]}}]}}}", "{clusterAffinity: {clusterNames: [b]}, replicaScheduling: {weightPreference: {staticWeightList: [{weight: 2, targetCluster: {clusterNames: [b, c]}}]}}}"},
		"a preference of another shape": {"{maxClusters: 1, clusterAffinity: {clusterNames: [a]}, scores: [{name: ClusterAffinity, weight: 5, clusterAffinity: {clusterNames: [a]}}]}", "{maxClusters: 1, clusterAffinity: {clusterNames: [b]}, scores: [{name: ClusterAffinity, weight: 5, clusterAffinity: {clusterNames: [a]}}, {name: ClusterAffinity, weight: 100, clusterAffinity: {clusterNames: [b]}}]}"},
	} {
		t.Run(name, func(t *testing.T) {
			before, untouched := parsePlacement(t, tc.before), parsePlacement(t, tc.before)
			after := moveInPlacement(before, "a", "b")
			if want := parsePlacement(t, tc.after); !reflect.DeepEqual(dropEmptyFields(t, after), dropEmptyFields(t, want)) {
				t.Errorf("%+v, want %+v", dropEmptyFields(t, after), dropEmptyFields(t, want))
			}
			if !reflect.DeepEqual(before, untouched) {
				t.Error("the argument has changed")
			}
			if again := moveInPlacement(after, "a", "b"); !reflect.DeepEqual(dropEmptyFields(t, again), dropEmptyFields(t, after)) {
				t.Errorf("the same move again is another edit: %+v", dropEmptyFields(t, again))
			}
		})
	}
}

// dropEmptyFields returns the fields that are set.
func dropEmptyFields(t *testing.T, p v1alpha1.PlacementSpec) (out map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
