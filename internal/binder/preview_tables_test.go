package binder

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// supposeSame returns tables that are those of the Binder.
func supposeSame(b *Binder) SupposedTables {
	return SupposedTables{Templates: b.Templates, Kinds: b.Kinds, Namespaces: b.Namespaces, Policies: b.Policies, Overrides: b.Overrides}
}

// previewSupposed previews the tables and describes the result.
func previewSupposed(t *testing.T, b *Binder, s SupposedTables) string {
	t.Helper()
	got, err := b.PreviewBundles(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return describePreview(got)
}

// A preview follows a change of each table that has no Bundle of its own: of a Placement, of the hub's settings, of
// override policies and of the labels of a namespace.
func TestAPreviewFollowsEachTable(t *testing.T) {
	override := func(name string) *v1alpha1.OverridePolicy {
		return &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.OverrideSpec{
			OverrideRules: []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{Replicas: new(int32)}}},
		}}
	}
	edge := types.NamespacedName{Namespace: "shop", Name: "edge"}
	for what, tc := range map[string]struct {
		change func(l *fakeTables, b *Binder) SupposedTables
		want   string
	}{
		"a Placement": {func(l *fakeTables, b *Binder) SupposedTables {
			l.policies[0].Spec.PlacementRef = &v1alpha1.PlacementRef{Name: "edge"}
			b.Placements = placementTable{edge: placementInClusters("oslo")}
			s := supposeSame(b)
			s.Placements, s.ChangedPlacements = placementTable{edge: placementInClusters("rome")}, []types.NamespacedName{edge}
			return s
		}, "web@1: api web in rome"},
		"the settings": {func(l *fakeTables, b *Binder) SupposedTables {
			l.putObject("ConfigMap", "shop", "free", nil)
			s := supposeSame(b)
			s.Settings = &hubDefault{d: &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}}
			return s
		}, "default-*@1+: free in *"},
		"the real settings": {func(l *fakeTables, b *Binder) SupposedTables {
			l.putObject("ConfigMap", "shop", "free", nil)
			b.Settings = &hubDefault{d: &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}}
			s := supposeSame(b)
			s.Settings = b.Settings
			return s
		}, ""},
		"an override goes": {func(l *fakeTables, b *Binder) SupposedTables {
			l.overrides = []*v1alpha1.OverridePolicy{override("o")}
			s := supposeSame(b)
			s.Overrides, s.ChangedPolicies = overrideTable{Overrides: b.Overrides}, []PolicyKey{{kindOverridePolicy, "shop", "o"}}
			return s
		}, "web@1: api web in *"},
		"an override of the cluster goes": {func(l *fakeTables, b *Binder) SupposedTables {
			b.Overrides = overrideTable{Overrides: b.Overrides, all: []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "o"}, Spec: v1alpha1.ClusterOverrideSpec{OverrideSpec: override("o").Spec}}}}
			s := supposeSame(b)
			s.Overrides, s.ChangedPolicies = overrideTable{Overrides: b.Overrides}, []PolicyKey{{kindClusterOverridePolicy, "", "o"}}
			return s
		}, "web@1: api web in *"},
		"an override that is not there": {func(_ *fakeTables, b *Binder) SupposedTables {
			s := supposeSame(b)
			s.ChangedPolicies = []PolicyKey{{kindOverridePolicy, "shop", "o"}}
			return s
		}, ""},
		"labels of the namespace": {func(l *fakeTables, b *Binder) SupposedTables {
			next := l.clone()
			next.namespaces = map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", Labels: map[string]string{"team": "red"}}}}
			s := supposeSame(b)
			s.Namespaces, s.ChangedNamespaces = fakeNamespaces{next}, []string{"shop"}
			return s
		}, "web@2: api web in *"},
		"the namespace, unchanged": {func(_ *fakeTables, b *Binder) SupposedTables {
			s := supposeSame(b)
			s.ChangedNamespaces = []string{"shop"}
			return s
		}, ""},
		"a Bundle that is being deleted": {func(l *fakeTables, b *Binder) SupposedTables {
			id := policymatch.BundleID{Namespace: "shop", Name: "web"}
			bundle, now := l.bundles[id], metav1.Now()
			bundle.Meta.DeletionTimestamp = &now
			l.bundles[id] = bundle
			s := supposeSame(b)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "web"}}
			return s
		}, ""},
	} {
		l, b := newShopTables(t)
		b.Settings = &hubDefault{}
		s := tc.change(l, b)
		got, err := b.PreviewBundles(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		text := describePreview(got)
		if len(got) == 1 {
			text += " in " + placementText(got[0].Bundle.Spec.Placement)
		}
		if !matchesExpected(tc.want, text) {
			t.Errorf("%s: foreseen %q, want %q", what, text, tc.want)
		}
	}
}

// A Bundle that would wait is shown with its reason and without a content. A Bundle that exists keeps its Placement.
func TestAPreviewShowsWhyABundleWaits(t *testing.T) {
	far := newPolicy("far", "api")
	far.Spec.Priority, far.Spec.Preemption, far.Spec.PlacementRef = 5, v1alpha1.PreemptAlways, &v1alpha1.PlacementRef{Name: "edge"}
	for what, tc := range map[string]struct {
		change func(l *fakeTables, s *SupposedTables)
		bundle string
		isNew  bool
		code   atoll.Reason
		reason string
	}{
		"its Placement is missing": {func(l *fakeTables, s *SupposedTables) {
			l.policies = append(l.policies, far)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "far"}}
		}, "far", true, atoll.ReasonPlacementMissing, "Placement shop/edge, which placementRef names, does not exist: what is placed stays in its clusters, and nothing new is placed. Create it, or name another"},
		"an override policy is missing": {func(l *fakeTables, s *SupposedTables) {
			p := far.DeepCopy()
			p.Spec.PlacementRef, p.Spec.DependentOverrides = nil, []string{"eu"}
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "far"}}
		}, "far", true, atoll.ReasonOverridesMissing, "nothing is sent before each OverridePolicy of dependentOverrides exists; missing: eu. Create what is missing, or edit dependentOverrides"},
		"its namespace is missing": {func(l *fakeTables, s *SupposedTables) {
			clear(l.namespaces)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "web"}}
		}, "web", false, atoll.ReasonNamespaceUnknown, "namespace shop is not there"},
		"a kind is not read": {func(l *fakeTables, s *SupposedTables) {
			s.Kinds = unsyncedKind{fakeTemplates{nil, nil, l}, "Deployment"}
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "web"}}
		}, "web", false, atoll.ReasonCannotRead, "objects of kind Deployment.apps are not read yet"},
	} {
		l, b := newShopTables(t)
		s := supposeSame(b)
		tc.change(l, &s)
		got, err := b.PreviewBundles(t.Context(), s)
		if err != nil || len(got) == 0 {
			t.Fatalf("%s: %v, %v", what, got, err)
		}
		one := got[0]
		if one.Bundle.Ref.Name != tc.bundle || one.New != tc.isNew || one.WaitCode != tc.code || one.WaitReason != tc.reason || one.Content != nil {
			t.Errorf("%s: %+v", what, one)
		}
		if tc.isNew != strings.HasPrefix(one.Bundle.Ref.UID, "new:shop/") || tc.isNew == (one.Revision != "") || one.Bundle.Spec.Source.Name != map[bool]string{true: tc.bundle}[tc.isNew] {
			t.Errorf("%s: UID %q, revision %q, source %+v", what, one.Bundle.Ref.UID, one.Revision, one.Bundle.Spec.Source)
		}
	}
	l, b := newShopTables(t)
	l.policies[0].Spec.PlacementRef = &v1alpha1.PlacementRef{Name: "gone"}
	s := supposeSame(b)
	s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "web"}}
	if got := previewSupposed(t, b, s); got != "web@1: api web" {
		t.Errorf("a Bundle that exists: %q", got)
	}
}

// A preview ends with its context, and with an error of the store.
func TestAPreviewEndsWithAnError(t *testing.T) {
	l, b := newShopTables(t)
	s := supposeSame(b)
	s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "web"}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := b.PreviewBundles(ctx, s); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("an ended context: %v, %v", got, err)
	}
	away := errors.New("the store is away")
	b.Revisions = failingRevisions{fakeRevisions{nil, l}, away}
	if got, err := b.PreviewBundles(t.Context(), s); !errors.Is(err, away) || got != nil || !strings.HasPrefix(err.Error(), "read the content that bundle shop/web has: ") {
		t.Errorf("no content: %v, %v", got, err)
	}
}

// A Bundle whose objects all move elsewhere has tombstones, which a preview shows; a new Bundle that gets nothing is not
// shown. A second change sees what the first one placed.
func TestAPreviewShowsNoEmptyNewBundle(t *testing.T) {
	l, b := newShopTables(t)
	o := l.putObject("ConfigMap", "shop", "own", nil)
	o.SetAnnotations(map[string]string{atoll.AnnotationClusters: "oslo"})
	now := metav1.Now()
	gone := o.DeepCopy()
	gone.SetDeletionTimestamp(&now)
	for what, tc := range map[string]struct {
		object *unstructured.Unstructured
		want   string
	}{
		"an object that comes": {o, "configmap-own-*@1+: own"}, "an object that is being deleted": {gone, ""},
	} {
		next := l.clone()
		next.templates[policymatch.ItemKeyOf(o)] = tc.object
		s := supposeSame(b)
		s.Templates = fakeTemplates{nil, nil, next}
		s.ChangedTemplates = []atoll.ItemKey{policymatch.ItemKeyOf(o)}
		if got := previewSupposed(t, b, s); !matchesExpected(tc.want, got) {
			t.Errorf("%s: %q, want %q", what, got, tc.want)
		}
	}
}

// newFullIndex is an index with an entry of each sort.
func newFullIndex(templates Templates) *ownershipIndex {
	c := newOwnershipIndex()
	web, api := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "api"}
	key, dep := newKey("Deployment", "web"), newKey("ConfigMap", "conf")
	c.assignTemplate(key, web, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web"}})
	c.assignTemplate(dep, api, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "api"}})
	content := &atoll.Content{Items: []atoll.Item{{Key: key}}, Tombstones: []atoll.Tombstone{{Key: dep, UID: "d", Finalizers: []string{"x.dev/f"}}}}
	c.setContent(web, "u", 0, content)
	s := atoll.Selection{Kind: "ConfigMap", Namespace: "shop", Labels: "app=web"}
	c.selections.findMatching(s, web, templates)
	c.setDependencies(web, []atoll.ItemKey{dep}, []atoll.Selection{s})
	c.recordDeletion(dep, "d")
	c.recordPendingHandovers(web, []atoll.ItemKey{dep})
	c.setParent(dep, "parent")
	return c
}

// A preview's copy of the index answers as the index does, and shares no change with it.
func TestACopyOfTheIndexIsOnItsOwn(t *testing.T) {
	l, b := newShopTables(t)
	l.putObject("ConfigMap", "shop", "conf", map[string]string{"app": "web"})
	c, untouched := newFullIndex(b.Templates), newFullIndex(b.Templates)
	copied := c.clone()
	if !reflect.DeepEqual(copied, c) {
		t.Error("the copy differs")
	}
	web, api := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "api"}
	key, dep := newKey("Deployment", "web"), newKey("ConfigMap", "conf")
	copied.markDecided(key)
	copied.setParent(dep, "")
	copied.recordPendingHandovers(web, nil)
	copied.dropBundleContent(web, "u")
	copied.dropDeletionsUnlessHeld(dep)
	copied.assignTemplate(key, api, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "other"}})
	copied.assignTemplate(newKey("Secret", "s"), policymatch.BundleID{Namespace: "shop", Name: "new"}, bundleOrigin{})
	copied.selections.templateDeleted(dep)
	copied.selections.setBundleSelections(web, nil)
	if !reflect.DeepEqual(c, untouched) {
		t.Error("a change of the copy changed the index")
	}
}
