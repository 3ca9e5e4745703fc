package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// A tenant reaches no further through a group of fall-back than through the placement
// itself.
func TestReachOfGroups(t *testing.T) {
	pl := v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
		{AffinityName: "own"},
		{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"tokyo"}}, ClusterSets: []string{"burst"}},
	}}
	var got []string
	for _, r := range placementReferences(&pl, field.NewPath("placement")) {
		if r.path != nil {
			got = append(got, r.kind+r.name+" "+r.path.String())
		}
	}
	want := "cluster/tokyo placement.clusterAffinities[1].clusterNames[0], set/burst placement.clusterAffinities[1].clusterSets[0]"
	if strings.Join(got, ", ") != want {
		t.Errorf("reaches %q, want %s", got, want)
	}
}
