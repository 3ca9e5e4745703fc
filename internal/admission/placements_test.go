package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A Placement holds what a policy's placement may hold, and reaches no further than its namespace. One that
// is being deleted may lose its finalizers, whatever it holds.
func TestPlacementsThatAreRefused(t *testing.T) {
	placement := func(metadata, spec string) *unstructured.Unstructured {
		return unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: edge, namespace: shop"+metadata+"}, spec: "+spec+"}")
	}
	const (
		tokyo    = "{clusterAffinity: {clusterNames: [tokyo]}}"
		oslo     = "{clusterAffinity: {clusterNames: [oslo]}}"
		conflict = "{clusterAffinity: {clusterNames: [tokyo]}, clusterAffinities: [{affinityName: own}]}"
		deleting = ", deletionTimestamp: '2026-01-02T03:04:05Z', finalizers: [example.com/a]"
	)
	p := New(Options{Hub: readyHub(Hub{Sets: fakeSets{}})})
	for name, tc := range map[string]struct {
		now, before *unstructured.Unstructured
		want        string
	}{
		"within its sets":          {placement("", tokyo), nil, ""},
		"outside of its sets":      {placement("", oslo), nil, `spec.clusterAffinity.clusterNames[0]: Forbidden: no cluster "oslo"`},
		"an edit that leaves them": {placement("", oslo), placement("", tokyo), `spec.clusterAffinity.clusterNames[0]: Forbidden: no cluster "oslo"`},
		"an edit beside the spec":  {placement(", labels: {a: b}", oslo), placement("", oslo), ""},
		"fields that conflict":     {placement("", conflict), nil, "spec.clusterAffinities: Forbidden"},
		"an edit into a conflict":  {placement("", conflict), placement("", tokyo), "spec.clusterAffinities: Forbidden"},
		"being deleted":            {placement(deleting, conflict), placement(deleting, conflict), ""},
	} {
		op, old := admission.Create, runtime.Object(nil)
		if tc.before != nil {
			op, old = admission.Update, tc.before
		}
		gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Placement"}
		a := admission.NewAttributesRecord(tc.now, old, gvk, "shop", "edge", gvk.GroupVersion().WithResource("placements"), "", op, nil, false, &user.DefaultInfo{Name: "ann"})
		err := p.validatePlacement(a)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, tc.want)
		}
	}
}
