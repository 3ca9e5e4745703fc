package binder

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// recordTouches collects the Bundles that are touched. The returned function takes their names, sorted, each once.
func recordTouches(b *Binder) (takeTouched func() string) {
	touched := map[string]bool{}
	b.touchBundle = func(id policymatch.BundleID) { touched[id.String()] = true }
	return func() string {
		var names []string
		for name := range touched {
			names = append(names, name)
		}
		clear(touched)
		slices.Sort(names)
		return strings.Join(names, " ")
	}
}

// takeForced takes the events that wait, and returns the templates that are decided again although nothing of
// them changed, sorted by name.
func takeForced(t *testing.T, b *Binder) string {
	t.Helper()
	var names []string
	for _, e := range takeAllEvents(b.events) {
		if e != (tableEvent{template: e.template, force: true}) {
			t.Errorf("the event is %+v", e)
		}
		names = append(names, e.template.Kind+"."+e.template.Namespace+"/"+e.template.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Each event touches the Bundles that it concerns, and no others.
func TestAnEventTouchesTheBundlesThatItConcerns(t *testing.T) {
	id := func(name string) policymatch.BundleID { return policymatch.BundleID{Namespace: "shop", Name: name} }
	for what, tc := range map[string]struct {
		prepare func(l *fakeTables, b *Binder)
		event   tableEvent
		want    string
	}{
		"kinds are synced": {func(_ *fakeTables, b *Binder) {
			b.ownership.setWaitsForSync(id("a"), true)
			b.ownership.setWaitsForSync(id("b"), false)
		}, tableEvent{kindsSynced: true}, "shop/a"},
		"a cluster changes": {func(_ *fakeTables, b *Binder) {
			b.ownership.assignTemplate(newKey("Secret", "s"), id("c"), bundleOrigin{})
			b.ownership.recordPendingHandovers(id("a"), []atoll.ItemKey{newKey("Secret", "s")})
		}, tableEvent{clustersChanged: true}, "shop/a"},
		"rows of a Bundle with items": {nil, tableEvent{rowsOfBundle: "b"}, ""},
		"rows of a Bundle with a removal to confirm, in no cluster": {func(_ *fakeTables, b *Binder) {
			b.ownership.setContent(id("web"), "b", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("ConfigMap", "a"), State: atoll.ItemUnconfirmed}}})
			b.Rows = reportedRows{}
		}, tableEvent{rowsOfBundle: "b"}, "shop/web"},
		"rows of a Bundle with a removal to confirm, in a cluster": {func(_ *fakeTables, b *Binder) {
			b.ownership.setContent(id("web"), "b", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("ConfigMap", "a"), State: atoll.ItemUnconfirmed}}})
			b.Rows = reportedRows{rows: map[string][]state.Row{"b": {{Spec: atoll.RowSpec{Phase: atoll.RowActive}}}}}
		}, tableEvent{rowsOfBundle: "b"}, ""},
		"rows of a Bundle of its own":    {nil, tableEvent{rowsOfBundle: "unknown"}, ""},
		"rows of a Bundle without items": {func(_ *fakeTables, b *Binder) { b.ownership.setContent(id("empty"), "e", 1, &atoll.Content{}) }, tableEvent{rowsOfBundle: "e"}, "shop/empty"},
		"rows of a Bundle for which another one waits": {func(_ *fakeTables, b *Binder) {
			b.ownership.recordPendingHandovers(id("a"), []atoll.ItemKey{{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}})
		}, tableEvent{rowsOfBundle: "b"}, "shop/a"},
		"a Bundle that is as it was":            {nil, tableEvent{bundleUID: "b"}, ""},
		"a Bundle, on a hub that does not lead": {func(_ *fakeTables, b *Binder) { b.ReadOnly = true }, tableEvent{bundleUID: "b"}, "shop/web"},
		"a Bundle that is gone":                 {func(l *fakeTables, _ *Binder) { clear(l.bundles) }, tableEvent{bundleUID: "b"}, "shop/web"},
		"a Bundle that was never there":         {nil, tableEvent{bundleUID: "unknown"}, ""},
		"nothing":                               {nil, tableEvent{}, ""},
	} {
		l, b := newShopTables(t)
		b.Bundles, b.policyStatus = bundlesByUID{fakeBundles{nil, l}}, newPolicyStatusWriter(b)
		if tc.prepare != nil {
			tc.prepare(l, b)
		}
		takeTouched := recordTouches(b)
		b.handleEvent(tc.event)
		if got := takeTouched(); got != tc.want {
			t.Errorf("%s: touches %q, want %q", what, got, tc.want)
		}
	}
}

// A Bundle that is gone is forgotten: its content, its overrides and the last decision about it.
func TestABundleThatIsGoneIsForgotten(t *testing.T) {
	l, b := newShopTables(t)
	b.Bundles, b.policyStatus = bundlesByUID{fakeBundles{nil, l}}, newPolicyStatusWriter(b)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	b.policyStatus.recordUsedOverrides(id, overridesOf("ClusterOverridePolicy/all"))
	b.lastRecallDecision["b"] = "plan"
	clear(l.bundles)
	b.handleEvent(tableEvent{bundleUID: "b"})
	if _, known := b.ownership.findByUID("b"); known || len(b.policyStatus.overridesOf) > 0 || len(b.lastRecallDecision) > 0 || !b.ownership.hasNoItems(id) {
		t.Errorf("known %t, overrides %v, decisions %v", known, b.policyStatus.overridesOf, b.lastRecallDecision)
	}
}

// A template touches the Bundle that it leaves and the one that it joins. One that no user changed touches none,
// unless it is decided again.
func TestATemplateTouchesTheBundlesThatItLeavesAndJoins(t *testing.T) {
	l, b := newShopTables(t)
	takeTouched := recordTouches(b)
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	conf := newKey("ConfigMap", "conf")
	b.ownership.setDependencies(policymatch.BundleID{Namespace: "shop", Name: "needs"}, []atoll.ItemKey{conf, web}, nil)
	now := metav1.NewTime(time.Unix(1, 0))
	for _, step := range []struct {
		what   string
		change func()
		event  tableEvent
		want   string
		placed string
	}{
		{"first seen", func() {}, tableEvent{template: web}, "shop/needs shop/web", "web"},
		{"unchanged", func() {}, tableEvent{template: web}, "", "web"},
		{"only its status", func() {
			l.templates[web] = l.templates[web].DeepCopy()
			l.templates[web].Object["status"] = map[string]any{"replicas": int64(1)}
		}, tableEvent{template: web}, "", "web"},
		{"decided again", func() {}, tableEvent{template: web, force: true}, "shop/needs shop/web", "web"},
		{"placed nowhere while it is held", func() {
			l.templates[web] = newDeployment("shop", "web", "web:2", 2)
			l.templates[web].SetAnnotations(map[string]string{atoll.AnnotationClusters: ""})
		}, tableEvent{template: web}, "shop/deployment-web-* shop/needs shop/web", "deployment-web-*"},
		{"a policy again", func() { l.templates[web] = newDeployment("shop", "web", "web:3", 3) }, tableEvent{template: web}, "shop/deployment-web-* shop/needs shop/web", "web"},
		{"it is being deleted", func() { l.templates[web] = l.templates[web].DeepCopy(); l.templates[web].SetDeletionTimestamp(&now) }, tableEvent{template: web}, "shop/needs shop/web", ""},
		{"it is gone", func() { delete(l.templates, web) }, tableEvent{template: web}, "shop/needs shop/web", ""},
		{"what a Bundle needs comes", func() { l.putObject("ConfigMap", "shop", "conf", nil) }, tableEvent{template: conf}, "shop/needs", ""},
	} {
		step.change()
		b.handleEvent(step.event)
		got, placed := takeTouched(), b.ownership.placingBundle(web).Name
		if !matchesExpected(step.placed, placed) {
			t.Errorf("%s: placed by %q, want %q", step.what, placed, step.placed)
		}
		if !matchesExpected(step.want, got) {
			t.Errorf("%s: touches %q, want %q", step.what, got, step.want)
		}
	}
	if !b.ownership.wasDeleted(web, "uid-shopweb") {
		t.Error("its deletion is not remembered")
	}
}

// A template that is gone without a deletion that was seen leaves its Bundle, and is not remembered as deleted.
func TestATemplateThatIsGoneLeavesItsBundle(t *testing.T) {
	l, b := newShopTables(t)
	takeTouched := recordTouches(b)
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	b.handleEvent(tableEvent{template: web})
	takeTouched()
	delete(l.templates, web)
	b.handleEvent(tableEvent{template: web})
	if got := takeTouched(); got != "shop/web" || b.ownership.placingBundle(web).Name != "" || b.ownership.wasDeleted(web, "uid-shopweb") {
		t.Errorf("touches %q, placed by %v", got, b.ownership.placingBundle(web))
	}
}

// A template that is gone leaves nothing in memory. One that comes back is seen as new.
func TestATemplateThatIsGoneIsForgotten(t *testing.T) {
	f := newFamilyTables(t)
	f.Fingerprints = &FingerprintCache{}
	f.handleTemplates(shopParent, shopChild)
	f.warnedParents[shopChild] = "uid"
	f.ownership.selections.findMatching(atoll.Selection{Kind: "ConfigMap", Namespace: "shop"}, policymatch.BundleID{Namespace: "shop", Name: "a"}, f.Templates)
	child := f.templates[shopChild]
	delete(f.templates, shopChild)
	f.handleTemplates(shopChild)
	if _, known := f.lastTemplates[shopChild]; known || f.warnedParents[shopChild] != "" || len(f.ownership.family.parentUIDs) > 0 || len(f.ownership.selections.byMatchedKey) > 0 || len(f.Fingerprints.entries) != 1 {
		t.Errorf("states %v, warned %v, parents %v, matches %v, %d fingerprints", f.lastTemplates, f.warnedParents, f.ownership.family.parentUIDs, f.ownership.selections.byMatchedKey, len(f.Fingerprints.entries))
	}
	f.templates[shopChild] = child
	if f.handleTemplates(shopChild); f.ownership.placingBundle(shopChild).Name == "" {
		t.Error("an object that comes back is not placed")
	}
}

// In a namespace that is being deleted nothing more is placed, and nothing loses its Bundle.
func TestTemplatesOfATerminatingNamespaceKeepTheirBundle(t *testing.T) {
	l, b := newShopTables(t)
	takeTouched := recordTouches(b)
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	now := metav1.Now()
	l.namespaces["shop"].DeletionTimestamp = &now
	l.policies = nil
	b.index.setNamespacePolicies("shop", nil)
	b.handleEvent(tableEvent{template: web})
	if got := takeTouched(); got != "" || b.ownership.placingBundle(web).Name != "web" {
		t.Errorf("touches %q, placed by %v", got, b.ownership.placingBundle(web))
	}
	l.templates[web].SetDeletionTimestamp(&now)
	b.handleEvent(tableEvent{template: web})
	if got := takeTouched(); got != "shop/web" || b.ownership.placingBundle(web).Name != "" {
		t.Errorf("a deleted object touches %q, placed by %v", got, b.ownership.placingBundle(web))
	}
}

// An object that is placed nowhere joins no Bundle. One that a Bundle holds joins, so that its removal is planned.
func TestAnObjectThatIsPlacedNowhereJoinsNoBundle(t *testing.T) {
	l, b := newShopTables(t)
	for _, held := range []bool{false, true} {
		o := l.putObject("ConfigMap", "shop", "conf", nil)
		o.SetAnnotations(map[string]string{atoll.AnnotationClusters: ""})
		key := policymatch.ItemKeyOf(o)
		if held {
			b.ownership.setContent(policymatch.BundleID{Namespace: "shop", Name: "a"}, "u", 1, &atoll.Content{Items: []atoll.Item{{Key: key}}})
		}
		b.assignToBundle(o)
		if got := b.ownership.placingBundle(key).Name != ""; got != held {
			t.Errorf("held %t: placed %t", held, got)
		}
	}
}

// A child whose parent is missing leaves a Bundle that does not hold it yet, because nothing is removed.
func TestAChildThatIsNotHeldLeavesWithItsParent(t *testing.T) {
	f := newFamilyTables(t)
	f.handleTemplates(shopParent, shopChild)
	f.expectTogether(t, "before")
	delete(f.templates, shopParent)
	f.setAnnotation(shopChild, "edited", "1")
	if f.handleTemplates(shopParent, shopChild); f.ownership.placingBundle(shopChild).Name != "" {
		t.Error("the child is placed without its parent")
	}
}

// newPolicyTables has objects in three places, and policies of both kinds that the caller changes.
func newPolicyTables(t *testing.T) (*fakeTables, *Binder, twoPolicyTables) {
	t.Helper()
	l, b := newShopTables(t)
	table := twoPolicyTables{namespaced: map[string]*v1alpha1.PropagationPolicy{}, cluster: map[string]*v1alpha1.ClusterPropagationPolicy{}}
	b.Policies, b.ownership, b.index = table, newOwnershipIndex(), policyIndex{}
	b.policyStatus = newPolicyStatusWriter(b)
	clear(l.templates)
	l.putObject("ConfigMap", "shop", "red", map[string]string{"team": "red"})
	l.putObject("ConfigMap", "shop", "blue", map[string]string{"team": "blue"})
	l.putObject("Secret", "shop", "s", nil)
	l.putObject("ConfigMap", "blog", "red", map[string]string{"team": "red"})
	l.putObject("ClusterRole", "", "r", nil)
	return l, b, table
}

// A policy decides again about the objects that it selects or selected, in its namespaces, and about those that its
// Bundles have. It touches its Bundles, and its status follows.
func TestAPolicyDecidesAgainAboutItsObjects(t *testing.T) {
	selects := func(selectors ...v1alpha1.ResourceSelector) v1alpha1.PropagationSpec {
		return v1alpha1.PropagationSpec{ResourceSelectors: selectors}
	}
	named := func(kind, name string) v1alpha1.ResourceSelector {
		return v1alpha1.ResourceSelector{APIVersion: "v1", Kind: kind, Name: name}
	}
	labelled := v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ConfigMap", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}}
	none := v1alpha1.PropagationSpec{}
	for what, tc := range map[string]struct {
		kind        string
		before, now v1alpha1.PropagationSpec
		want        string
	}{
		"a name":                        {policyKind, none, selects(named("ConfigMap", "red")), "ConfigMap.shop/red"},
		"a name that is not there":      {policyKind, none, selects(named("ConfigMap", "green")), ""},
		"another name":                  {policyKind, selects(named("ConfigMap", "red")), selects(named("ConfigMap", "blue")), "ConfigMap.shop/blue ConfigMap.shop/red"},
		"a label":                       {policyKind, none, selects(labelled), "ConfigMap.shop/red"},
		"a label no more":               {policyKind, selects(labelled), none, "ConfigMap.shop/red"},
		"a kind in place of a label":    {policyKind, selects(labelled), selects(named("ConfigMap", "")), "ConfigMap.shop/blue ConfigMap.shop/red"},
		"a kind of which there is none": {policyKind, none, selects(named("Pod", "")), ""},
		"a cluster policy by name":      {v1alpha1.SourceClusterPropagationPolicy, none, selects(named("ConfigMap", "red")), "ConfigMap.shop/red"},
		"a cluster policy by kind":      {v1alpha1.SourceClusterPropagationPolicy, none, selects(named("ClusterRole", "")), "ClusterRole./r"},
		"a cluster policy of Secrets":   {v1alpha1.SourceClusterPropagationPolicy, selects(named("Secret", "")), none, "Secret.shop/s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, b, table := newPolicyTables(t)
			takeDue, takeTouched := recordPolicyQueue(t, b), recordTouches(b)
			key := PolicyKey{tc.kind, "shop", "p"}
			if tc.kind != policyKind {
				key.Namespace = ""
			}
			put := func(spec v1alpha1.PropagationSpec) {
				delete(table.namespaced, "p")
				delete(table.cluster, "p")
				meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: "p"}
				switch {
				case len(spec.ResourceSelectors) == 0:
				case tc.kind == policyKind:
					table.namespaced["p"] = &v1alpha1.PropagationPolicy{ObjectMeta: meta, Spec: spec}
				default:
					table.cluster["p"] = &v1alpha1.ClusterPropagationPolicy{ObjectMeta: meta, Spec: spec}
				}
			}
			put(tc.before)
			b.handleEvent(tableEvent{policy: key})
			takeForced(t, b)
			takeTouched()
			takeDue()
			b.ownership.setOrigin(policymatch.BundleID{Namespace: "shop", Name: "p"}, bundleOrigin{source: v1alpha1.BundleSource{Kind: tc.kind, Name: "p"}})
			b.ownership.setOrigin(policymatch.BundleID{Namespace: "shop", Name: "other"}, bundleOrigin{source: v1alpha1.BundleSource{Kind: tc.kind, Name: "other"}})
			put(tc.now)
			b.handleEvent(tableEvent{policy: key})
			if got := takeForced(t, b); got != tc.want {
				t.Errorf("%s: decides again about %q, want %q", what, got, tc.want)
			}
			if got := takeTouched(); got != "shop/p" {
				t.Errorf("%s: touches %q", what, got)
			}
			if got := takeDue(); !slices.Equal(got, []PolicyKey{key}) {
				t.Errorf("%s: statuses of %v", what, got)
			}
		})
	}
}

// A policy that goes decides again about what its Bundles place or hold as their own, although it selects that no more.
func TestAPolicyDecidesAgainAboutWhatItsBundlesHave(t *testing.T) {
	_, b, _ := newPolicyTables(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "p"}
	from := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "p"}}
	b.ownership.assignTemplate(newKey("ConfigMap", "red"), id, from)
	b.ownership.setContent(id, "u", 1, &atoll.Content{Items: []atoll.Item{{Key: newKey("ConfigMap", "blue")}, {Key: newKey("Secret", "s"), Dependency: true}}})
	b.handleEvent(tableEvent{policy: PolicyKey{policyKind, "shop", "p"}})
	if got, want := takeForced(t, b), "ConfigMap.shop/blue ConfigMap.shop/red"; got != want {
		t.Errorf("decides again about %q, want %q", got, want)
	}
}

// An override policy touches the Bundles of what it selected and of what it selects now, and its status follows.
func TestAnOverrideTouchesTheBundlesThatItSelects(t *testing.T) {
	content := func(kinds ...string) *atoll.Content {
		c := &atoll.Content{}
		for _, kind := range kinds {
			c.Items = append(c.Items, atoll.Item{Key: newKey(kind, "a")})
		}
		return c
	}
	selects := func(kind, name string) v1alpha1.OverrideSpec {
		return v1alpha1.OverrideSpec{ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: kind, Name: name}}}
	}
	synctest.Test(t, func(t *testing.T) {
		_, b := newShopTables(t)
		b.policyStatus = newPolicyStatusWriter(b)
		takeDue, takeTouched := recordPolicyQueue(t, b), recordTouches(b)
		b.ownership = newOwnershipIndex()
		b.ownership.setContent(policymatch.BundleID{Namespace: "shop", Name: "maps"}, "1", 1, content("ConfigMap"))
		b.ownership.setContent(policymatch.BundleID{Namespace: "shop", Name: "secrets"}, "2", 1, content("Secret"))
		b.ownership.setContent(policymatch.BundleID{Namespace: "blog", Name: "maps"}, "3", 1, content("ConfigMap"))
		own, all := PolicyKey{kindOverridePolicy, "shop", "o"}, PolicyKey{kindClusterOverridePolicy, "", "o"}
		for _, step := range []struct {
			what  string
			key   PolicyKey
			specs []v1alpha1.OverrideSpec
			want  string
		}{
			{"a kind", own, []v1alpha1.OverrideSpec{selects("ConfigMap", "")}, "shop/maps"},
			{"another kind", own, []v1alpha1.OverrideSpec{selects("Secret", "")}, "shop/maps shop/secrets"},
			{"a name", own, []v1alpha1.OverrideSpec{selects("ConfigMap", "a")}, "shop/maps shop/secrets"},
			{"another name", own, []v1alpha1.OverrideSpec{selects("ConfigMap", "b")}, "shop/maps"},
			{"everything", own, []v1alpha1.OverrideSpec{{}}, "shop/maps shop/secrets"},
			{"it goes", own, nil, "shop/maps shop/secrets"},
			{"it is gone", own, nil, ""},
			{"a kind in all namespaces", all, []v1alpha1.OverrideSpec{selects("ConfigMap", "")}, "blog/maps shop/maps"},
			{"a name in all namespaces", all, []v1alpha1.OverrideSpec{selects("Secret", "a")}, "blog/maps shop/maps shop/secrets"},
		} {
			table := overrideTable{own: []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "another"}}}}
			for _, spec := range step.specs {
				if step.key == own {
					table.own = append(table.own, &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "o"}, Spec: spec})
				} else {
					table.all = append(table.all, &v1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "o"}, Spec: v1alpha1.ClusterOverrideSpec{OverrideSpec: spec}})
				}
			}
			b.Overrides = table
			b.handleEvent(tableEvent{policy: step.key})
			if got := takeTouched(); got != step.want {
				t.Errorf("%s: touches %q, want %q", step.what, got, step.want)
			}
			if got := takeDue(); !slices.Equal(got, []PolicyKey{step.key}) {
				t.Errorf("%s: statuses of %v", step.what, got)
			}
			if _, known := b.overrideSelections[step.key]; known != (step.specs != nil) {
				t.Errorf("%s: remembered %t", step.what, known)
			}
		}
	})
}

// The annotation of a namespace decides again about its templates and touches its Bundles, when it changes. The labels
// of a namespace that is gone are forgotten.
func TestTheAnnotationOfANamespaceDecidesAgain(t *testing.T) {
	l, b := newShopTables(t)
	takeTouched := recordTouches(b)
	source := func(namespace string) bundleOrigin {
		return bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceNamespaceAnnotation, Name: namespace}}
	}
	b.ownership = newOwnershipIndex()
	b.ownership.setOrigin(policymatch.BundleID{Namespace: "shop", Name: "shop-1"}, source("shop"))
	b.ownership.setOrigin(policymatch.BundleID{Namespace: "blog", Name: "blog-1"}, source("blog"))
	b.lastNamespaceMeta["shop"] = b.namespaceFingerprint("shop")
	const both = "Deployment.shop/api Deployment.shop/web"
	shop := l.namespaces["shop"]
	for _, step := range []struct {
		what            string
		annotations     map[string]string
		gone            bool
		forced, touched string
	}{
		{"no annotation", nil, false, "", ""},
		{"its annotation comes", map[string]string{atoll.AnnotationClusters: "oslo"}, false, both, "shop/shop-1"},
		{"nothing changes", map[string]string{atoll.AnnotationClusters: "oslo"}, false, "", ""},
		{"an empty annotation", map[string]string{atoll.AnnotationClusters: ""}, false, both, "shop/shop-1"},
		{"its annotation goes", nil, false, both, "shop/shop-1"},
		{"the namespace goes", nil, true, "", ""},
		{"it comes back", nil, false, "", "shop/shop-1"},
	} {
		if shop.Annotations = step.annotations; step.gone {
			delete(l.namespaces, "shop")
		} else {
			l.namespaces["shop"] = shop
		}
		b.handleEvent(tableEvent{namespace: "shop"})
		if got := takeForced(t, b); got != step.forced {
			t.Errorf("%s: decides again about %q, want %q", step.what, got, step.forced)
		}
		if got := takeTouched(); got != step.touched {
			t.Errorf("%s: touches %q, want %q", step.what, got, step.touched)
		}
		if _, known := b.lastClustersAnnotation["shop"]; known != (step.annotations != nil) {
			t.Errorf("%s: an annotation is remembered %t", step.what, known)
		}
		if _, known := b.lastNamespaceMeta["shop"]; known == step.gone {
			t.Errorf("%s: its labels are remembered %t", step.what, known)
		}
	}
}

// A template changes with what decides about it: the object, its user's fields, its clusters, its treatment, its deletion, its
// parent and that it stays on the hub. Other annotations and the status are none.
func TestWhatChangesATemplate(t *testing.T) {
	yes := true
	for what, tc := range map[string]struct {
		edit func(o *unstructured.Unstructured)
		same bool
	}{
		"nothing":        {func(*unstructured.Unstructured) {}, true},
		"its status":     {func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"replicas": int64(1)} }, true},
		"its version":    {func(o *unstructured.Unstructured) { o.SetResourceVersion("8") }, true},
		"another object": {func(o *unstructured.Unstructured) { o.SetUID("other") }, false},
		"its image": {func(o *unstructured.Unstructured) {
			o.Object = newDeployment("shop", "web", "web:2", 2).Object
		}, false},
		"its clusters": {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{atoll.AnnotationClusters: "a"}) }, false},
		"no clusters":  {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{atoll.AnnotationClusters: ""}) }, false},
		"a recall": {func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{atoll.AnnotationRecalled: "deleted"})
		}, false},
		"its treatment": {func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{atoll.AnnotationDrift: "Report"})
		}, false},
		"its deletion":     {func(o *unstructured.Unstructured) { now := metav1.Now(); o.SetDeletionTimestamp(&now) }, false},
		"stays on the hub": {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{atoll.KeyHubOnly: "true"}) }, false},
		"labelled so":      {func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{atoll.KeyHubOnly: "true"}) }, false},
		"a parent": {func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "x.dev/v1", Kind: "Shop", Name: "a", UID: "p", Controller: &yes}})
		}, false},
		"no finalizer": {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"x.dev/f"}) }, false},
	} {
		_, b := newShopTables(t)
		o := newDeployment("shop", "web", "web:1", 1)
		before := b.templateStateOf(o)
		next := o.DeepCopy()
		tc.edit(next)
		if got := b.templateStateOf(next).isUnchangedSince(before); got != tc.same {
			t.Errorf("%s: unchanged %t, want %t", what, got, tc.same)
		}
	}
}
