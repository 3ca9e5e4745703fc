package binder

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// An override of replicas is warned of where it selects an object whose replicas are divided without it.
func TestTheFirstDividedObjectWithoutReplicaOverrides(t *testing.T) {
	divided := v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
	allowed := divided
	allowed.ReplicaOverrides = v1alpha1.AllowReplicaOverrides
	named := func(name string) []v1alpha1.ResourceSelector {
		return []v1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: name}}
	}
	for what, tc := range map[string]struct {
		scheduling v1alpha1.ReplicaScheduling
		namespace  string
		selectors  []v1alpha1.ResourceSelector
		want       string
	}{
		"all objects":                 {divided, "shop", nil, "api"},
		"all objects, any namespace":  {divided, "", nil, "api"},
		"one object":                  {divided, "shop", named("web"), "web"},
		"an object that is not there": {divided, "shop", named("db"), ""},
		"another namespace":           {divided, "blog", nil, ""},
		"overrides are allowed":       {allowed, "shop", nil, ""},
		"replicas are duplicated":     {v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}, "shop", nil, ""},
	} {
		l, b := newShopTables(t)
		l.policies[0].Spec.Placement.ReplicaScheduling = tc.scheduling
		l.interpreters = script.NewLibrary(nil)
		want := atoll.ItemKey{}
		if tc.want != "" {
			want = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: tc.want}
		}
		if got, found := b.FirstDividedWithoutReplicaOverrides(tc.namespace, tc.selectors); got != want || found != (tc.want != "") {
			t.Errorf("%s: %v, found %t; want %q", what, got, found, tc.want)
		}
	}
}
