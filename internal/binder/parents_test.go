package binder

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// childSettings are the settings of a hub on which children go with their parents, or stay.
type childSettings struct{ of v1alpha1.ChildPlacement }

func (*childSettings) DefaultPlacement() *v1alpha1.DefaultPlacement { return nil }
func (s *childSettings) ChildPlacement() v1alpha1.ChildPlacement    { return s.of }
func (*childSettings) CreatesEmptyNamespaces() bool                 { return false }
func (*childSettings) Freeze() *v1alpha1.ChangeFreeze               { return nil }
func (*childSettings) Subscribe(func(string))                       {}

// definedTemplates are tables with a CRD of the kind Shop. Kinds in unsynced are not read yet.
type definedTemplates struct {
	fakeTemplates
	unsynced map[string]bool
}

func (d definedTemplates) ResourceOfKey(key atoll.ItemKey) (schema.GroupVersionResource, bool) {
	return schema.GroupVersionResource{Group: key.Group, Version: "v1", Resource: strings.ToLower(key.Kind) + "s"}, key.Group == "example.com"
}

func (d definedTemplates) IsSynced(_, kind string) bool { return !d.unsynced[kind] }
func (definedTemplates) IsNamespaced(_, kind string) (namespaced, known bool) {
	return kind != crdKind.Kind, true
}

var (
	shopParent = atoll.ItemKey{Group: "example.com", Kind: "Shop", Namespace: "shop", Name: "a"}
	shopChild  = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	shopCRD    = atoll.ItemKey{Group: crdKind.Group, Kind: crdKind.Kind, Name: "shops.example.com"}
)

// familyTables are tables with a Shop, a ConfigMap that a controller made of it, and the CRD.
type familyTables struct {
	*fakeTables
	*Binder
	settings *childSettings
	kinds    definedTemplates
	events   recordedRefusals
}

func newPlainObject(key atoll.ItemKey, apiVersion, uid string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": key.Kind}}
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	o.SetUID(types.UID(uid))
	o.SetCreationTimestamp(metav1.Now())
	return o
}

func newFamilyTables(t *testing.T) *familyTables {
	t.Helper()
	l, b := newShopTables(t)
	clear(l.templates)
	f := &familyTables{fakeTables: l, Binder: b, settings: &childSettings{v1alpha1.ChildPlacementParent}, kinds: definedTemplates{fakeTemplates{nil, nil, l}, map[string]bool{}}, events: recordedRefusals{}}
	b.ownership, b.index, b.warnedParents = newOwnershipIndex(), policyIndex{}, map[atoll.ItemKey]string{}
	l.policies, l.bundles, l.contents = nil, map[policymatch.BundleID]state.Bundle{}, map[string]*atoll.Content{}
	b.Options.Settings, b.Options.Templates, b.Options.Kinds, b.Options.Events, b.lastChildPlacement = f.settings, f.kinds, f.kinds, f.events, v1alpha1.ChildPlacementParent
	b.policyStatus = newPolicyStatusWriter(b)
	child := newPlainObject(shopChild, "v1", "child")
	yes := true
	child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Shop", Name: "a", UID: "parent", Controller: &yes}})
	crd := newPlainObject(shopCRD, "apiextensions.k8s.io/v1", "crd")
	crd.Object["spec"] = map[string]any{"group": "example.com", "names": map[string]any{"kind": "Shop"}}
	for _, o := range []*unstructured.Unstructured{newPlainObject(shopParent, "example.com/v1", "parent"), child, crd} {
		l.templates[policymatch.ItemKeyOf(o)] = o
	}
	f.setAnnotation(shopParent, atoll.AnnotationClusters, "oslo")
	return f
}

// setAnnotation annotates an object; the tables get another object, as from a watch.
func (f *familyTables) setAnnotation(key atoll.ItemKey, name, value string) {
	o := f.templates[key].DeepCopy()
	o.SetAnnotations(map[string]string{name: value})
	f.templates[key] = o
}

// handleTemplates handles the events of objects, and those that follow.
func (f *familyTables) handleTemplates(keys ...atoll.ItemKey) {
	for _, key := range keys {
		f.handleEvent(tableEvent{template: key})
		for e, ok := f.Binder.events.takeNext(); ok; e, ok = f.Binder.events.takeNext() {
			f.handleEvent(e)
		}
	}
}

// cutContent records that the Bundle of the child has been cut.
func (f *familyTables) cutContent(keys ...atoll.ItemKey) policymatch.BundleID {
	id := f.ownership.placingBundle(shopChild)
	content := &atoll.Content{}
	for _, key := range keys {
		content.Items = append(content.Items, atoll.Item{Key: key, UID: string(f.templates[key].GetUID())})
	}
	f.ownership.setContent(id, "bundle", 1, content)
	return id
}

func (f *familyTables) expectTogether(t *testing.T, what string) policymatch.BundleID {
	t.Helper()
	parent, child := f.ownership.placingBundle(shopParent), f.ownership.placingBundle(shopChild)
	if parent.Name == "" || child != parent {
		t.Fatalf("%s: the parent is in %q, the child in %q", what, parent, child)
	}
	return parent
}

func TestAChildIsInTheBundleOfItsParent(t *testing.T) {
	for what, order := range map[string][]atoll.ItemKey{"the parent first": {shopCRD, shopParent, shopChild}, "the child first": {shopChild, shopParent, shopCRD}} {
		f := newFamilyTables(t)
		f.handleTemplates(order...)
		first := f.expectTogether(t, what)
		if from, keys := f.ownership.originAndPlacedKeys(first); from.annotatedObject != shopParent || len(keys) != 2 {
			t.Errorf("%s: %+v has %v", what, from, keys)
		}
		if in := f.intentOf(first, bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "a"}, annotatedObject: shopParent}); in == nil || in.Spec.Placement.ClusterAffinity.ClusterNames[0] != "oslo" {
			t.Errorf("%s: the intent is %+v", what, in)
		}
		f.policies = []*v1alpha1.PropagationPolicy{newPolicy("shops", "")}
		f.policies[0].Spec.ResourceSelectors = []v1alpha1.ResourceSelector{{APIVersion: "example.com/v1", Kind: "Shop"}}
		f.setAnnotation(shopParent, "other", "")
		f.handleTemplates(shopParent)
		if f.ownership.placingBundle(shopParent).Name != "" || f.ownership.placingBundle(shopChild).Name != "" {
			t.Errorf("%s: without the annotation they are placed", what)
		}
		f.handleEvent(tableEvent{policy: PolicyKey{policyKind, "shop", "shops"}})
		f.handleTemplates()
		f.handleTemplates(shopCRD)
		if f.expectTogether(t, what) == first {
			t.Errorf("%s: the policy places them in the Bundle of the annotation", what)
		}
	}
}

// A parent that is not there takes no child out of a Bundle that holds it, and brings none into one.
func TestAMissingParentRemovesNoChild(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopParent, shopChild)
	id := f.cutContent(shopParent, shopChild)
	parent := f.templates[shopParent]
	delete(f.templates, shopParent)
	f.handleTemplates(shopParent)
	f.setAnnotation(shopChild, "edited", "1")
	if f.handleTemplates(shopChild); f.ownership.placingBundle(shopChild) != id {
		t.Error("the child left its Bundle")
	}

	// After a start, the child is read before its parent.
	f.ownership, f.Binder.events, f.lastTemplates = newOwnershipIndex(), newEventQueue(), map[atoll.ItemKey]templateState{}
	f.ownership.setContent(id, "bundle", 0, &atoll.Content{Items: []atoll.Item{{Key: shopChild, UID: "child"}}})
	f.ownership.recordSourceIfAbsent(id, v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "a", UID: "parent"}, "")
	if f.handleTemplates(shopChild); f.ownership.placingBundle(shopChild) != id {
		t.Error("after a start the child left its Bundle")
	}
	from, _ := f.ownership.originAndPlacedKeys(id)
	if from.annotatedObject != (atoll.ItemKey{}) {
		t.Errorf("the child is taken for the annotated object: %v", from.annotatedObject)
	}
	f.templates[shopParent] = parent
	if f.annotatedObject(id, from) != shopParent || f.intentOf(id, from) == nil {
		t.Error("the annotated parent, which is no item, is not found")
	}
	f.kinds.unsynced["Shop"] = true
	plan := bundlePlan{input: bundlecontent.Input{Chosen: []atoll.ItemKey{shopChild}}, origin: from}
	if gk, waits := f.firstUnsyncedInput(plan); !waits || gk.Kind != "Shop" {
		t.Errorf("the kind of the parent is not read: %v %v", gk, waits)
	}
	plan.origin.source.Kind = policyKind
	if gk, waits := f.firstUnsyncedInput(plan); waits {
		t.Errorf("a Bundle of a policy waits for %v", gk)
	}
	plan.origin = from
	delete(f.kinds.unsynced, "Shop")
	if gk, waits := f.firstUnsyncedInput(plan); waits {
		t.Errorf("it waits for %v", gk)
	}

	// An item of which the kind is not read counts first, and an intent needs no parent.
	f.kinds.unsynced["ConfigMap"] = true
	if gk, waits := f.firstUnsyncedInput(plan); !waits || gk.Kind != "ConfigMap" {
		t.Errorf("the kind of an item is not read, and it waits for %v, %t", gk, waits)
	}
	delete(f.kinds.unsynced, "ConfigMap")
	f.kinds.unsynced["Shop"], plan.intent = true, f.intentOf(id, from)
	if gk, waits := f.firstUnsyncedInput(plan); waits {
		t.Errorf("with an intent it waits for %v", gk)
	}

	fresh := newFamilyTables(t)
	delete(fresh.templates, shopParent)
	if fresh.handleTemplates(shopChild); fresh.ownership.placingBundle(shopChild).Name != "" {
		t.Error("a child without a parent is placed")
	}
	if e, _ := fresh.ExplainTemplate(shopChild); e.ReasonCode != atoll.ReasonParentMissing || !strings.Contains(e.Reason, "Shop/a is not on the hub") {
		t.Errorf("%s: %s", e.ReasonCode, e.Reason)
	}
}

// A parent that a user deletes keeps its children in place until the garbage collector deletes them.
func TestAChildGoesByItsOwnDeletion(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopParent, shopChild)
	id := f.cutContent(shopParent, shopChild)
	now := metav1.Now()
	gone := f.templates[shopParent].DeepCopy()
	gone.SetDeletionTimestamp(&now)
	f.templates[shopParent] = gone
	if f.handleTemplates(shopParent, shopChild); f.ownership.placingBundle(shopChild) != id {
		t.Error("the child left with its parent's deletion")
	}
	child := f.templates[shopChild].DeepCopy()
	child.SetDeletionTimestamp(&now)
	f.templates[shopChild] = child
	if f.handleTemplates(shopChild); f.ownership.placingBundle(shopChild).Name != "" || !f.ownership.wasDeleted(shopChild, "child") {
		t.Error("the child is deleted, and stays")
	}
	delete(f.templates, shopChild)
	if f.handleTemplates(shopChild); len(f.ownership.childrenOf("parent")) > 0 || len(f.ownership.allChildren()) > 0 {
		t.Error("the index keeps a child that is gone")
	}
}

func TestTheHubsSettingsDecideAboutChildren(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopParent, shopChild)
	f.expectTogether(t, "Parent")
	f.settings.of = v1alpha1.ChildPlacementNone
	f.handleEvent(tableEvent{settingsChanged: true})
	f.handleTemplates(shopCRD)
	if f.ownership.placingBundle(shopChild).Name != "" || f.ownership.placingBundle(shopParent).Name == "" {
		t.Error("None: the child is placed, or the parent is not")
	}
	f.settings.of = v1alpha1.ChildPlacementParent
	f.handleEvent(tableEvent{settingsChanged: true})
	f.handleTemplates(shopCRD)
	f.expectTogether(t, "Parent again")
}

// The statement that a kind stays on the hub reaches every object of the kind, and needs no finalizer
// on an object that was never sent. Children go on to be placed.
func TestAKindThatStaysOnTheHub(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopCRD, shopParent, shopChild)
	id := f.expectTogether(t, "before")
	sub := policymatch.SubjectFromObject(f.templates[shopParent])
	if !f.IsPlacedOrNeeded(sub) {
		t.Error("the parent is not placed")
	}
	touched := map[policymatch.BundleID]bool{}
	f.touchBundle = func(id policymatch.BundleID) { touched[id] = true }
	f.setAnnotation(shopCRD, atoll.KeyHubOnly, "true")
	f.handleTemplates(shopCRD)
	if !touched[id] {
		t.Error("the Bundle of an object of the kind is not planned again")
	}
	world := bundleWorld{f.Binder, id}
	if !world.IsHubOnly(f.templates[shopParent]) || !world.IsHubOnly(f.templates[shopCRD]) || world.IsHubOnly(f.templates[shopChild]) {
		t.Error("the definition keeps other objects on the hub than those of its kind and itself")
	}
	if f.IsPlacedOrNeeded(sub) {
		t.Error("what stays on the hub gets a finalizer")
	}
	if f.cutContent(shopParent, shopChild); !f.IsPlacedOrNeeded(sub) {
		t.Error("what is still in a content gets no finalizer")
	}
	f.expectTogether(t, "after")
	if e, _ := f.ExplainTemplate(shopParent); !strings.Contains(e.HubOnly, "shops.example.com") {
		t.Errorf("explained by %q", e.HubOnly)
	}
}

// A controller on the hub that makes something of an object which members get with its definition is
// warned, and the object gets one Event.
func TestTwoControllersAreWarnedOf(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopCRD, shopParent, shopChild)
	sub := policymatch.SubjectFromObject(f.templates[shopChild])
	warning := f.TwoControllersWarning(sub)
	if !strings.Contains(warning, "kubectl annotate shops.example.com/a -n shop atoll.dev/hub-only=true") {
		t.Errorf("the warning is %q", warning)
	}
	f.setAnnotation(shopChild, "edited", "1")
	f.handleTemplates(shopChild)
	if events := f.events[shopParent]; len(events) != 1 || !strings.HasPrefix(events[0], string(atoll.ReasonTwoControllers)+": ") {
		t.Errorf("Events %q", events)
	}
	for what, change := range map[string]func(*familyTables){
		"a parent that stays on the hub":  func(f *familyTables) { f.setAnnotation(shopCRD, atoll.KeyHubOnly, "true") },
		"a definition that is not placed": func(f *familyTables) { delete(f.templates, shopCRD) },
		"a parent that goes nowhere":      func(f *familyTables) { f.setAnnotation(shopParent, atoll.AnnotationClusters, "") },
		"a child that is old": func(f *familyTables) {
			o := f.templates[shopChild].DeepCopy()
			o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Hour)))
			f.templates[shopChild] = o
		},
		"a child that states its own clusters": func(f *familyTables) { f.setAnnotation(shopChild, atoll.AnnotationClusters, "rome") },
		"a hub that only reads":                func(f *familyTables) { f.ReadOnly = true },
		"a hub that writes no Events":          func(f *familyTables) { f.Events = nil },
	} {
		f := newFamilyTables(t)
		change(f)
		if f.handleTemplates(shopCRD, shopParent, shopChild); len(f.events) > 0 {
			t.Errorf("%s: Events %q", what, f.events)
		}
	}
}

// A preview of an edited parent shows where its children go.
func TestAPreviewOfAParentHasItsChildren(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopCRD, shopParent, shopChild)
	next := &familyTables{fakeTables: f.fakeTables.clone()}
	next.setAnnotation(shopParent, atoll.AnnotationClusters, "rome")
	tables := definedTemplates{fakeTemplates{nil, nil, next.fakeTables}, nil}
	got, err := f.PreviewBundles(t.Context(), SupposedTables{
		Templates: tables, Kinds: tables, Namespaces: f.Namespaces, Policies: f.Policies, Overrides: f.Overrides, ChangedTemplates: []atoll.ItemKey{shopParent},
	})
	if err != nil || len(got) != 1 {
		t.Fatalf("%s: %v", describePreview(got), err)
	}
	has := func(key atoll.ItemKey) bool {
		return slices.ContainsFunc(got[0].Content.Items, func(i atoll.Item) bool { return i.Key == key })
	}
	if !has(shopChild) || !has(shopParent) || got[0].Bundle.Spec.Placement.ClusterAffinity.ClusterNames[0] != "rome" {
		t.Errorf("%s", describePreview(got))
	}
	if len(f.ownership.childrenOf("parent")) != 1 {
		t.Error("the preview changed the index")
	}
}
