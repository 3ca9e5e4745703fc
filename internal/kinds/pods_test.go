package kinds_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/kinds"
)

// MayHavePods is false for kinds without pods. It is true for kinds with pods, custom kinds, and kinds of a
// newer Kubernetes.
func TestKindsThatMayHavePods(t *testing.T) {
	for gk, want := range map[schema.GroupKind]bool{
		{Kind: "Pod"}:                                 true,
		{Group: "apps", Kind: "Deployment"}:           true,
		{Group: "batch", Kind: "Job"}:                 true,
		{Group: "apps", Kind: "FutureSet"}:            true,
		{Group: "example.com", Kind: "Toy"}:           true,
		{Kind: "ConfigMap"}:                           false,
		{Kind: "Service"}:                             false,
		{Group: "networking.k8s.io", Kind: "Ingress"}: false,
	} {
		if got := kinds.MayHavePods(gk); got != want {
			t.Errorf("%s: %t, want %t", gk, got, want)
		}
	}
	future := parseObject(t, "apiVersion: apps/v1\nkind: FutureSet\nmetadata: {name: f}\nspec: {replicas: 3, template: {spec: {containers: [{name: a, image: a}]}}}")
	if n, each := kinds.PodSetsOf(future); n != 3 || len(each) != 1 {
		t.Errorf("a kind of a newer Kubernetes: %d times %v, want 3 pods", n, each)
	}
}
