package binder

import (
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// TestAClaimIsStickyOnceItHasComeToSomething: a policy that was applied before an object wins,
// also when the object is read first and another policy selects it too.
func TestAClaimIsStickyOnceItHasComeToSomething(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	all, own := policymatch.BundleID{Namespace: "shop", Name: "all"}, policymatch.BundleID{Namespace: "shop", Name: "own"}
	c := newOwnershipIndex()
	holds := func(when, want string) {
		t.Helper()
		got := ""
		if _, source := c.findHolder(key); source != nil {
			got = source.Name
		}
		if got != want {
			t.Errorf("%s: %q holds it, want %q", when, got, want)
		}
	}
	holds("no policy selects it", "")
	c.assignTemplate(key, all, bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "all"}})
	holds("nothing is cut yet", "")
	content := &atoll.Content{Items: []atoll.Item{{Key: key}}}
	c.setContent(all, "u1", 1, content)
	holds("it is cut", "all")
	c.assignTemplate(key, own, bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "own"}})
	holds("it is about to be taken over", "own")
	c.unassignTemplate(key)
	holds("no policy selects it any more, and it is in the content", "all")
	c.setContent(all, "u1", 2, &atoll.Content{})
	holds("it is in no content", "")
	c.setContent(all, "u1", 2, &atoll.Content{Items: []atoll.Item{{Key: key, Dependency: true}}})
	holds("it is needed by something else", "")
}

// A template that is being deleted touches its Bundle while it has finalizers that members have, too.
// Its deletion is remembered as long.
func TestATemplateWithSentFinalizersTouchesTheBundleOfItsTombstone(t *testing.T) {
	key, id := newKey("ConfigMap", "a"), policymatch.BundleID{Namespace: "shop", Name: "all"}
	c := newOwnershipIndex()
	expect := func(what string, touches bool) {
		t.Helper()
		if got := slices.Contains(c.bundlesTouchedBy(key), id); got != touches || c.wasDeleted(key, "u") != touches {
			t.Errorf("%s: touches the Bundle %t, is remembered as deleted %t", what, got, c.wasDeleted(key, "u"))
		}
	}
	c.recordDeletion(key, "u")
	c.setContent(id, "b", 1, &atoll.Content{Tombstones: []atoll.Tombstone{{Key: key, UID: "u", Finalizers: []string{"x.dev/f"}}}})
	c.forgetDeletionsUnlessHeld(key)
	expect("the template has a finalizer", true)
	c.setContent(id, "b", 2, &atoll.Content{Tombstones: []atoll.Tombstone{{Key: key, UID: "u", ReleasedFinalizers: []string{"x.dev/f"}}}})
	c.forgetDeletionsUnlessHeld(key)
	expect("it has none", false)
}

// A forgotten Bundle leaves no key behind, as holder or by its dependencies.
func TestForgetBundle(t *testing.T) {
	web, cfg := newKey("Deployment", "web"), newKey("ConfigMap", "cfg")
	all, own := policymatch.BundleID{Namespace: "shop", Name: "all"}, policymatch.BundleID{Namespace: "shop", Name: "own"}
	c := newOwnershipIndex()
	c.setContent(all, "u1", 1, &atoll.Content{Items: []atoll.Item{{Key: web}}})
	c.setDependencies(all, []atoll.ItemKey{cfg}, nil)
	c.setContent(own, "u2", 1, &atoll.Content{Items: []atoll.Item{{Key: cfg}}})
	c.forgetBundleContent(all, "u0")
	if id, ok := c.findByUID("u1"); !ok || id != all || !slices.Equal(c.bundlesDependingOn(cfg), []policymatch.BundleID{all}) {
		t.Errorf("an older UID: %v, %v depend on %s", id, c.bundlesDependingOn(cfg), cfg)
	}
	c.forgetBundleContent(all, "u1")
	if _, ok := c.findByUID("u1"); ok {
		t.Error("its UID is known")
	}
	if got := c.bundlesWithItem(web); len(got) > 0 {
		t.Errorf("%v hold %s", got, web)
	}
	if got := c.bundlesDependingOn(cfg); len(got) > 0 {
		t.Errorf("%v depend on %s", got, cfg)
	}
	if got := c.bundlesWithItem(cfg); !slices.Equal(got, []policymatch.BundleID{own}) {
		t.Errorf("%v hold %s", got, cfg)
	}
	if len(c.bundles) != 1 {
		t.Errorf("%d Bundles are left", len(c.bundles))
	}
}

// A selection by name finds the Bundles of a namespace that have the object there, or outside
// namespaces.
func TestBundlesHolding(t *testing.T) {
	shop, club := policymatch.BundleID{Namespace: "shop", Name: "a"}, policymatch.BundleID{Namespace: "club", Name: "a"}
	role := atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "r"}
	clubWeb := newKey("Deployment", "web")
	clubWeb.Namespace = "club"
	c := newOwnershipIndex()
	c.setContent(shop, "u1", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("Deployment", "web")}, {Key: role}}})
	c.setContent(club, "u2", 1, &atoll.Content{Items: []atoll.Item{{Key: clubWeb}}})
	named := func(kind, group, name string) map[atoll.ItemKey]bool {
		return map[atoll.ItemKey]bool{{Group: group, Kind: kind, Name: name}: true}
	}
	for _, tc := range []struct {
		namespace string
		names     map[atoll.ItemKey]bool
		want      []policymatch.BundleID
	}{
		{"shop", named("Deployment", "", "web"), []policymatch.BundleID{shop}},
		{"club", named("Deployment", "", "web"), []policymatch.BundleID{club}},
		{"shop", named("ClusterRole", role.Group, "r"), []policymatch.BundleID{shop}},
		{"club", named("ClusterRole", role.Group, "r"), nil},
		{"shop", named("Deployment", "", "api"), nil},
	} {
		if got := c.bundlesHolding(tc.namespace, tc.names); !slices.Equal(got, tc.want) {
			t.Errorf("%v in %s: %v, want %v", tc.names, tc.namespace, got, tc.want)
		}
	}
}

// The Bundles of one namespace are found by any of their items.
func TestBundlesWithAny(t *testing.T) {
	shop, other, club := policymatch.BundleID{Namespace: "shop", Name: "a"}, policymatch.BundleID{Namespace: "shop", Name: "b"}, policymatch.BundleID{Namespace: "club", Name: "a"}
	c := newOwnershipIndex()
	c.setContent(shop, "u1", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("Service", "web")}, {Key: newKey("StatefulSet", "db")}}})
	c.setContent(other, "u2", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("Deployment", "web")}}})
	c.setContent(club, "u3", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("StatefulSet", "db")}}})
	for _, tc := range []struct {
		namespace, name string
		want            []policymatch.BundleID
	}{
		{"shop", "db", []policymatch.BundleID{shop}},
		{"shop", "web", []policymatch.BundleID{shop, other}},
		{"club", "db", []policymatch.BundleID{club}},
		{"club", "web", nil},
		{"none", "db", nil},
	} {
		if got := c.bundlesWithAny(tc.namespace, func(key atoll.ItemKey) bool { return key.Name == tc.name }); !slices.Equal(got, tc.want) {
			t.Errorf("%s in %s: %v, want %v", tc.name, tc.namespace, got, tc.want)
		}
	}
}
