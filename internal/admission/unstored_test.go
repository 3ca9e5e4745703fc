package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// An object that is not stored, such as a review, passes. A custom resource of another type does not.
func TestObjectsThatAreNotStoredPass(t *testing.T) {
	of := func(group, kind string) admission.Attributes {
		gvk := schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}
		return admission.NewAttributesRecord(&metav1.Status{}, nil, gvk, "shop", "r", gvk.GroupVersion().WithResource("any"), "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	}
	p := newGrantingPlugin(Hub{Placed: quietPlaced{}})
	wantRefusal(t, "a review", p.Validate(t.Context(), of("example.com", "Review"), nil), "", "")
	for _, kind := range []string{"PropagationPolicy", "OverridePolicy", "Placement", "ClusterSetBinding"} {
		wantRefusal(t, kind, p.Validate(t.Context(), of("atoll.dev", kind), nil), atoll.ReasonUnreadable, "custom resource has type *v1.Status")
	}
	nothing := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "shop", "r", schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "eviction", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	wantRefusal(t, "no object", p.Validate(t.Context(), nothing, nil), "", "")
}

// An error of a script has the place in it, or else that of the spec.
func TestErrorsOfScriptsHaveTheirPlace(t *testing.T) {
	a := requestOf("ann", newThing("shop", nil), nil)
	err := refuseScriptErrors(a, []*script.Error{{Script: "spec.health.lua", Line: 2, Column: 3, Why: "bad"}, {Why: "all is bad"}})
	wantRefusal(t, "two errors", err, atoll.ReasonInvalidField, "is invalid: [spec.health.lua: Invalid value: line 2, column 3: bad, spec: Invalid value: all is bad]")
	wantRefusal(t, "no error", refuseScriptErrors(a, nil), "", "")
}

// noVersions converts nothing.
type noVersions struct{ admission.ObjectInterfaces }

func (noVersions) GetObjectConvertor() runtime.ObjectConvertor { return failingConvertor{} }

type failingConvertor struct{ runtime.ObjectConvertor }

func (failingConvertor) ConvertToVersion(runtime.Object, runtime.GroupVersioner) (runtime.Object, error) {
	return nil, errors.New("no such version")
}

// An object whose stored form is not known is refused.
func TestObjectsWithoutAStoredFormAreRefused(t *testing.T) {
	p := newGrantingPlugin(Hub{Placed: carrier{}})
	typed := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop", Finalizers: []string{atoll.Finalizer}}}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	a := admission.NewAttributesRecord(typed, nil, gvk, "shop", "c", gvk.GroupVersion().WithResource("configmaps"), "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	wantRefusal(t, "created", p.Validate(t.Context(), a, noVersions{}), atoll.ReasonUnreadable, "look how large it is: no such version")
}

// The expressions of all rules of an override policy have one bound together.
func TestExpressionsOfAnOverridePolicyHaveOneBound(t *testing.T) {
	var rules []string
	for i := range 256 {
		rules = append(rules, fmt.Sprintf("{targetCluster: {celSelector: \"cluster.labels.exists(k, k == 'a%d')\"}, overriders: {notHere: true}}", i))
	}
	policy := overrideOf(t, "shop", "", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], overrideRules: ["+strings.Join(rules, ", ")+"]")
	err := newGrantingPlugin(Hub{Templates: dividedWeb{}}).Validate(t.Context(), requestOf("ann", policy, policy), nil)
	if err == nil || !strings.Contains(err.Error(), "is invalid: spec.overrideRules: Forbidden: their expressions may cost ") || !strings.HasSuffix(err.Error(), "are allowed in a cluster") {
		t.Errorf("%v", err)
	}
}

// A refusal names the sets of the namespace, or that there are none.
func TestRefusalsNameTheSetsOfTheNamespace(t *testing.T) {
	for want, bound := range map[string][]string{
		`namespace "shop" may not place on cluster set "x", but on none: a ClusterSetBinding is missing`: nil,
		`namespace "shop" may not place on cluster set "x", but on a, b: a ClusterSetBinding is missing`: {"a", "b"},
	} {
		if got := (placementReference{kind: reachSet, name: "x", path: field.NewPath("p")}).refusalOutsideSets("shop", fakeSets{}, bound); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Before the sets are known, no placement is refused for them.
func TestNoSetRefusesWhileTheHubStarts(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	p.Hub = func() (Hub, bool) { return Hub{}, false }
	policy := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: web, namespace: blog}, spec: {clusterAffinity: {clusterNames: [oslo]}}}")
	wantRefusal(t, "a Placement", p.Validate(t.Context(), requestOf("ann", policy, nil), nil), "", "")
}
