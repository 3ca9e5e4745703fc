package binder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// scopedKinds are kinds of which some have no namespace, and some are not served.
type scopedKinds struct {
	fakeTemplates
	cluster, unserved, unsynced []string
}

func (k scopedKinds) IsNamespaced(_, kind string) (namespaced, known bool) {
	return !slices.Contains(k.cluster, kind), !slices.Contains(k.unserved, kind)
}
func (k scopedKinds) IsSynced(_, kind string) bool { return !slices.Contains(k.unsynced, kind) }

// A parent is the object of that UID: in the namespace of its child, or without one where its kind has none.
func TestWhereAParentIsFound(t *testing.T) {
	l, b := newShopTables(t)
	b.Kinds = scopedKinds{fakeTemplates{nil, nil, l}, []string{"Fleet"}, []string{"Unserved"}, nil}
	for _, key := range []atoll.ItemKey{{Kind: "Shop", Namespace: "shop", Name: "a"}, {Kind: "Fleet", Name: "a"}, {Kind: "Shop", Name: "bare"}, {Kind: "Unserved", Namespace: "shop", Name: "a"}} {
		l.putObject(key.Kind, key.Namespace, key.Name, nil).SetUID("uid-" + types.UID(key.Kind))
	}
	ref := func(kind, ns, name, uid string) policymatch.ParentRef {
		return policymatch.ParentRef{Key: atoll.ItemKey{Kind: kind, Namespace: ns, Name: name}, UID: uid}
	}
	for what, tc := range map[string]struct {
		ref  policymatch.ParentRef
		want bool
	}{
		"in the namespace of the child":          {ref("Shop", "shop", "a", "uid-Shop"), true},
		"of another UID":                         {ref("Shop", "shop", "a", "uid-Fleet"), false},
		"in another namespace":                   {ref("Shop", "blog", "a", "uid-Shop"), false},
		"without a namespace":                    {ref("Fleet", "shop", "a", "uid-Fleet"), true},
		"of a kind that the hub does not serve":  {ref("Unserved", "shop", "a", "uid-Unserved"), false},
		"in a namespace, of a child without one": {ref("Shop", "", "bare", "uid-Shop"), false},
		"not there":                              {ref("Shop", "shop", "gone", ""), false},
	} {
		o, found := b.findParent(tc.ref)
		if found != tc.want || found && (o.GetName() != tc.ref.Key.Name || o.GetKind() != tc.ref.Key.Kind) {
			t.Errorf("%s: found %t, want %t", what, found, tc.want)
		}
	}
}

// An ancestor is found over up to eight parents. A chain that is broken, or without a UID, has none.
func TestAnAncestorIsFoundOverItsParents(t *testing.T) {
	l, b := newShopTables(t)
	yes := true
	key := func(i int) atoll.ItemKey { return newKey("Step", fmt.Sprint(i)) }
	for i := range 11 {
		o := l.putObject("Step", "shop", fmt.Sprint(i), nil)
		o.SetUID(types.UID(fmt.Sprint("uid-", i)))
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Step", Name: fmt.Sprint(i + 1), UID: types.UID(fmt.Sprint("uid-", i+1)), Controller: &yes}})
	}
	for what, tc := range map[string]struct {
		from atoll.ItemKey
		uid  string
		want atoll.ItemKey
	}{
		"the parent":           {key(0), "uid-1", key(1)},
		"the eighth":           {key(0), "uid-8", key(8)},
		"the ninth":            {key(0), "uid-9", atoll.ItemKey{}},
		"the object itself":    {key(0), "uid-0", atoll.ItemKey{}},
		"beyond the last":      {key(10), "uid-11", atoll.ItemKey{}},
		"no UID":               {key(0), "", atoll.ItemKey{}},
		"of what is not there": {key(20), "uid-1", atoll.ItemKey{}},
	} {
		got, found := b.findAncestor(tc.from, tc.uid)
		if got != tc.want || found != (tc.want != atoll.ItemKey{}) {
			t.Errorf("%s: %v, found %t; want %v", what, got, found, tc.want)
		}
	}
}

// A parent's kind is awaited where the hub serves it or is about to, and where children follow their parents.
func TestWhichKindsOfParentsAreAwaited(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(f *familyTables, k *scopedKinds)
		want   schema.GroupKind
	}{
		"the kind is read":         {func(*familyTables, *scopedKinds) {}, schema.GroupKind{}},
		"the kind is not read":     {func(_ *familyTables, k *scopedKinds) { k.unsynced = []string{"Shop"} }, schema.GroupKind{Group: "example.com", Kind: "Shop"}},
		"it is about to be served": {func(_ *familyTables, k *scopedKinds) { k.unsynced, k.unserved = []string{"Shop"}, []string{"Shop"} }, schema.GroupKind{Group: "example.com", Kind: "Shop"}},
		"nothing defines it": {func(f *familyTables, k *scopedKinds) {
			k.unsynced, k.unserved = []string{"Shop"}, []string{"Shop"}
			delete(f.templates, shopCRD)
		}, schema.GroupKind{}},
		"children stay": {func(f *familyTables, k *scopedKinds) {
			k.unsynced = []string{"Shop"}
			f.settings.of = v1alpha1.ChildPlacementNone
		}, schema.GroupKind{}},
		"the child is gone": {func(f *familyTables, k *scopedKinds) {
			k.unsynced = []string{"Shop"}
			delete(f.templates, shopChild)
		}, schema.GroupKind{}},
		"the parent is Atoll's own": {func(f *familyTables, k *scopedKinds) {
			k.unsynced = []string{"Bundle"}
			yes := true
			f.templates[shopChild].SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "atoll.dev/v1alpha1", Kind: "Bundle", Name: "a", UID: "b", Controller: &yes}})
		}, schema.GroupKind{}},
	} {
		f := newFamilyTables(t)
		k := &scopedKinds{fakeTemplates: fakeTemplates{nil, nil, f.fakeTables}}
		tc.change(f, k)
		f.Binder.Options.Kinds = *k
		got, waits := f.unsyncedParentKind([]atoll.ItemKey{shopParent, shopChild})
		if got != tc.want || waits != (tc.want != schema.GroupKind{}) {
			t.Errorf("%s: waits %t for %v, want %v", what, waits, got, tc.want)
		}
	}
}

// A child is decided again when its parent is new or changes its Bundle, and not at other changes of the parent.
func TestWhenAParentDecidesAgainAboutItsChildren(t *testing.T) {
	f := newFamilyTables(t)
	f.ownership.setParent(shopChild, "parent")
	f.handleEvent(tableEvent{template: shopParent})
	if got := takeForced(t, f.Binder); got != "ConfigMap.shop/a" {
		t.Errorf("a new parent decides again about %q", got)
	}
	f.setAnnotation(shopParent, atoll.AnnotationClusters, "rome")
	f.handleEvent(tableEvent{template: shopParent})
	if got := takeForced(t, f.Binder); got != "" {
		t.Errorf("a parent in the same Bundle decides again about %q", got)
	}
	f.setAnnotation(shopParent, "other", "")
	f.handleEvent(tableEvent{template: shopParent})
	if got := takeForced(t, f.Binder); got != "ConfigMap.shop/a" {
		t.Errorf("a parent that leaves its Bundle decides again about %q", got)
	}
}

// A definition decides again about the objects of its kind, in all namespaces, when it begins or ceases to keep them on
// the hub. Other objects have no say.
func TestADefinitionDecidesAgainAboutItsObjects(t *testing.T) {
	f := newFamilyTables(t)
	bare := newPlainObject(atoll.ItemKey{Group: "example.com", Kind: "Shop", Name: "bare"}, "example.com/v1", "bare")
	f.templates[policymatch.ItemKeyOf(bare)] = bare
	f.handleEvent(tableEvent{template: shopCRD})
	f.handleEvent(tableEvent{template: shopParent})
	takeForced(t, f.Binder)
	f.setAnnotation(shopParent, atoll.KeyHubOnly, "true")
	f.handleEvent(tableEvent{template: shopParent})
	if got := takeForced(t, f.Binder); got != "" {
		t.Errorf("an object decides again about %q", got)
	}
	for _, value := range []string{"true", "false"} {
		f.setAnnotation(shopCRD, atoll.KeyHubOnly, value)
		f.handleEvent(tableEvent{template: shopCRD})
		if got, want := takeForced(t, f.Binder), "Shop./bare Shop.shop/a"; got != want {
			t.Errorf("%s: decides again about %q, want %q", value, got, want)
		}
	}
	f.setAnnotation(shopCRD, "other", "")
	f.handleEvent(tableEvent{template: shopCRD})
	if got := takeForced(t, f.Binder); got != "" {
		t.Errorf("another annotation decides again about %q", got)
	}
}

// Members get the definition with its object where the source sends dependencies along, or where a Bundle has it. The
// warning names the command that keeps the object on the hub.
func TestWhenTwoControllersAreWarnedOf(t *testing.T) {
	f := newFamilyTables(t)
	delete(f.events, shopParent)
	child := policymatch.SubjectFromObject(f.templates[shopChild])
	parent := policymatch.SubjectFromObject(f.templates[shopParent])
	spec := &v1alpha1.PropagationSpec{}
	d := policymatch.Decision{Winner: &policymatch.Candidate{Spec: spec}, Parent: &parent}
	if got := f.twoControllersWarning(d); got != "" {
		t.Errorf("members have no definition: %q", got)
	}
	spec.PropagateDeps = true
	want := "a controller on the hub acts on Shop a, and members get it with its definition, so that a controller there may act on it, too. To keep it on the hub: kubectl annotate shops.example.com/a -n shop atoll.dev/hub-only=true"
	if got := f.twoControllersWarning(d); got != want {
		t.Errorf("with dependencies: %q, want %q", got, want)
	}
	spec.PropagateDeps = false
	f.ownership.setDependencies(policymatch.BundleID{Namespace: "shop", Name: "a"}, []atoll.ItemKey{shopCRD}, nil)
	if got := f.twoControllersWarning(d); got != want {
		t.Errorf("a Bundle needs the definition: %q, want %q", got, want)
	}
	for what, d := range map[string]policymatch.Decision{
		"nothing places it": {Parent: &parent}, "it has no parent": {Winner: d.Winner},
		"it goes nowhere": {Winner: &policymatch.Candidate{Spec: &v1alpha1.PropagationSpec{Placement: placementInClusters("")}}, Parent: &parent},
	} {
		if got := f.twoControllersWarning(d); got != "" {
			t.Errorf("%s: %q", what, got)
		}
	}

	o := f.templates[shopChild]
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-30 * time.Second)))
	for range 2 {
		f.recordTwoControllersEvent(o, d)
	}
	another := parent
	another.UID = "another"
	f.recordTwoControllersEvent(o, policymatch.Decision{Winner: d.Winner, Parent: &another})
	if got := f.events[shopParent]; len(got) != 2 || got[0] != string(atoll.ReasonTwoControllers)+": "+want || strings.Count(got[1], want) != 1 {
		t.Errorf("Events %q of %s", got, child.Key)
	}
}

// A child is placed from outside its namespace when the object that places it has none.
func TestAChildIsPlacedFromOutsideItsNamespace(t *testing.T) {
	for _, outside := range []bool{true, false} {
		f := newFamilyTables(t)
		if outside {
			k := scopedKinds{fakeTemplates: fakeTemplates{nil, nil, f.fakeTables}, cluster: []string{"Shop"}}
			f.Binder.Options.Kinds = k
			parent := f.templates[shopParent]
			delete(f.templates, shopParent)
			parent.SetNamespace("")
			f.templates[policymatch.ItemKeyOf(parent)] = parent
		}
		sub := policymatch.SubjectFromObject(f.templates[shopChild])
		if d, _ := f.decidePlacingSource(sub); d.Winner == nil || d.Root == nil {
			t.Fatalf("outside %t: the child is not placed: %s", outside, d.Reason)
		}
		if got := f.IsPlacedFromOutsideNamespace(sub); got != outside {
			t.Errorf("placed from outside %t, want %t", got, outside)
		}
	}
	f := newFamilyTables(t)
	if f.setAnnotation(shopParent, "other", ""); f.IsPlacedFromOutsideNamespace(policymatch.SubjectFromObject(f.templates[shopChild])) {
		t.Error("an object that nothing places is placed from outside")
	}
}
