package bundlecontent

import (
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A hook that an older hub did not read counts once its template is edited.
func TestAnUpgradeMakesNoHook(t *testing.T) {
	hook := &atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreSync}}}
	waved := &atoll.Treatment{Hook: hook.Hook, Wave: 3}
	for name, c := range map[string]struct{ now, former, want *atoll.Treatment }{
		"no hook":             {&atoll.Treatment{Wave: 1}, nil, &atoll.Treatment{Wave: 1}},
		"none at all":         {nil, nil, nil},
		"not read before":     {hook, nil, nil},
		"read in part before": {waved, &atoll.Treatment{Wave: 3}, &atoll.Treatment{Wave: 3}},
		"read before":         {waved, hook, waved},
	} {
		if got := withoutNewHook(c.now, &atoll.Item{Treatment: c.former}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if got := withoutNewHook(c.now, nil); got != c.now {
			t.Errorf("%s, edited: %+v", name, got)
		}
	}
	if waved.Hook == nil {
		t.Error("the treatment is changed")
	}
}

// The tombstone of a hook of removals is marked where a user deleted its template, so that the hook runs when all else is deleted
// with it.
func TestTombstonesOfRemovalHooks(t *testing.T) {
	a := shopKey("ConfigMap", "a")
	for name, c := range map[string]struct {
		events string
		act    func(*fakeHub)
		want   bool
	}{
		"a hook of removals":           {"PostSync,PostDelete", func(m *fakeHub) { m.markDeleting(a) }, true},
		"a hook of contents":           {"PostSync", func(m *fakeHub) { m.markDeleting(a) }, false},
		"no hook":                      {"", func(m *fakeHub) { m.markDeleting(a) }, false},
		"a hook that stays on the hub": {"PreDelete", func(m *fakeHub) { m.hubOnly = map[atoll.ItemKey]bool{a: true} }, false},
	} {
		m := newFakeHub()
		b := newBundleTest(t, m, true)
		m.putTemplate(a, "1").SetAnnotations(map[string]string{atoll.AnnotationHook: c.events})
		m.placers[a] = PlacedByThis
		b.planNext()
		c.act(m)
		for range 2 {
			out := b.planNext()
			if len(out.Content.Tombstones) != 1 || out.Content.Tombstones[0].RemovalHook != c.want {
				t.Errorf("%s: %+v", name, out.Content.Tombstones)
			}
		}
	}
}

// A Bundle is removed with its hooks once its last other object is deleted, until an object comes.
func TestABundleThatIsRemovedWithItsHooks(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	app, hook := shopKey("ConfigMap", "app"), shopKey("ConfigMap", "hook")
	m.putTemplate(app, "1")
	m.putTemplate(hook, "2").SetAnnotations(map[string]string{atoll.AnnotationHook: "PreDelete"})
	m.placers[app], m.placers[hook] = PlacedByThis, PlacedByThis
	expect := func(what string, want bool) {
		t.Helper()
		if out := b.planNext(); out.Content.IsRemovedWithHooks() != want {
			t.Errorf("%s: %s", what, formatContent(out.Content))
		}
	}
	expect("both", false)
	m.markDeleting(app)
	expect("the object is deleted", true)
	m.markDeleting(hook)
	expect("the hook is deleted", true)
	expect("the same again", true)
	m.putTemplate(shopKey("ConfigMap", "next"), "3")
	m.placers[shopKey("ConfigMap", "next")] = PlacedByThis
	expect("another object comes", false)
}
