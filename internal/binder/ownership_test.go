package binder

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
	c.dropDeletionsUnlessHeld(key)
	expect("the template has a finalizer", true)
	c.setContent(id, "b", 2, &atoll.Content{Tombstones: []atoll.Tombstone{{Key: key, UID: "u", ReleasedFinalizers: []string{"x.dev/f"}}}})
	c.dropDeletionsUnlessHeld(key)
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
	c.dropBundleContent(all, "u0")
	if id, ok := c.findByUID("u1"); !ok || id != all || !slices.Equal(c.bundlesDependingOn(cfg), []policymatch.BundleID{all}) {
		t.Errorf("an older UID: %v, %v depend on %s", id, c.bundlesDependingOn(cfg), cfg)
	}
	c.dropBundleContent(all, "u1")
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

// A Bundle moves to another source, and leaves the index with its content and its last template.
func TestTheIndexFollowsBundlesAndSources(t *testing.T) {
	id, other := policymatch.BundleID{Namespace: "shop", Name: "a"}, policymatch.BundleID{Namespace: "blog", Name: "a"}
	first, second := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "first"}}, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "second"}, group: "g"}
	key := newKey("ConfigMap", "a")
	c := newOwnershipIndex()
	expect := func(what string, want map[string][]policymatch.BundleID, spaces ...policymatch.BundleID) {
		t.Helper()
		for name, ids := range want {
			if got := c.bundlesOfSource(policyKind, "", name); !slices.Equal(got, ids) {
				t.Errorf("%s: of %s are %v, want %v", what, name, got, ids)
			}
		}
		if got := c.bundlesInNamespace("shop"); !slices.Equal(got, spaces) {
			t.Errorf("%s: in the namespace are %v, want %v", what, got, spaces)
		}
	}
	c.assignTemplate(key, id, first)
	c.setOrigin(other, first)
	expect("placed", map[string][]policymatch.BundleID{"first": {other, id}, "second": nil}, id)
	if got := c.bundlesOfSource(policyKind, "shop", "first"); !slices.Equal(got, []policymatch.BundleID{id}) {
		t.Errorf("of the source in the namespace are %v", got)
	}
	c.assignTemplate(key, id, second)
	expect("another source", map[string][]policymatch.BundleID{"first": {other}, "second": {id}}, id)
	c.setContent(id, "u", 1, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	c.dropBundleContent(id, "u")
	expect("without content", map[string][]policymatch.BundleID{"second": {id}}, id)
	if from, keys := c.originAndPlacedKeys(id); from != second || !slices.Equal(keys, []atoll.ItemKey{key}) {
		t.Errorf("it places %v by %+v", keys, from)
	}
	c.assignTemplate(key, other, first)
	if _, keys := c.originAndPlacedKeys(id); len(keys) > 0 || c.placingBundle(key) != other {
		t.Errorf("a template that moved is in %v, and %v has %v", c.placingBundle(key), id, keys)
	}
	c.unassignTemplate(key)
	if _, keys := c.originAndPlacedKeys(other); len(keys) > 0 || c.placingBundle(key).Name != "" {
		t.Errorf("a template of no Bundle is in %v, and %v has %v", c.placingBundle(key), other, keys)
	}
	c.setContent(id, "u", 1, &atoll.Content{})
	c.dropBundleContent(id, "u")
	expect("without anything", map[string][]policymatch.BundleID{"second": nil})
	if from, keys := c.originAndPlacedKeys(id); from != (bundleOrigin{}) || keys != nil || c.isSingleObjectBundle(id) || c.holdsOnlyNamespace(id) || !c.hasNoItems(id) || c.ownItems(id) != nil {
		t.Errorf("what is left: %+v, %v", from, keys)
	}
}

// An item counts as new once. The Revision that added it stays with it, until it is gone or another Bundle has the name.
func TestWhenAnItemCame(t *testing.T) {
	a, b, ns := newKey("ConfigMap", "a"), newKey("ConfigMap", "b"), policymatch.BundleID{Namespace: "shop", Name: "x"}
	items := func(keys ...atoll.ItemKey) *atoll.Content {
		c := &atoll.Content{}
		for _, key := range keys {
			c.Items = append(c.Items, atoll.Item{Key: key})
		}
		return c
	}
	c := newOwnershipIndex()
	for _, step := range []struct {
		what    string
		uid     string
		number  int64
		content *atoll.Content
		added   []atoll.ItemKey
		came    int64 // of a
	}{
		{"the first", "u", 3, items(a), []atoll.ItemKey{a}, 3},
		{"one more", "u", 4, items(a, b), []atoll.ItemKey{b}, 3},
		{"without it", "u", 5, items(b), nil, -1},
		{"again", "u", 6, items(a, b), []atoll.ItemKey{a}, 6},
		{"of another Bundle of the name", "v", 1, items(a, b), nil, 1},
	} {
		if added := c.setContent(ns, step.uid, step.number, step.content); !slices.Equal(added, step.added) {
			t.Errorf("%s: new are %v, want %v", step.what, added, step.added)
		}
		came := int64(-1)
		for _, arrival := range c.ownItemArrivals(a) {
			came = arrival.sinceRevision
		}
		if came != step.came {
			t.Errorf("%s: it came by %d, want %d", step.what, came, step.came)
		}
	}
	if _, known := c.findByUID("u"); known {
		t.Error("the former UID is known")
	}
}

// A Bundle whose source is recorded keeps it. The annotated object of another one is that of its own items which gives
// the Bundle its name.
func TestTheSourceOfABundleThatExists(t *testing.T) {
	web, conf := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, newKey("ConfigMap", "web")
	d := policymatch.Decision{Winner: &policymatch.Candidate{Source: v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "web", UID: "w"}, Spec: &v1alpha1.PropagationSpec{}}}
	id, _ := d.BundleOf(policymatch.Subject{Key: web})
	content := &atoll.Content{Items: []atoll.Item{{Key: conf}, {Key: web}}}
	for what, tc := range map[string]struct {
		source     v1alpha1.BundleSource
		recorded   bool
		dependency bool
		want       bundleOrigin
	}{
		"an annotation":          {d.Winner.Source, false, false, bundleOrigin{source: d.Winner.Source, group: "g", annotatedObject: web}},
		"of a dependency":        {d.Winner.Source, false, true, bundleOrigin{source: d.Winner.Source, group: "g"}},
		"a policy":               {v1alpha1.BundleSource{Kind: policyKind, Name: "p"}, false, false, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "p"}, group: "g"}},
		"a source that is known": {d.Winner.Source, true, false, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "known"}}},
	} {
		c := newOwnershipIndex()
		content.Items[1].Dependency = tc.dependency
		c.setContent(id, "u", 0, content)
		if tc.recorded {
			c.setOrigin(id, tc.want)
		}
		c.recordSourceIfAbsent(id, tc.source, "g")
		if got, _ := c.originAndPlacedKeys(id); got != tc.want {
			t.Errorf("%s: %+v, want %+v", what, got, tc.want)
		}
	}
}

// The Bundles with objects of a kind are those that hold or place one. Each kind is asked about once.
func TestBundlesWithObjectsOfAKind(t *testing.T) {
	c := newOwnershipIndex()
	holds, places, other := policymatch.BundleID{Namespace: "shop", Name: "a"}, policymatch.BundleID{Namespace: "blog", Name: "b"}, policymatch.BundleID{Namespace: "shop", Name: "c"}
	c.setContent(holds, "1", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("Job", "a")}, {Key: newKey("Secret", "b")}}})
	c.assignTemplate(newKey("Job", "b"), places, bundleOrigin{})
	c.setContent(other, "3", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("Secret", "a")}}})
	asked := map[schema.GroupKind]int{}
	got := c.bundlesWithKinds(func(gk schema.GroupKind) bool { asked[gk]++; return gk.Kind == "Job" })
	if !slices.Equal(got, []policymatch.BundleID{places, holds}) || asked[schema.GroupKind{Kind: "Job"}] != 1 || asked[schema.GroupKind{Kind: "Secret"}] != 1 {
		t.Errorf("%v, asked %v", got, asked)
	}
}

// A child stays with the Bundle that holds it as its own, unless another one places it.
func TestAChildStaysWithItsHolder(t *testing.T) {
	key := newKey("ConfigMap", "a")
	needs, holds, places := policymatch.BundleID{Namespace: "shop", Name: "a"}, policymatch.BundleID{Namespace: "shop", Name: "b"}, policymatch.BundleID{Namespace: "shop", Name: "c"}
	c := newOwnershipIndex()
	c.setContent(needs, "1", 1, &atoll.Content{Items: []atoll.Item{{Key: key, Dependency: true}}})
	if c.keepWithHolder(key); c.placingBundle(key).Name != "" {
		t.Error("a dependency is placed")
	}
	c.setContent(holds, "2", 1, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	c.keepWithHolder(key)
	if _, keys := c.originAndPlacedKeys(holds); c.placingBundle(key) != holds || !slices.Equal(keys, []atoll.ItemKey{key}) {
		t.Errorf("it is in %v, with %v", c.placingBundle(key), keys)
	}
	c.assignTemplate(key, places, bundleOrigin{})
	if c.keepWithHolder(key); c.placingBundle(key) != places {
		t.Errorf("it is in %v", c.placingBundle(key))
	}
	if got := c.otherHolders(needs, key); !slices.Equal(got, []string{"2"}) {
		t.Errorf("other holders are %v", got)
	}
}
