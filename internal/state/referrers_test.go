package state

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
)

// TestReferrersAreCountedByKind has an object of each kind that refers, and one of each that does not.
func TestReferrersAreCountedByKind(t *testing.T) {
	clusters := newClusters()
	tables := &HubTables{Clusters: clusters, Sets: newSets(clusters), Policies: newPolicies(), Placements: newPlacements(), Settings: newSettings(newViews(clusters, nil))}
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	ref := func(name string) *v1alpha1.PlacementRef { return &v1alpha1.PlacementRef{Name: name} }
	eu := v1alpha1.PlacementSpec{ClusterSets: []string{"us", "eu"}}
	inTerm := v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{{AffinityName: "a"}, {AffinityName: "b", ClusterSets: []string{"eu"}}}}
	rules := []v1alpha1.RuleWithCluster{{}, {TargetCluster: &v1alpha1.ClusterTarget{ClusterSets: []string{"eu"}}}}
	for _, p := range []v1alpha1.PropagationPolicy{
		{ObjectMeta: in("shop", "a"), Spec: v1alpha1.PropagationSpec{PlacementRef: ref("web")}},
		{ObjectMeta: in("shop", "b"), Spec: v1alpha1.PropagationSpec{PlacementRef: ref("web")}},
		{ObjectMeta: in("shop", "c"), Spec: v1alpha1.PropagationSpec{PlacementRef: ref("api")}},
		{ObjectMeta: in("bank", "d"), Spec: v1alpha1.PropagationSpec{PlacementRef: ref("web")}},
		{ObjectMeta: in("bank", "e"), Spec: v1alpha1.PropagationSpec{Placement: eu}},
		{ObjectMeta: in("shop", "f"), Spec: v1alpha1.PropagationSpec{Placement: inTerm}},
	} {
		tables.Policies.put(&p)
	}
	tables.Policies.put(&v1alpha1.ClusterPropagationPolicy{ObjectMeta: in("", "g"), Spec: v1alpha1.PropagationSpec{PlacementRef: ref("web")}})
	tables.Policies.put(&v1alpha1.ClusterPropagationPolicy{ObjectMeta: in("", "h"), Spec: v1alpha1.PropagationSpec{Placement: eu}})
	tables.Policies.put(&v1alpha1.OverridePolicy{ObjectMeta: in("shop", "i"), Spec: v1alpha1.OverrideSpec{OverrideRules: rules}})
	tables.Policies.put(&v1alpha1.OverridePolicy{ObjectMeta: in("shop", "j"), Spec: v1alpha1.OverrideSpec{OverrideRules: rules[:1]}})
	tables.Policies.put(&v1alpha1.ClusterOverridePolicy{ObjectMeta: in("", "k"), Spec: v1alpha1.ClusterOverrideSpec{OverrideSpec: v1alpha1.OverrideSpec{OverrideRules: rules}}})
	tables.Placements.put(&v1alpha1.Placement{ObjectMeta: in("shop", "l"), Spec: eu})
	tables.Placements.put(&v1alpha1.Placement{ObjectMeta: in("shop", "m")})
	tables.Placements.put(&v1alpha1.ClusterPlacement{ObjectMeta: in("", "n"), Spec: inTerm})
	tables.Sets.put(setBinding("shop", "eu"))
	tables.Sets.put(setBinding("bank", "eu"))
	tables.Sets.put(setBinding("bank", "us"))
	tables.Settings.put(&v1alpha1.HubSettings{ObjectMeta: in("", v1alpha1.HubSettingsName), Spec: v1alpha1.HubSettingsSpec{
		DefaultPlacement: &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterPlacement, Name: "web"},
	}})
	for _, test := range []struct {
		kind string
		key  types.NamespacedName
		want []Referrers
	}{
		{"Placement", types.NamespacedName{Namespace: "shop", Name: "web"}, []Referrers{{"PropagationPolicy", 2}}},
		{"Placement", types.NamespacedName{Namespace: "shop", Name: "gone"}, nil},
		{"ClusterPlacement", types.NamespacedName{Name: "web"}, []Referrers{{"ClusterPropagationPolicy", 1}, {"HubSettings", 1}}},
		{"ClusterPlacement", types.NamespacedName{Name: "api"}, nil},
		{"ClusterSet", types.NamespacedName{Name: "eu"}, []Referrers{
			{"ClusterSetBinding", 2}, {"Placement", 1}, {"ClusterPlacement", 1}, {"PropagationPolicy", 2},
			{"ClusterPropagationPolicy", 1}, {"OverridePolicy", 1}, {"ClusterOverridePolicy", 1},
		}},
		{"ClusterSet", types.NamespacedName{Name: "web"}, nil},
		{"Cluster", types.NamespacedName{Name: "eu"}, nil},
	} {
		if got := tables.FindReferrers(test.kind, test.key); !slices.Equal(got, test.want) {
			t.Errorf("%s %s: %v", test.kind, test.key, got)
		}
	}
}
