package admission

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/internal/atoll"
)

// A supposed write is answered as the write itself: by RBAC first, then by the rules of admission.
func TestSupposedWritesAreRefusedAsWritesAre(t *testing.T) {
	thing := func(namespace string, labels map[string]string, annotations map[string]string) *unstructured.Unstructured {
		u := newThing(namespace, annotations)
		u.SetLabels(labels)
		return u
	}
	plain, wrong := thing("shop", nil, nil), thing("shop", nil, map[string]string{atoll.KeyHubOnly: "no"})
	protected := thing("shop", map[string]string{atoll.LabelProtected: "true"}, nil)
	decision := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: PlacementDecision, metadata: {name: d, namespace: shop}}")
	placement := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: d, namespace: shop}, spec: {clusterSets: [oslo], clusterAffinity: {clusterNames: [oslo]}, clusterAffinities: [{affinityName: a}]}}")
	const (
		things       = " things.example.com shop/t"
		notTrue      = `things.example.com "t" is forbidden: atoll.dev/hub-only is "true" or absent, and not "no"`
		cannot       = `things.example.com "t" is forbidden: user "ann" cannot `
		inShop       = ` resource "things" in API group "example.com" in the namespace "shop"`
		exclude      = `Placement.atoll.dev "d" is invalid: spec.clusterAffinities: Forbidden: clusterAffinity and clusterAffinities exclude each other: give one of them`
		decisions    = "ann create placementdecisions.atoll.dev shop/d"
		atAllObjects = `things.example.com "t" is forbidden: user "ann" cannot create resource "things" in API group "example.com" at the cluster scope`
	)
	for name, c := range map[string]struct {
		who, right string
		write      SupposedWrite
		reason     atoll.Reason
		want       string
	}{
		"created":                              {"ann", "ann create" + things, SupposedWrite{Object: plain}, "", ""},
		"created without the right":            {"ann", "ann update" + things, SupposedWrite{Object: plain}, atoll.ReasonPermissionMissing, cannot + "create" + inShop},
		"without a namespace":                  {"ann", "", SupposedWrite{Object: thing("", nil, nil)}, atoll.ReasonPermissionMissing, atAllObjects},
		"updated":                              {"ann", "ann update" + things, SupposedWrite{Object: plain, Exists: true}, "", ""},
		"patched":                              {"ann", "ann patch" + things, SupposedWrite{Object: plain, Exists: true}, "", ""},
		"updated without the right":            {"ann", "ann create" + things, SupposedWrite{Object: plain, Exists: true}, atoll.ReasonPermissionMissing, cannot + "update" + inShop},
		"deleted":                              {"ann", "ann delete" + things, SupposedWrite{Object: plain, Deleted: true, Exists: true}, "", ""},
		"deleted without the right":            {"ann", "ann update" + things, SupposedWrite{Object: plain, Deleted: true}, atoll.ReasonPermissionMissing, cannot + "delete" + inShop},
		"a protected object is deleted":        {"ann", "ann delete" + things, SupposedWrite{Object: protected, Deleted: true}, atoll.ReasonProtected, "take the label off first if it is to go"},
		"a wrong annotation":                   {"ann", "ann create" + things, SupposedWrite{Object: wrong}, atoll.ReasonInvalidField, notTrue},
		"a wrong annotation, by the hub":       {"hub", "hub create" + things, SupposedWrite{Object: wrong}, "", ""},
		"a wrong annotation, as before":        {"ann", "ann update" + things, SupposedWrite{Object: wrong, Before: wrong, Exists: true}, "", ""},
		"a wrong annotation, before unknown":   {"ann", "ann update" + things, SupposedWrite{Object: wrong, Exists: true}, atoll.ReasonInvalidField, notTrue},
		"a wrong annotation, it is made again": {"ann", "ann create" + things, SupposedWrite{Object: wrong, Before: wrong}, atoll.ReasonInvalidField, notTrue},
		"what the hub writes":                  {"ann", decisions, SupposedWrite{Object: decision}, atoll.ReasonWrittenByHub, `placementdecisions.atoll.dev "d" is forbidden: only the hub writes it`},
		"fields of a kind of the hub":          {"ann", "ann create placements.atoll.dev shop/d", SupposedWrite{Object: placement}, atoll.ReasonInvalidField, exclude},
	} {
		p := newGrantingPlugin(Hub{Templates: protectedTemplates{}}, c.right)
		wantRefusal(t, name, p.RefusalFor(t.Context(), &user.DefaultInfo{Name: c.who}, c.write), c.reason, c.want)
	}
}

// The request of a supposed write is a dry run of the plan.
func TestASupposedWriteIsADryRunOfThePlan(t *testing.T) {
	now, before := newThing("shop", map[string]string{"a": "b"}), newThing("shop", nil)
	resource := newServedMapper()
	for name, c := range map[string]struct {
		write    SupposedWrite
		op       admission.Operation
		now, old *unstructured.Unstructured
	}{
		"created":                 {SupposedWrite{Object: now}, admission.Create, now, nil},
		"updated":                 {SupposedWrite{Object: now, Before: before, Exists: true}, admission.Update, now, before},
		"updated, before unknown": {SupposedWrite{Object: now, Exists: true}, admission.Create, now, nil},
		"deleted":                 {SupposedWrite{Object: now, Before: before, Deleted: true, Exists: true}, admission.Delete, nil, before},
		"deleted, before unknown": {SupposedWrite{Object: now, Deleted: true}, admission.Delete, nil, now},
	} {
		m, err := resource.RESTMapping(now.GroupVersionKind().GroupKind())
		if err != nil {
			t.Fatal(err)
		}
		a := c.write.buildAttributes(&user.DefaultInfo{Name: "ann"}, m.Resource.GroupResource())
		is, _ := a.GetObject().(*unstructured.Unstructured)
		was, _ := a.GetOldObject().(*unstructured.Unstructured)
		if a.GetOperation() != c.op || is != c.now || was != c.old {
			t.Errorf("%s: %s of %v after %v", name, a.GetOperation(), is, was)
		}
		if !a.IsDryRun() || !isPlanDryRun(a) || a.GetResource() != m.Resource || a.GetName() != "t" || a.GetNamespace() != "shop" || a.GetSubresource() != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// The plugin of a plan decides by the sets and properties of the plan, and leaves the hub's own plugin
// as it is.
func TestAPlanDecidesByItsOwnSets(t *testing.T) {
	p := newGrantingPlugin(Hub{Sets: fakeSets{}, Properties: supposedProperties{"nodes"}, Templates: protectedTemplates{}})
	p.Foretell = func(context.Context, user.Info, *unstructured.Unstructured, bool) []string { return nil }
	plan := p.WithSets(fakeSets{all: true}, []string{"gpus"})
	hub, ok := plan.currentHub()
	if sets, known := plan.currentSets(); !ok || !known || !sets.HasUniversalSet(nil) || hub.Templates == nil {
		t.Errorf("the hub of the plan: %+v, %t", hub, ok)
	}
	if got := plan.listedProperties(); !slices.Equal(got, []string{"gpus"}) {
		t.Errorf("the plan lists %v", got)
	}
	if plan.Foretell != nil {
		t.Error("a plan makes plans")
	}
	if sets, _ := p.currentSets(); sets.HasUniversalSet(nil) || !slices.Equal(p.listedProperties(), []string{"nodes"}) || p.Foretell == nil {
		t.Error("the hub's own plugin is changed")
	}
}
