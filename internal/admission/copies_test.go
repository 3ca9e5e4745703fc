package admission

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestWarningsAboutCopies(t *testing.T) {
	divided := v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
	ranged := v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, Ordinals: &v1alpha1.OrdinalRanges{}}
	one := v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}}
	two := v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo", "lima"}}}
	for name, c := range map[string]struct {
		apiVersion, kind string
		order            v1alpha1.MoveOrder
		removal          v1alpha1.RemovalMode
		placement        v1alpha1.PlacementSpec
		want             heard
	}{
		"a Deployment":                      {apiVersion: "apps/v1", kind: "Deployment"},
		"a StatefulSet":                     {apiVersion: "apps/v1", kind: "StatefulSet", want: heard{warnStopsInMoves, warnOwnVolumes}},
		"a StatefulSet with its order":      {apiVersion: "apps/v1", kind: "StatefulSet", order: v1alpha1.MoveRecreate, want: heard{warnOwnVolumes}},
		"a StatefulSet in one of all":       {apiVersion: "apps/v1", kind: "StatefulSet", placement: v1alpha1.PlacementSpec{MaxClusters: 1}, want: heard{warnStopsInMoves}},
		"a StatefulSet in a named cluster":  {apiVersion: "apps/v1", kind: "StatefulSet", order: v1alpha1.MoveSurge, placement: one},
		"a StatefulSet in two":              {apiVersion: "apps/v1", kind: "StatefulSet", order: v1alpha1.MoveSurge, placement: two, want: heard{warnOwnVolumes}},
		"a StatefulSet, divided":            {apiVersion: "apps/v1", kind: "StatefulSet", placement: v1alpha1.PlacementSpec{ReplicaScheduling: divided}, want: heard{warnStopsInMoves}},
		"a StatefulSet, by ordinals":        {apiVersion: "apps/v1", kind: "StatefulSet", placement: v1alpha1.PlacementSpec{ReplicaScheduling: ranged}},
		"orphaned where old copies end":     {apiVersion: "apps/v1", kind: "Deployment", order: v1alpha1.MoveRecreate, removal: v1alpha1.RemoveOrphan, want: heard{warnOrphanRunsOn}},
		"orphaned, replacements first":      {apiVersion: "apps/v1", kind: "Deployment", order: v1alpha1.MoveSurge, removal: v1alpha1.RemoveOrphan},
		"another kind of this name":         {apiVersion: "example.com/v1", kind: "StatefulSet"},
		"a claim":                           {apiVersion: "v1", kind: "PersistentVolumeClaim", want: heard{warnStopsInMoves}},
		"an autoscaler":                     {apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler", want: heard{warnOwnScaling}},
		"an autoscaler in a named cluster":  {apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler", placement: one},
		"an autoscaler of divided replicas": {apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler", placement: v1alpha1.PlacementSpec{ReplicaScheduling: divided}},
	} {
		var h heard
		warnOfCopies(warning.WithWarningRecorder(t.Context(), &h), &v1alpha1.PropagationSpec{
			ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: c.apiVersion, Kind: c.kind}},
			MoveOrder:         c.order, Placement: c.placement, Removal: v1alpha1.Removal{Mode: c.removal},
		})
		if !slices.Equal(h, c.want) {
			t.Errorf("%s: %q, want %q", name, h, c.want)
		}
	}
}

// A policy whose objects are one Bundle keeps none of them apart, and its writer is warned.
func TestAWarningAboutOneBundle(t *testing.T) {
	named := v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	all := v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment"}
	for name, c := range map[string]struct {
		by        v1alpha1.GroupByType
		selectors []v1alpha1.ResourceSelector
		want      heard
	}{
		"all of a kind":           {selectors: []v1alpha1.ResourceSelector{all}, want: heard{warnOneBundle}},
		"two that are named":      {by: v1alpha1.GroupByNamespace, selectors: []v1alpha1.ResourceSelector{named, named}, want: heard{warnOneBundle}},
		"one that is named":       {selectors: []v1alpha1.ResourceSelector{named}},
		"each a Bundle":           {by: v1alpha1.GroupByObject, selectors: []v1alpha1.ResourceSelector{all}},
		"a Bundle for each label": {by: v1alpha1.GroupByLabel, selectors: []v1alpha1.ResourceSelector{all}},
	} {
		var h heard
		spec := &v1alpha1.PropagationSpec{ResourceSelectors: c.selectors, GroupBy: v1alpha1.GroupBy{Type: c.by}}
		spec.Placement.WorkloadAffinity = &v1alpha1.WorkloadAffinity{AntiAffinity: &v1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "tier"}}
		if warnOfOneBundle(warning.WithWarningRecorder(t.Context(), &h), spec); !slices.Equal(h, c.want) {
			t.Errorf("%s: %q, want %q", name, h, c.want)
		}
	}
}
