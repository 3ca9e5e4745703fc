package bundlecontent

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A tombstone releases exactly the finalizers that were sent and that the template lost during its
// deletion. Each release is a Revision, so that members get it.
func TestATombstoneReleasesTheFinalizersThatItsTemplateLost(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	a := shopKey("ConfigMap", "a")
	m.putTemplate(a, "1").SetFinalizers([]string{"x.dev/one", "x.dev/two", atoll.Finalizer})
	m.placers[a] = PlacedByThis
	b.planNext()
	expect := func(what string, revisions int, kept, released []string) {
		t.Helper()
		b.planNext()
		tombstones := b.in.Previous.Tombstones
		if len(tombstones) != 1 || !slices.Equal(tombstones[0].Finalizers, kept) || !slices.Equal(tombstones[0].ReleasedFinalizers, released) || b.revisions != revisions {
			t.Errorf("%s: %+v after %d revisions, want %q and %q after %d", what, tombstones, b.revisions, kept, released, revisions)
		}
	}
	setFinalizers := func(names ...string) {
		o := m.templates[a].DeepCopy()
		o.SetFinalizers(append(names, atoll.Finalizer))
		m.templates[a] = o
	}
	m.markDeleting(a)
	expect("deleted", 2, []string{"x.dev/one", "x.dev/two"}, nil)
	setFinalizers("x.dev/two", "x.dev/never-sent")
	expect("one is removed", 3, []string{"x.dev/two"}, []string{"x.dev/one"})
	template := m.templates[a]
	delete(m.templates, a)
	expect("missing without a deletion that was seen", 3, []string{"x.dev/two"}, []string{"x.dev/one"})
	m.templates[a] = template
	setFinalizers("x.dev/never-sent")
	expect("both are removed", 4, nil, []string{"x.dev/one", "x.dev/two"})
}

// A template that is gone after a deletion that was seen has lost its finalizers. One that moved
// or stays on the hub releases none.
func TestFinalizersAreReleasedByADeletionOnly(t *testing.T) {
	a := shopKey("ConfigMap", "a")
	for name, tc := range map[string]struct {
		act      func(*fakeHub)
		released bool
	}{
		"deleted and gone": {func(m *fakeHub) { delete(m.templates, a); m.deleted[a.String()+"1"] = true }, true},
		"kept on the hub":  {func(m *fakeHub) { m.hubOnly = map[atoll.ItemKey]bool{a: true} }, false},
		"moved":            {func(m *fakeHub) { m.placers[a], m.held[a], m.holders[a] = PlacedByOther, true, []string{"b2"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			b := newBundleTest(t, m, true)
			m.putTemplate(a, "1").SetFinalizers([]string{"x.dev/one", atoll.Finalizer})
			m.placers[a] = PlacedByThis
			b.planNext()
			tc.act(m)
			out := b.planNext()
			if len(out.Content.Tombstones) != 1 {
				t.Fatalf("%s", formatContent(out.Content))
			}
			if got := out.Content.Tombstones[0]; len(got.ReleasedFinalizers) > 0 != tc.released || len(got.Finalizers) > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}
