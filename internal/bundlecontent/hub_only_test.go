package bundlecontent

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An object that is stated to stay on the hub leaves members by a tombstone, whether it was chosen, a
// dependency or kept without a source. It comes back when the statement goes.
func TestWhatIsHubOnlyLeavesMembers(t *testing.T) {
	for name, arrange := range map[string]func(*fakeHub){
		"chosen":         func(*fakeHub) {},
		"without source": func(m *fakeHub) { delete(m.placers, shopKey("Shop", "a")) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			parent, crd, child := shopKey("Shop", "a"), atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "shops"}, shopKey("ConfigMap", "c")
			m.putTemplate(parent, "u1")
			m.putTemplate(child, "u2")
			m.putTemplate(crd, "u3")
			m.crds[parent], m.placers[parent], m.placers[child] = crd, PlacedByThis, PlacedByThis
			b := newBundleTest(t, m, true)
			if out := b.planNext(); len(out.Content.Items) != 3 {
				t.Fatalf("before: %+v", out.Content.Items)
			}
			arrange(m)
			m.hubOnly = map[atoll.ItemKey]bool{parent: true, crd: true}
			out := b.planNext()
			if len(out.Content.Items) != 1 || out.Content.Items[0].Key != child || out.Content.Items[0].State != "" {
				t.Fatalf("items %+v", out.Content.Items)
			}
			if len(out.Content.Tombstones) != 2 {
				t.Fatalf("tombstones %+v", out.Content.Tombstones)
			}
			for _, tomb := range out.Content.Tombstones {
				if tomb.Cause != atoll.CauseHubOnly || tomb.Orphan {
					t.Errorf("%+v", tomb)
				}
			}
			m.hubOnly, m.placers[parent] = nil, PlacedByThis
			if out = b.planNext(); len(out.Content.Items) != 3 || len(out.Content.Tombstones) != 0 {
				t.Errorf("after: %+v, %+v", out.Content.Items, out.Content.Tombstones)
			}
		})
	}
}

// An object that was never sent makes no tombstone.
func TestWhatIsHubOnlyFromTheBeginningIsNeverSent(t *testing.T) {
	m := newFakeHub()
	parent := shopKey("Shop", "a")
	m.putTemplate(parent, "u1")
	m.placers[parent], m.hubOnly = PlacedByThis, map[atoll.ItemKey]bool{parent: true}
	if out := newBundleTest(t, m, true).planNext(); len(out.Content.Items)+len(out.Content.Tombstones) > 0 || out.NeedsRevision || len(out.NeedFinalizer) > 0 {
		t.Errorf("%+v", out)
	}
}
