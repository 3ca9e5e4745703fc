package bundlecontent

import (
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The rules of the source and the annotations of a template reach the item, with a Revision for each
// change. An item without any is stored as before.
func TestItemsCarryTheirTreatment(t *testing.T) {
	m := newFakeHub()
	a, b := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "b")
	m.putTemplate(a, "u1")
	m.putTemplate(b, "u2")
	m.placers[a], m.placers[b] = PlacedByThis, PlacedByThis
	w := newBundleTest(t, m, false)
	if out := w.planNext(); strings.Contains(string(atoll.EncodeContentIdentity(&out.Content)), "treatment") {
		t.Errorf("an item without a treatment is stored with one: %s", atoll.EncodeContentIdentity(&out.Content))
	}
	w.in.Intent.Spec.ItemRules = []v1alpha1.ItemRule{{
		ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}}, Update: v1alpha1.UpdateCreateOnly,
	}}
	out := w.planNext()
	if got := out.Content.Items[0].Treatment; !out.NeedsRevision || !got.IsCreateOnly() || out.Content.Items[1].Treatment != nil {
		t.Fatalf("by a rule: revision %v, %+v, %+v", out.NeedsRevision, got, out.Content.Items[1].Treatment)
	}
	m.templates[b].SetAnnotations(map[string]string{atoll.AnnotationIgnoreFields: "/data/x"})
	out = w.planNext()
	if got := out.Content.Items[1].Treatment; !out.NeedsRevision || !reflect.DeepEqual(got.IgnoredFields(), []string{"/data/x"}) {
		t.Errorf("by an annotation: revision %v, %+v", out.NeedsRevision, got)
	}
	m.templates[b].SetAnnotations(map[string]string{atoll.AnnotationUpdate: "Sometimes"})
	out = w.planNext()
	if len(out.Problems) != 1 || out.Problems[0].Key != b || !reflect.DeepEqual(out.Content.Items[1].Treatment.IgnoredFields(), []string{"/data/x"}) {
		t.Errorf("an annotation without a meaning: %+v, %+v", out.Problems, out.Content.Items[1].Treatment)
	}
}

// The removal of an item decides about its tombstone, in place of the policy's.
func TestAnItemsOwnRemoval(t *testing.T) {
	for _, c := range []struct {
		policy, own v1alpha1.RemovalMode
		orphan      bool
	}{
		{v1alpha1.RemoveDelete, "", false}, {v1alpha1.RemoveOrphan, "", true},
		{v1alpha1.RemoveDelete, v1alpha1.RemoveOrphan, true}, {v1alpha1.RemoveOrphan, v1alpha1.RemoveDelete, false},
		{v1alpha1.RemoveDelete, v1alpha1.RemoveWithBundle, true},
		{v1alpha1.RemoveDelete, v1alpha1.RemoveLast, false}, {v1alpha1.RemoveOrphan, v1alpha1.RemoveLast, false},
	} {
		m := newFakeHub()
		key, other := shopKey("ConfigMap", "a"), shopKey("ConfigMap", "b")
		m.putTemplate(key, "u1")
		m.putTemplate(other, "u2")
		m.placers[key], m.placers[other] = PlacedByThis, PlacedByThis
		w := newBundleTest(t, m, false)
		w.in.Intent.Spec.Removal.Mode = c.policy
		if c.own != "" {
			m.templates[key].SetAnnotations(map[string]string{atoll.AnnotationRemoval: string(c.own)})
		}
		w.planNext()
		m.markDeleting(key)
		out := w.planNext()
		if len(out.Content.Tombstones) != 1 || out.Content.Tombstones[0].Orphan != c.orphan || out.Content.Tombstones[0].Last != (c.own == v1alpha1.RemoveLast) {
			t.Errorf("%+v: %+v", c, out.Content.Tombstones)
		}
	}
}
