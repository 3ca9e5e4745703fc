package state

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Each table passes the names of all its objects to a search, and nothing that is gone.
func TestTablesPassTheirNames(t *testing.T) {
	named := func(ns, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + "/" + name)}
	}
	var got []string
	bundles := newBundles()
	bundles.put(&v1alpha1.Bundle{ObjectMeta: named("shop", "web"), Spec: v1alpha1.BundleSpec{Source: v1alpha1.BundleSource{Kind: "Annotation", Name: "front"}}})
	bundles.put(&v1alpha1.ClusterBundle{ObjectMeta: named("", "base")})
	bundles.put(&v1alpha1.Bundle{ObjectMeta: named("shop", "gone")})
	bundles.removeObject(&v1alpha1.Bundle{ObjectMeta: named("shop", "gone")})
	bundles.EachName(func(ref enginev1.BundleRef, source v1alpha1.BundleSource) {
		got = append(got, "bundle "+ref.Namespace+"/"+ref.Name+" "+source.Name)
	})
	policies := newPolicies()
	policies.put(&v1alpha1.PropagationPolicy{ObjectMeta: named("shop", "web")})
	policies.put(&v1alpha1.ClusterOverridePolicy{ObjectMeta: named("", "all")})
	policies.EachKey(func(key PolicyKey) { got = append(got, key.Kind+" "+key.Namespace+"/"+key.Name) })
	placements := newPlacements()
	placements.put(&v1alpha1.Placement{ObjectMeta: named("shop", "eu")})
	placements.put(&v1alpha1.ClusterPlacement{ObjectMeta: named("", "world")})
	placements.EachKey(func(key types.NamespacedName) { got = append(got, "placement "+key.String()) })
	slices.Sort(got)
	if want := []string{"ClusterOverridePolicy /all", "PropagationPolicy shop/web", "bundle /base ", "bundle shop/web front", "placement /world", "placement shop/eu"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
