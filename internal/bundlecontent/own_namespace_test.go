package bundlecontent

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A Bundle carries the namespace that its source places while it has no items. It costs no tombstone and no finalizer.
func TestANamespaceIsCarriedWithoutItems(t *testing.T) {
	shop, conf := atoll.NamespaceKey("shop"), shopKey("ConfigMap", "c")
	m := newFakeHub()
	m.putTemplate(shop, "n")
	m.placers[shop] = PlacedByThis
	b := newBundleTest(t, m, true)
	b.in.OwnNamespace, b.in.Namespace, b.in.CreatesEmptyNamespace = shop, &atoll.NamespaceMeta{Labels: map[string]string{"team": "web"}}, true
	want := func(what string, alone, revision bool) {
		t.Helper()
		out := b.planNext()
		if out.Content.NamespaceAlone != alone || out.NeedsRevision != revision || len(out.NeedFinalizer)+len(out.Problems) > 0 {
			t.Errorf("%s: alone %v, revision %v, %+v", what, out.Content.NamespaceAlone, out.NeedsRevision, out.Content)
		}
	}
	want("placed", true, true)
	want("unchanged", true, false)
	b.in.CreatesEmptyNamespace = false
	want("the hub creates none any more", true, false)
	b.in.CreatesEmptyNamespace = true
	m.putTemplate(conf, "u1")
	m.placers[conf] = PlacedByThis
	want("with an object", false, true)
	m.markDeleting(conf)
	m.deleted[conf.String()+"u1"] = true
	want("its object is deleted", true, true)
	delete(m.placers, shop)
	want("nothing places it any more", true, false)
	m.placers[shop] = PlacedByOther
	want("another Bundle places it", false, true)
	want("and goes on to place it", false, false)
}

// A namespace that nothing places, that stays on the hub, or that is not read yet is not carried.
func TestWhichNamespacesAreNotCarried(t *testing.T) {
	shop := atoll.NamespaceKey("shop")
	for name, arrange := range map[string]func(*fakeHub, *Input){
		"nothing places it":     func(m *fakeHub, _ *Input) { delete(m.placers, shop) },
		"it stays on the hub":   func(m *fakeHub, _ *Input) { m.hubOnly = map[atoll.ItemKey]bool{shop: true} },
		"it is not read yet":    func(_ *fakeHub, in *Input) { in.Namespace = nil },
		"another Bundle has it": func(m *fakeHub, _ *Input) { m.placers[shop] = PlacedByOther },
		"the hub creates none":  func(_ *fakeHub, in *Input) { in.CreatesEmptyNamespace = false },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			m.putTemplate(shop, "n")
			m.placers[shop] = PlacedByThis
			b := newBundleTest(t, m, true)
			b.in.OwnNamespace, b.in.Namespace, b.in.CreatesEmptyNamespace = shop, &atoll.NamespaceMeta{}, true
			arrange(m, &b.in)
			if out := b.planNext(); out.Content.NamespaceAlone || out.NeedsRevision {
				t.Errorf("%+v", out.Content)
			}
		})
	}
}
