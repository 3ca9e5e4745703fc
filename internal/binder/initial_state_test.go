package binder

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// startedHub is a Binder that has read its initial state, of policies of both kinds, overrides and settings.
type startedHub struct {
	*fakeTables
	*Binder
	settings *startSettings
}

// startSettings are settings of which each field is other than the zero value.
type startSettings struct {
	placement *v1alpha1.DefaultPlacement
	children  v1alpha1.ChildPlacement
	empty     bool
}

func (s *startSettings) DefaultPlacement() *v1alpha1.DefaultPlacement { return s.placement }
func (s *startSettings) ChildPlacement() v1alpha1.ChildPlacement      { return s.children }
func (s *startSettings) CreatesEmptyNamespaces() bool                 { return s.empty }
func (*startSettings) Freeze() *v1alpha1.ChangeFreeze                 { return nil }
func (*startSettings) Subscribe(func(string))                         {}

// listedBundles has the Bundles of fakeTables as a list, too.
type listedBundles struct{ bundlesByUID }

func (listedBundles) Subscribe(func(string)) {}

func (l listedBundles) List() (out []state.Bundle) {
	for _, b := range l.bundles {
		out = append(out, b)
	}
	return out
}

func newStartedHub(t *testing.T) *startedHub {
	t.Helper()
	l, _ := newShopTables(t)
	l.putObject("ClusterRole", "", "role", nil)
	l.putObject("ConfigMap", "shop", "free", nil)
	l.interpreters = script.NewLibrary(nil)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	bundle := l.bundles[id]
	bundle.Spec = v1alpha1.BundleSpec{Source: v1alpha1.BundleSource{Kind: policyKind, Name: "web", UID: "uid-x"}, Group: "g"}
	l.bundles[id] = bundle
	l.contents["b"].Rules = overridesOf("ClusterOverridePolicy/all").Rules
	h := &startedHub{fakeTables: l, settings: &startSettings{&v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}, v1alpha1.ChildPlacementParent, true}}
	options := l.binderOptions()
	names := []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap"}}
	table := &subscribedTemplates{fakeTemplates: fakeTemplates{nil, nil, l}}
	options.Templates, options.Kinds, options.Namespaces = table, table, &subscribedNamespaces{fakeNamespaces: fakeNamespaces{l}}
	options.Policies = &startPolicies{twoPolicyTables: twoPolicyTables{
		namespaced: map[string]*v1alpha1.PropagationPolicy{"web": l.policies[0]},
		cluster: map[string]*v1alpha1.ClusterPropagationPolicy{"roles": {ObjectMeta: metav1.ObjectMeta{Name: "roles"}, Spec: v1alpha1.PropagationSpec{
			ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ClusterRole"}},
		}}},
	}}
	options.Overrides = namespacedOverrides{overrideTable{Overrides: fakePolicies{nil, nil, l}, all: []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.ClusterOverrideSpec{OverrideSpec: v1alpha1.OverrideSpec{ResourceSelectors: names}}}}},
		map[string][]*v1alpha1.OverridePolicy{"shop": {{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, Spec: v1alpha1.OverrideSpec{ResourceSelectors: names}}}}}
	options.Settings, options.Bundles, options.Rows, options.Clusters = h.settings, listedBundles{bundlesByUID{fakeBundles{nil, l}}}, &subscribedRows{}, &subscribedClusters{}
	l.namespaces["shop"].Annotations = map[string]string{atoll.AnnotationClusters: "oslo"}
	h.Binder = New(options)
	h.events.put(tableEvent{namespace: "before"})
	if err := h.loadInitialState(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.loaded.Store(true)
	return h
}

// startPolicies are policies that a Binder subscribes to.
type startPolicies struct{ twoPolicyTables }

func (*startPolicies) Subscribe(func(kind, ns, name string)) {}

// A start rechecks every Bundle and template, also those without a namespace, behind the changes that follow. Events from
// before the start are dropped.
func TestAStartRechecksBundlesAndTemplates(t *testing.T) {
	h := newStartedHub(t)
	h.events.put(tableEvent{namespace: "later"})
	got := takeAllEvents(h.events)
	if len(got) != 6 || got[0] != (tableEvent{namespace: "later"}) || got[1] != (tableEvent{bundleUID: "b"}) || got[2] != (tableEvent{template: atoll.ItemKey{Kind: "ClusterRole", Name: "role"}}) {
		t.Fatalf("events %+v", got)
	}
	var names []string
	for _, e := range got[3:] {
		names = append(names, e.template.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"api", "free", "web"}) {
		t.Errorf("templates %v are rechecked", names)
	}
}

// A start is no change: events about what was read touch nothing and decide nothing again.
func TestAStartIsNoChange(t *testing.T) {
	h := newStartedHub(t)
	takeAllEvents(h.events)
	takeTouched := recordTouches(h.Binder)
	h.policyStatus = newPolicyStatusWriter(h.Binder)
	shop := policymatch.BundleID{Namespace: "shop", Name: "ns"}
	h.ownership.assignTemplate(atoll.NamespaceKey("shop"), shop, bundleOrigin{})
	h.ownership.setParent(newKey("ConfigMap", "free"), "parent")
	for what, e := range map[string]tableEvent{
		"the settings": {settingsChanged: true}, "the namespace": {namespace: "shop"}, "the interpreters": {policy: PolicyKey{Kind: script.Kind}}, "the Bundle": {bundleUID: "b"},
	} {
		h.handleEvent(e)
		if touched, forced := takeTouched(), takeForced(t, h.Binder); touched != "" || forced != "" {
			t.Errorf("%s: touches %q, decides again about %q", what, touched, forced)
		}
	}
	for _, key := range []PolicyKey{{kindClusterOverridePolicy, "", "all"}, {kindOverridePolicy, "shop", "own"}} {
		if s := h.overrideSelections[key]; s.all || len(s.kinds) != 1 {
			t.Errorf("%v selects %+v", key, s)
		}
	}
}

// A start reads what places objects: policies of both kinds and the hub's default.
func TestAStartReadsAllPolicies(t *testing.T) {
	h := newStartedHub(t)
	h.fakeTables.namespaces["shop"].Annotations = nil
	for key, want := range map[atoll.ItemKey]string{
		{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}: policyKind, {Kind: "ClusterRole", Name: "role"}: v1alpha1.SourceClusterPropagationPolicy, newKey("ConfigMap", "free"): v1alpha1.SourceHubSettings,
	} {
		if e, _ := h.ExplainTemplate(key); e.Winner == nil || e.Winner.Source.Kind != want {
			t.Errorf("%s is placed by %+v, want a %s", key, e.Winner, want)
		}
	}
}

// The contents of Bundles are known after a start: their items count as delivered, and their source and overrides are those of the
// Bundle. A Bundle without a Revision has no items.
func TestAStartReadsTheContents(t *testing.T) {
	h := newStartedHub(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	if got := h.ownership.ownItemArrivals(web); !slices.Equal(got, []itemArrival{{"b", 0}}) || !h.wasDelivered(web) {
		t.Errorf("the item came by %+v", got)
	}
	want := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web", UID: "uid-x"}, group: "g"}
	if from, _ := h.ownership.originAndPlacedKeys(id); from != want {
		t.Errorf("its source is %+v, want %+v", from, want)
	}
	if u := h.policyStatus.overrideUses[PolicyKey{kindClusterOverridePolicy, "", "all"}]; u == nil || u.bundles != 1 {
		t.Errorf("overrides are used by %+v", h.policyStatus.overridesOf)
	}
	empty := state.Bundle{Ref: enginev1.BundleRef{UID: "e", Namespace: "shop", Name: "empty"}}
	if err := h.storeLatestContent(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	if found, ok := h.ownership.findByUID("e"); !ok || found.Name != "empty" || !h.ownership.hasNoItems(found) {
		t.Errorf("a Bundle without a Revision: %v, %t", found, ok)
	}
	// Content that comes after the start has the number of its Revision.
	l := &atoll.Content{Items: []atoll.Item{{Key: newKey("ConfigMap", "late")}}}
	h.contents["e"] = l
	if err := h.storeLatestContent(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	if got := h.ownership.ownItemArrivals(newKey("ConfigMap", "late")); !slices.Equal(got, []itemArrival{{"e", 1}}) {
		t.Errorf("a later item came by %+v", got)
	}
}

// A Bundle has a Revision when it exists and one was written.
func TestWhenABundleHasARevision(t *testing.T) {
	l, b := newShopTables(t)
	web, empty := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "empty"}
	l.bundles[empty] = state.Bundle{Ref: enginev1.BundleRef{UID: "e", Namespace: "shop", Name: "empty"}}
	l.contents[""] = &atoll.Content{}
	for id, want := range map[policymatch.BundleID]bool{web: true, empty: false, {Namespace: "shop", Name: "none"}: false} {
		if got := b.hasRevision(id); got != want {
			t.Errorf("%v: %t, want %t", id, got, want)
		}
	}
}

// An object selection is the union of kinds and of names in any namespace. Without selectors it is everything.
func TestWhatAnOverrideSelects(t *testing.T) {
	selectMap := func(name string) v1alpha1.OverrideSpec {
		return v1alpha1.OverrideSpec{ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap", Name: name}}}
	}
	a, b, secret := newKey("ConfigMap", "a"), newKey("ConfigMap", "b"), newKey("Secret", "a")
	kind, name := selectMap(""), selectMap("a")
	of := func(specs ...v1alpha1.OverrideSpec) (out objectSet) {
		for i := range specs {
			out = out.unionWith(selectedByOverride(&specs[i]))
		}
		return out
	}
	for what, tc := range map[string]struct {
		set          objectSet
		whole        bool
		a, b, secret bool
	}{
		"nothing":           {objectSet{}, false, false, false, false},
		"a name":            {of(name), false, true, false, false},
		"a kind":            {of(kind), true, true, true, false},
		"a kind and a name": {of(kind, name), true, true, true, false},
		"everything":        {of(v1alpha1.OverrideSpec{}), true, true, true, true},
		"and a name":        {of(v1alpha1.OverrideSpec{}, name), true, true, true, true},
	} {
		if tc.set.hasWholeKinds() != tc.whole || tc.set.has(a) != tc.a || tc.set.has(b) != tc.b || tc.set.has(secret) != tc.secret {
			t.Errorf("%s: %+v", what, tc.set)
		}
	}
}
