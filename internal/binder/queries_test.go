package binder

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
)

// An override of replicas is warned of where it selects an object whose replicas are divided without it.
func TestTheFirstDividedObjectWithoutReplicaOverrides(t *testing.T) {
	divided := v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
	allowed := divided
	allowed.ReplicaOverrides = v1alpha1.AllowReplicaOverrides
	named := func(name string) []v1alpha1.ResourceSelector {
		return []v1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: name}}
	}
	for what, tc := range map[string]struct {
		scheduling v1alpha1.ReplicaScheduling
		namespace  string
		selectors  []v1alpha1.ResourceSelector
		want       string
	}{
		"all objects":                 {divided, "shop", nil, "api"},
		"all objects, any namespace":  {divided, "", nil, "api"},
		"one object":                  {divided, "shop", named("web"), "web"},
		"an object that is not there": {divided, "shop", named("db"), ""},
		"another namespace":           {divided, "blog", nil, ""},
		"overrides are allowed":       {allowed, "shop", nil, ""},
		"replicas are duplicated":     {v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}, "shop", nil, ""},
	} {
		l, b := newShopTables(t)
		l.policies[0].Spec.Placement.ReplicaScheduling = tc.scheduling
		l.interpreters = script.NewLibrary(nil)
		want := atoll.ItemKey{}
		if tc.want != "" {
			want = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: tc.want}
		}
		if got, found := b.FirstDividedWithoutReplicaOverrides(tc.namespace, tc.selectors); got != want || found != (tc.want != "") {
			t.Errorf("%s: %v, found %t; want %q", what, got, found, tc.want)
		}
	}
}

// putObject adds an object of the core group, or of apps, to the tables.
func (l *fakeTables) putObject(kind, namespace, name string, labels map[string]string) *unstructured.Unstructured {
	o := newObject(atoll.ItemKey{Kind: kind, Namespace: namespace, Name: name})
	if kind == "Deployment" {
		o.SetAPIVersion("apps/v1")
	}
	o.SetLabels(labels)
	l.templates[policymatch.ItemKeyOf(o)] = o
	return o
}

// A template is explained by its source, its Bundle, the losers with their reasons, and the Bundles that need it.
func TestATemplateIsExplained(t *testing.T) {
	l, b := newShopTables(t)
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	l.putObject("ConfigMap", "shop", "conf", map[string]string{atoll.KeyHubOnly: "true"})
	strong := newPolicy("strong", "")
	strong.Spec.Priority = 3
	l.policies = append(l.policies, strong)
	b.index.setNamespacePolicies("shop", l.policies)
	bundle := policymatch.BundleID{Namespace: "shop", Name: "web"}
	b.ownership.setDependencies(bundle, []atoll.ItemKey{conf}, nil)

	e, found := b.ExplainTemplate(web)
	if !found || e.Winner == nil || e.Winner.Source.Name != "web" || e.ReasonCode != atoll.ReasonHoldsObject || e.Bundle != bundle || e.HubOnly != "" || e.NeededBy != nil {
		t.Errorf("web: found %t, %+v", found, e)
	}
	if len(e.Others) != 1 || e.Others[0].Source.Name != "strong" || len(e.Losses) != 1 || e.Losses[0].Code != atoll.ReasonHoldsObject || !strings.Contains(e.Losses[0].Reason, "ranks higher by priority") {
		t.Errorf("the stronger policy lost by %+v", e.Losses)
	}
	e, found = b.ExplainTemplate(conf)
	if !found || e.Winner != nil || e.Losses != nil || e.Bundle != (policymatch.BundleID{}) || !slices.Equal(e.NeededBy, []policymatch.BundleID{bundle}) || !strings.Contains(e.HubOnly, atoll.KeyHubOnly) {
		t.Errorf("conf: found %t, %+v", found, e)
	}
	if e, found := b.ExplainTemplate(newKey("Secret", "gone")); found || !reflect.DeepEqual(e, Explanation{}) {
		t.Errorf("an object that is gone: found %t, %+v", found, e)
	}
}

// Queries by an object list the Bundles that hold it, or that have to do with it.
func TestBundlesAreFoundByTheirObjects(t *testing.T) {
	_, b := newShopTables(t)
	web, conf := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, newKey("ConfigMap", "conf")
	all, own, needs := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "own"}, policymatch.BundleID{Namespace: "shop", Name: "needs"}
	b.ownership.assignTemplate(web, own, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "own"}})
	b.ownership.setDependencies(needs, []atoll.ItemKey{web, conf}, nil)
	isDeployment := func(key atoll.ItemKey) bool { return key.Kind == "Deployment" }
	for what, tc := range map[string]struct{ got, want []policymatch.BundleID }{
		"they place, hold or need it": {b.BundlesInvolving(web), []policymatch.BundleID{needs, own, all}},
		"they hold it":                {b.BundlesHolding(web), []policymatch.BundleID{all}},
		"they need it":                {b.BundlesInvolving(conf), []policymatch.BundleID{needs}},
		"nothing holds it":            {b.BundlesHolding(conf), nil},
		"they hold one of its kind":   {b.BundlesHoldingAny("shop", isDeployment), []policymatch.BundleID{all}},
		"another namespace":           {b.BundlesHoldingAny("blog", isDeployment), nil},
		"they hold none of its kind":  {b.BundlesHoldingAny("shop", func(key atoll.ItemKey) bool { return key == conf }), nil},
		"nothing places or needs it":  {b.BundlesInvolving(newKey("Secret", "s")), nil},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %v, want %v", what, tc.got, tc.want)
		}
	}
}

// The annotation of a namespace leaves out what machinery made. Without the annotation nothing is left out, and
// a child that joins its parent is not.
func TestTemplatesThatANamespacesAnnotationLeavesOut(t *testing.T) {
	f := newFamilyTables(t)
	delete(f.templates, shopCRD)
	f.putObject("ConfigMap", "shop", "conf", nil)
	f.putObject("ServiceAccount", "shop", "default", nil)
	if got := f.SkippedTemplates("shop"); got != nil {
		t.Errorf("without the annotation: %v", got)
	}
	f.fakeTables.namespaces["shop"].Annotations = map[string]string{atoll.AnnotationClusters: "*"}
	account := SkippedTemplate{newKey("ServiceAccount", "default"), "made by the hub in every namespace"}
	if got := f.SkippedTemplates("shop"); !slices.Equal(got, []SkippedTemplate{account}) {
		t.Errorf("a child that joins its parent: %v, want %v", got, account)
	}
	f.settings.of = v1alpha1.ChildPlacementNone
	child := SkippedTemplate{shopChild, "made by Shop/a"}
	got := f.SkippedTemplates("shop")
	slices.SortFunc(got, func(a, b SkippedTemplate) int { return a.Key.Compare(b.Key) })
	if !slices.Equal(got, []SkippedTemplate{child, account}) {
		t.Errorf("children that stay: %v, want %v", got, []SkippedTemplate{child, account})
	}
	if got := f.SkippedTemplates("gone"); got != nil {
		t.Errorf("a namespace that is not there: %v", got)
	}
}

// An object that is being written gets a finalizer when a source places it in a cluster, or a Bundle needs it.
func TestObjectsThatGetAFinalizer(t *testing.T) {
	nowhere := map[string]string{atoll.AnnotationClusters: ""}
	for what, tc := range map[string]struct {
		change func(l *fakeTables, b *Binder, o *unstructured.Unstructured)
		want   bool
	}{
		"nothing places it": {func(*fakeTables, *Binder, *unstructured.Unstructured) {}, false},
		"its annotation places it": {func(_ *fakeTables, _ *Binder, o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{atoll.AnnotationClusters: "oslo"})
		}, true},
		"it is placed nowhere": {func(_ *fakeTables, _ *Binder, o *unstructured.Unstructured) { o.SetAnnotations(nowhere) }, false},
		"it is placed nowhere now, and a Bundle holds it": {func(_ *fakeTables, b *Binder, o *unstructured.Unstructured) {
			o.SetAnnotations(nowhere)
			b.ownership.setContent(policymatch.BundleID{Namespace: "shop", Name: "a"}, "u", 1, &atoll.Content{Items: []atoll.Item{{Key: policymatch.ItemKeyOf(o)}}})
		}, true},
		"a Bundle needs it by its name": {func(_ *fakeTables, b *Binder, o *unstructured.Unstructured) {
			b.ownership.setDependencies(policymatch.BundleID{Namespace: "shop", Name: "a"}, []atoll.ItemKey{policymatch.ItemKeyOf(o)}, nil)
		}, true},
		"a Bundle needs it by its labels": {func(_ *fakeTables, b *Binder, o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"app": "web"})
			b.ownership.selections.findMatching(atoll.Selection{Kind: "ConfigMap", Namespace: "shop", Labels: "app=web"}, policymatch.BundleID{Namespace: "shop", Name: "a"}, b.Templates)
		}, true},
		"a Bundle needs it, and it stays on the hub": {func(_ *fakeTables, b *Binder, o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{atoll.KeyHubOnly: "true"})
			b.ownership.setDependencies(policymatch.BundleID{Namespace: "shop", Name: "a"}, []atoll.ItemKey{policymatch.ItemKeyOf(o)}, nil)
		}, false},
	} {
		l, b := newShopTables(t)
		o := l.putObject("ConfigMap", "shop", "conf", nil)
		tc.change(l, b, o)
		if got := b.IsPlacedOrNeeded(policymatch.SubjectFromObject(o)); got != tc.want {
			t.Errorf("%s: %t, want %t", what, got, tc.want)
		}
	}
}

// A label protects a template against the deletion of its namespace and of the definition of its kind.
func TestTheFirstProtectedTemplate(t *testing.T) {
	l, b := newShopTables(t)
	l.putObject("ConfigMap", "shop", "a", map[string]string{atoll.LabelProtected: "false"})
	l.putObject("Secret", "blog", "s", map[string]string{atoll.LabelProtected: "true"})
	if key, found := b.FirstProtectedTemplate("shop"); found || key != (atoll.ItemKey{}) {
		t.Errorf("%v is protected", key)
	}
	l.putObject("ConfigMap", "shop", "b", map[string]string{atoll.LabelProtected: "true"})
	if key, found := b.FirstProtectedTemplate("shop"); !found || key != newKey("ConfigMap", "b") {
		t.Errorf("protected is %v, found %t", key, found)
	}
	l.putObject("ClusterRole", "", "r", map[string]string{atoll.LabelProtected: "true"})
	for kind, want := range map[string]atoll.ItemKey{
		"ConfigMap": newKey("ConfigMap", "b"), "ClusterRole": {Kind: "ClusterRole", Name: "r"}, "Deployment": {},
	} {
		if key, found := b.FirstProtectedOfKind(schema.GroupKind{Kind: kind}); key != want || found != (want != atoll.ItemKey{}) {
			t.Errorf("of kind %s %v is protected, found %t; want %v", kind, key, found, want)
		}
	}
}

// The kinds of a namespace are listed once and sorted.
func TestTheKindsOfANamespace(t *testing.T) {
	l, b := newShopTables(t)
	l.putObject("Secret", "shop", "s", nil)
	l.putObject("ConfigMap", "shop", "a", nil)
	l.putObject("ConfigMap", "shop", "b", nil)
	l.putObject("Service", "blog", "s", nil)
	want := []schema.GroupKind{{Kind: "ConfigMap"}, {Group: "apps", Kind: "Deployment"}, {Kind: "Secret"}}
	if got := b.TemplateKinds("shop"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// An object without a number of replicas divides none, and an override that selects by labels looks at the object.
func TestOverridesOfReplicasLookAtTheObject(t *testing.T) {
	l, b := newShopTables(t)
	l.interpreters = script.NewLibrary(nil)
	l.policies[0].Spec.Placement.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	conf := newKey("ConfigMap", "a")
	l.putObject("ConfigMap", "shop", "a", nil)
	from, _ := b.ownership.originAndPlacedKeys(policymatch.BundleID{Namespace: "shop", Name: "web"})
	b.ownership.assignTemplate(conf, policymatch.BundleID{Namespace: "shop", Name: "web"}, from)
	byLabel := []v1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}}}
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	if key, found := b.FirstDividedWithoutReplicaOverrides("shop", nil); !found || key.Name != "api" {
		t.Errorf("all objects: %v, found %t", key, found)
	}
	if key, found := b.FirstDividedWithoutReplicaOverrides("shop", byLabel); found {
		t.Errorf("no object has the label, and it finds %v", key)
	}
	l.templates[web].SetLabels(map[string]string{"team": "red"})
	if key, found := b.FirstDividedWithoutReplicaOverrides("shop", byLabel); !found || key != web {
		t.Errorf("by the label: %v, found %t", key, found)
	}
	delete(l.templates, web)
	if key, found := b.FirstDividedWithoutReplicaOverrides("shop", byLabel); found {
		t.Errorf("the object is gone, and it finds %v", key)
	}
	l.templates = map[atoll.ItemKey]*unstructured.Unstructured{conf: l.templates[conf]}
	if key, found := b.FirstDividedWithoutReplicaOverrides("shop", nil); found {
		t.Errorf("a ConfigMap has no replicas, and it finds %v", key)
	}
}

// A Binder answers from complete tables once it has read them.
func TestABinderIsLoadedOnceItHasReadTheContents(t *testing.T) {
	_, b := newShopTables(t)
	if b.IsLoaded() {
		t.Error("it is loaded before it runs")
	}
	b.loaded.Store(true)
	if !b.IsLoaded() {
		t.Error("it is not loaded")
	}
}
