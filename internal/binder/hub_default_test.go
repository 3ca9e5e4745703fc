package binder

import (
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// hubDefault is the settings of a hub.
type hubDefault struct{ d *v1alpha1.DefaultPlacement }

func (s *hubDefault) DefaultPlacement() *v1alpha1.DefaultPlacement { return s.d }
func (*hubDefault) ChildPlacement() v1alpha1.ChildPlacement        { return v1alpha1.ChildPlacementNone }
func (*hubDefault) CreatesEmptyNamespaces() bool                   { return false }
func (*hubDefault) Freeze() *v1alpha1.ChangeFreeze                 { return nil }
func (s *hubDefault) Subscribe(func(string))                       {}

func newUnplacedTemplate(kind, name string, created time.Time) *unstructured.Unstructured {
	t := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": kind}}
	t.SetNamespace("shop")
	t.SetName(name)
	t.SetUID("uid")
	t.SetCreationTimestamp(metav1.NewTime(created))
	return t
}

// newDefaultBinder returns a Binder over these templates, without policies.
func newDefaultBinder(settings *hubDefault, events Events, templates ...*unstructured.Unstructured) *Binder {
	h := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, byNamespace: map[string][]*unstructured.Unstructured{}, ownPolicies: map[[2]string]*v1alpha1.PropagationPolicy{}}
	for _, t := range templates {
		h.templates[policymatch.ItemKeyOf(t)] = t
		h.byNamespace["shop"] = append(h.byNamespace["shop"], t)
	}
	spaces := namespaceMap{}
	spaces.putNamespace("shop", "ns", "a")
	b := &Binder{
		Options:   Options{Templates: h, Kinds: h, Policies: fakeHubPolicies{fakeHub: h}, Overrides: fakeHubPolicies{fakeHub: h}, Namespaces: listedNamespaces{spaces}, Settings: settings, Events: events},
		ownership: newOwnershipIndex(), events: newEventQueue(), touchBundle: func(policymatch.BundleID) {},
		lastTemplates: map[atoll.ItemKey]templateState{},
	}
	b.unselected = newUnselectedLoop(b)
	return b
}

// eventLog collects Events that timers record.
type eventLog struct {
	mu     sync.Mutex
	events recordedRefusals
}

func (l *eventLog) RecordRefusal(key atoll.ItemKey, reason atoll.Reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events.RecordRefusal(key, reason, message)
}

func (l *eventLog) copyEvents() recordedRefusals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.events)
}

type listedNamespaces struct{ namespaceMap }

func (s listedNamespaces) List() []string { return []string{"shop"} }

// A change of the hub's default placement decides again what nothing else places, and only that.
func TestAChangeOfTheDefaultPlacementDecidesAgain(t *testing.T) {
	settings := &hubDefault{}
	free, owned := newUnplacedTemplate("Deployment", "web", time.Now()), newUnplacedTemplate("Deployment", "own", time.Now())
	b := newDefaultBinder(settings, nil, free, owned)
	ownedKey := policymatch.ItemKeyOf(owned)
	byPolicy := policymatch.BundleID{Namespace: "shop", Name: "p"}
	b.ownership.assignTemplate(ownedKey, byPolicy, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "p"}})
	b.ownership.setContent(byPolicy, "p-uid", 1, &atoll.Content{Items: []atoll.Item{{Key: ownedKey}}})

	b.defaultPlacementChanged()
	if e, ok := b.events.takeNext(); ok {
		t.Fatalf("settings without a change: %+v", e)
	}
	if b.IsPlacedOrNeeded(policymatch.SubjectFromObject(free)) || !b.IsUnexpectedlyUnplaced(policymatch.SubjectFromObject(free)) {
		t.Error("without a default, something places the object")
	}
	settings.d = &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}
	b.defaultPlacementChanged()
	e, ok := b.events.takeNext()
	if !ok || e.template != policymatch.ItemKeyOf(free) || !e.force {
		t.Fatalf("the first event is %+v, %v", e, ok)
	}
	if e, ok := b.events.takeNext(); ok {
		t.Errorf("an object of a policy is decided again: %+v", e)
	}
	if sub := policymatch.SubjectFromObject(free); b.IsPlacedFromOutsideNamespace(sub) || b.IsUnexpectedlyUnplaced(sub) || !b.IsPlacedOrNeeded(sub) {
		t.Error("the default does not place the object")
	}
	id, origin := policymatch.BundleID{Namespace: "shop", Name: "default"}, bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName}}
	if intent := b.intentOf(id, origin); intent == nil {
		t.Error("a Bundle of the default has no intent")
	}
	if settings.d = nil; b.intentOf(id, origin) != nil {
		t.Error("a Bundle of a default that is gone has an intent")
	}
}

// A new object that nothing places gets one Event after a while, with the command that places it.
func TestAnObjectThatNothingPlacesGetsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &eventLog{events: recordedRefusals{}}
		now := time.Now()
		web, old, settings := newUnplacedTemplate("Deployment", "web", now), newUnplacedTemplate("Deployment", "old", now.Add(-time.Hour)), newUnplacedTemplate("Secret", "s", now)
		settings.SetAPIVersion("v1")
		deleted := newUnplacedTemplate("Deployment", "deleted", now)
		b := newDefaultBinder(nil, log, web, old, settings)
		b.Settings = nil
		for _, o := range []*unstructured.Unstructured{web, old, settings, deleted} {
			b.assignToBundle(o)
		}
		time.Sleep(reportWaitAfter - time.Second)
		synctest.Wait()
		if events := log.copyEvents(); len(events) > 0 {
			t.Errorf("too early: %v", events)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		key, events := policymatch.ItemKeyOf(web), log.copyEvents()
		if len(events) != 1 || len(events[key]) != 1 || !strings.Contains(events[key][0], "kubectl annotate deployment/web -n shop atoll.dev/clusters='*'") {
			t.Errorf("%v", events)
		}
	})
}

// A Namespace that the default places is in the Bundle of its objects. It needs neither a finalizer nor the right to place
// objects without a namespace, and one that nothing places is no news.
func TestTheDefaultPlacesANamespaceWithItsObjects(t *testing.T) {
	settings := &hubDefault{d: &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}}
	shop := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	shop.SetName("shop")
	shop.SetUID("n")
	web := newUnplacedTemplate("Deployment", "web", time.Now())
	b := newDefaultBinder(settings, nil, shop, web)
	sub := policymatch.SubjectFromObject(shop)
	if b.IsUnexpectedlyUnplaced(sub) {
		t.Error("a namespace that nothing places is reported")
	}
	b.defaultPlacementChanged()
	if b.IsPlacedFromOutsideNamespace(sub) || b.IsPlacedOrNeeded(sub) {
		t.Error("the namespace is placed as an item")
	}
	b.assignToBundle(shop)
	b.assignToBundle(web)
	id := b.ownership.placingBundle(policymatch.ItemKeyOf(web))
	if id.Namespace != "shop" || b.ownership.placingBundle(sub.Key) != id {
		t.Errorf("the namespace is in %s, and its object in %s", b.ownership.placingBundle(sub.Key), id)
	}
	b.ownership.setContent(id, "u", 1, &atoll.Content{NamespaceAlone: true})
	if by, source := b.ownership.findHolder(sub.Key); by != id || source == nil || b.ownership.hasNoItems(id) || !b.ownership.holdsOnlyNamespace(id) {
		t.Errorf("the Bundle does not hold the namespace: %v", by)
	}
	b.ownership.setContent(id, "u", 2, &atoll.Content{Items: []atoll.Item{{Key: policymatch.ItemKeyOf(web)}}})
	if b.ownership.holdsOnlyNamespace(id) || len(b.ownership.bundlesWithItem(sub.Key)) > 0 {
		t.Error("the Bundle holds the namespace beside its object")
	}
}

// An Event about an unplaced object needs a leader, an object that is young, and the same object, still unplaced, after 10 s.
func TestWhichUnplacedObjectsGetAnEvent(t *testing.T) {
	for what, tc := range map[string]struct {
		age    time.Duration
		before func(b *Binder)
		after  func(h *fakeHub, o *unstructured.Unstructured)
		want   int
	}{
		"a new object":                {0, nil, nil, 1},
		"an object of a minute":       {time.Minute, nil, nil, 1},
		"an older one":                {time.Minute + time.Second, nil, nil, 0},
		"on a hub that does not lead": {0, func(b *Binder) { b.ReadOnly = true }, nil, 0},
		"it is gone by then": {0, nil, func(h *fakeHub, o *unstructured.Unstructured) {
			delete(h.templates, policymatch.ItemKeyOf(o))
		}, 0},
		"another has its name by then": {0, nil, func(_ *fakeHub, o *unstructured.Unstructured) { o.SetUID("another") }, 0},
		"it is placed by then": {0, nil, func(_ *fakeHub, o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{atoll.AnnotationClusters: "a"})
		}, 0},
		"it stays on the hub": {0, func(b *Binder) {
			b.Templates.(*fakeHub).templates[newDeploymentKey("web")].SetLabels(map[string]string{atoll.KeyHubOnly: "true"})
		}, nil, 0},
		"a Bundle needs it": {0, func(b *Binder) {
			b.ownership.setDependencies(policymatch.BundleID{Namespace: "shop", Name: "a"}, []atoll.ItemKey{newDeploymentKey("web")}, nil)
		}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &eventLog{events: recordedRefusals{}}
			o := newUnplacedTemplate("Deployment", "web", time.Now().Add(-tc.age))
			b := newDefaultBinder(nil, log, o)
			if b.Settings = nil; tc.before != nil {
				tc.before(b)
			}
			hub := b.Templates.(*fakeHub)
			guarded := &guardedTemplates{Templates: hub}
			b.Templates = guarded
			b.reportUnplaced(o, policymatch.SubjectFromObject(o))
			if tc.after != nil {
				guarded.mu.Lock()
				tc.after(hub, o)
				guarded.mu.Unlock()
			}
			time.Sleep(reportWaitAfter)
			synctest.Wait()
			if got := len(log.copyEvents()); got != tc.want {
				t.Errorf("%s: %d Events, want %d", what, got, tc.want)
			}
		})
	}
	b := newDefaultBinder(nil, nil)
	b.reportUnplaced(newUnplacedTemplate("Deployment", "web", time.Now()), policymatch.Subject{Key: newDeploymentKey("web")})
}

// guardedTemplates give copies, so that a test may edit the originals.
type guardedTemplates struct {
	Templates
	mu sync.Mutex
}

func (g *guardedTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, ok := g.Templates.Get(key)
	return t.DeepCopy(), ok
}

func newDeploymentKey(name string) atoll.ItemKey {
	return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}
}

// A default touches its Bundles and decides again once for each change, also about what it placed before and about objects
// without a namespace.
func TestAChangeOfTheDefaultTouchesItsBundles(t *testing.T) {
	settings := &hubDefault{}
	l, b := newShopTables(t)
	b.Settings, b.ownership = settings, newOwnershipIndex()
	l.putObject("ClusterRole", "", "r", nil)
	id, other := policymatch.BundleID{Namespace: "shop", Name: "default"}, policymatch.BundleID{Namespace: "shop", Name: "other"}
	b.ownership.assignTemplate(newDeploymentKey("web"), id, bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName}})
	b.ownership.setContent(id, "d", 1, &atoll.Content{Items: []atoll.Item{{Key: newDeploymentKey("web")}}})
	b.ownership.assignTemplate(newDeploymentKey("api"), other, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "other"}})
	b.ownership.setContent(other, "o", 1, &atoll.Content{Items: []atoll.Item{{Key: newDeploymentKey("api")}}})
	takeTouched := recordTouches(b)
	sub := policymatch.SubjectFromObject(l.templates[atoll.ItemKey{Kind: "ClusterRole", Name: "r"}])
	for _, step := range []struct {
		what    string
		now     *v1alpha1.DefaultPlacement
		forced  string
		touched string
		outside bool
	}{
		{"none", nil, "", "", false},
		{"all", &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}, "ClusterRole./r Deployment.shop/web", "shop/default", true},
		{"the same", &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}, "", "", true},
		{"another", &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterSet, Name: "edge"}, "ClusterRole./r Deployment.shop/web", "shop/default", true},
		{"none again", nil, "ClusterRole./r Deployment.shop/web", "shop/default", false},
	} {
		settings.d = step.now
		b.handleEvent(tableEvent{settingsChanged: true})
		if forced, touched := takeForced(t, b), takeTouched(); forced != step.forced || touched != step.touched {
			t.Errorf("%s: decides again about %q, touches %q; want %q and %q", step.what, forced, touched, step.forced, step.touched)
		}
		if got := b.IsPlacedFromOutsideNamespace(sub); got != step.outside {
			t.Errorf("%s: an object without a namespace is placed %t, want %t", step.what, got, step.outside)
		}
	}
}

// A setting that changes is acted on with any of the others.
func TestEachSettingIsFollowed(t *testing.T) {
	l, b := newShopTables(t)
	settings := &startSettings{children: v1alpha1.ChildPlacementNone}
	b.Settings, b.lastChildPlacement = settings, v1alpha1.ChildPlacementNone
	l.putObject("ConfigMap", "shop", "free", nil)
	b.ownership.setParent(newKey("ConfigMap", "child"), "parent")
	b.ownership.assignTemplate(atoll.NamespaceKey("shop"), policymatch.BundleID{Namespace: "shop", Name: "ns"}, bundleOrigin{})
	takeTouched := recordTouches(b)
	for _, step := range []struct {
		what            string
		change          func()
		forced, touched string
	}{
		{"the default placement", func() { settings.placement = &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll} }, "ConfigMap.shop/free", ""},
		{"children", func() { settings.children = v1alpha1.ChildPlacementParent }, "ConfigMap.shop/child", ""},
		{"empty namespaces", func() { settings.empty = true }, "", "shop/ns"},
		{"nothing", func() {}, "", ""},
	} {
		step.change()
		b.handleEvent(tableEvent{settingsChanged: true})
		if forced, touched := takeForced(t, b), takeTouched(); forced != step.forced || touched != step.touched {
			t.Errorf("%s: decides again about %q, touches %q; want %q and %q", step.what, forced, touched, step.forced, step.touched)
		}
	}
	b.Settings = nil
	if b.defaultPlacement() != nil || b.childPlacement() != v1alpha1.ChildPlacementNone || b.createsEmptyNamespaces() {
		t.Error("without settings something is placed by default")
	}
}
