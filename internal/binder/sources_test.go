package binder

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// newSourceTables has a source of each kind, for Bundle shop/web.
func newSourceTables(t *testing.T) (*fakeTables, *Binder) {
	t.Helper()
	l, b := newShopTables(t)
	ref := func(name string) *v1alpha1.PlacementRef { return &v1alpha1.PlacementRef{Name: name} }
	own := newPolicy("own", "")
	own.Spec.PlacementRef = ref("edge")
	b.Policies = twoPolicyTables{
		namespaced: map[string]*v1alpha1.PropagationPolicy{"own": own},
		cluster:    map[string]*v1alpha1.ClusterPropagationPolicy{"all": {Spec: v1alpha1.PropagationSpec{PlacementRef: ref("core")}}},
	}
	b.Settings = &hubDefault{d: &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterPlacement, Name: "default"}}
	b.Placements = placementTable{{Namespace: "shop", Name: "edge"}: placementInClusters("oslo"), {Name: "core"}: placementInClusters("rome"), {Name: "default"}: placementInClusters("bonn")}
	l.namespaces["shop"].Annotations = map[string]string{atoll.AnnotationClusters: "lima"}
	l.templates[atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}].SetAnnotations(map[string]string{atoll.AnnotationClusters: "kyiv"})
	return l, b
}

// The intent of a Bundle comes from its source, with the Placement that the source names. A source that is gone wants
// nothing. A missing Placement is said of a source that is there.
func TestTheIntentOfEachSource(t *testing.T) {
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	id := policymatch.BundleID{Namespace: "shop", Name: "new"}
	for what, tc := range map[string]struct {
		from    bundleOrigin
		want    string // clusters; empty: no intent
		missing string // what is said when no Placement exists
	}{
		"a policy":                        {bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "own"}}, "oslo", "Placement shop/edge"},
		"a policy that is gone":           {bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "all"}}, "", ""},
		"a cluster policy":                {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "all"}}, "rome", "ClusterPlacement core"},
		"a cluster policy that is gone":   {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "own"}}, "", ""},
		"the hub's default":               {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName}}, "bonn", "ClusterPlacement default"},
		"a namespace":                     {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceNamespaceAnnotation, Name: "shop"}}, "lima", ""},
		"an object":                       {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "web"}, annotatedObject: web}, "kyiv", ""},
		"an object that is gone":          {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "s"}, annotatedObject: newKey("Secret", "s")}, "", ""},
		"an object without an annotation": {bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "api"}, annotatedObject: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}}, "", ""},
		"nothing":                         {bundleOrigin{}, "", ""},
	} {
		_, b := newSourceTables(t)
		got := ""
		if intent := b.intentOf(id, tc.from); intent != nil {
			got = placementText(intent.Spec.Placement)
		}
		if got != tc.want {
			t.Errorf("%s: wants %q, want %q", what, got, tc.want)
		}
		if says := b.MissingPlacementReason(id, tc.from.source); says != "" {
			t.Errorf("%s: with all Placements it says %q", what, says)
		}
		b.Placements = nil
		if says := b.MissingPlacementReason(id, tc.from.source); !strings.HasPrefix(says, tc.missing) || (says == "") != (tc.missing == "") {
			t.Errorf("%s: without Placements it says %q, want %q", what, says, tc.missing)
		}
		if intent := b.intentOf(id, tc.from); (intent != nil) != (tc.want != "" && tc.missing == "") {
			t.Errorf("%s: without Placements the intent is %+v", what, intent)
		}
		b.Settings = &hubDefault{}
		if from := tc.from.source.Kind; from == v1alpha1.SourceHubSettings && (b.intentOf(id, tc.from) != nil || b.MissingPlacementReason(id, tc.from.source) != "") {
			t.Error("a default that is gone has an intent or waits for a Placement")
		}
	}
}

// A ClusterPlacement touches the Bundles of the cluster policies that refer to it and of the hub's default, and a
// Placement those of the policies of its namespace. The statuses of the policies follow.
func TestAPlacementTouchesTheSourcesThatNameIt(t *testing.T) {
	for key, tc := range map[types.NamespacedName]struct {
		touched string
		due     []PolicyKey
	}{
		{Namespace: "shop", Name: "edge"}: {"shop/own", []PolicyKey{{policyKind, "shop", "own"}}},
		{Namespace: "blog", Name: "edge"}: {"", nil},
		{Name: "core"}:                    {"shop/all", []PolicyKey{{v1alpha1.SourceClusterPropagationPolicy, "", "all"}}},
		{Name: "default"}:                 {"shop/default", []PolicyKey{{v1alpha1.SourceHubSettings, "", v1alpha1.HubSettingsName}}},
		{Name: "none"}:                    {"", nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, b := newSourceTables(t)
			b.Policies.(twoPolicyTables).cluster["all"].Name = "all"
			b.policyStatus = newPolicyStatusWriter(b)
			takeDue, takeTouched := recordPolicyQueue(t, b), recordTouches(b)
			for name, source := range map[string]v1alpha1.BundleSource{
				"own": {Kind: policyKind, Name: "own"}, "all": {Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "all"}, "default": {Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName},
			} {
				b.ownership.setOrigin(policymatch.BundleID{Namespace: "shop", Name: name}, bundleOrigin{source: source})
			}
			b.handleEvent(tableEvent{placement: key})
			if got := takeTouched(); got != tc.touched {
				t.Errorf("%s touches %q, want %q", key, got, tc.touched)
			}
			if got := takeDue(); !slices.Equal(got, tc.due) {
				t.Errorf("%s: statuses of %v, want %v", key, got, tc.due)
			}
		})
	}
}

// A missing Placement is said of 100 objects at most: the policy's condition covers all. A hub that does not lead says
// nothing. The wait ends with its last object.
func TestAMissingPlacementIsSaidOfSomeObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newTestBinder(t)
		refusals := recordedRefusals{}
		b.Events = refusals
		id := policymatch.BundleID{Namespace: "shop", Name: "web"}
		var claimed []atoll.ItemKey
		for i := range 101 {
			claimed = append(claimed, newKey("ConfigMap", string(rune('a'+i%26))+string(rune('a'+i/26))))
		}
		b.ReadOnly = true
		if again := b.awaitPlacement(id, "why", claimed); again != 0 || len(b.missingPlacements.startTimes) > 0 {
			t.Errorf("a hub that does not lead waits for %v", again)
		}
		b.ReadOnly = false
		for _, step := range []struct {
			after, again time.Duration
			said         int
		}{{0, reportWaitAfter, 0}, {reportWaitAfter - 1, reportWaitAfter, 0}, {1, 0, 100}} {
			time.Sleep(step.after)
			if again := b.awaitPlacement(id, "why", claimed); again != step.again || len(refusals) != step.said {
				t.Errorf("after %v more it is planned again after %v, and said of %d; want %v and %d", step.after, again, len(refusals), step.again, step.said)
			}
		}
		if again := b.awaitPlacement(id, "why", nil); again != 0 || len(b.missingPlacements.startTimes) > 0 || len(b.policyStatus.reportedProblems) > 0 {
			t.Errorf("without objects it waits for %v", again)
		}
	})
}

// A plan depends on the kinds that its source selects and the hub serves, of its objects, and of what they need.
func TestTheKindsThatAPlanDependsOn(t *testing.T) {
	deployment, conf := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, newKey("ConfigMap", "conf")
	selects := func(kind string) *policymatch.Intent {
		return &policymatch.Intent{Spec: v1alpha1.PropagationSpec{ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "x.dev/v1", Kind: kind}}}}
	}
	for what, tc := range map[string]struct {
		unread string // kinds, by blanks
		input  bundlecontent.Input
		want   schema.GroupKind
	}{
		"all are read":                          {"", bundlecontent.Input{Chosen: []atoll.ItemKey{deployment}}, schema.GroupKind{}},
		"the first by name":                     {"Deployment ConfigMap", bundlecontent.Input{Chosen: []atoll.ItemKey{deployment, conf}}, schema.GroupKind{Kind: "ConfigMap"}},
		"definitions, without an object":        {"CustomResourceDefinition", bundlecontent.Input{}, crdKind},
		"of an object":                          {"Deployment", bundlecontent.Input{Chosen: []atoll.ItemKey{deployment}}, schema.GroupKind{Group: "apps", Kind: "Deployment"}},
		"of an earlier object":                  {"Deployment", bundlecontent.Input{Previous: &atoll.Content{Items: []atoll.Item{{Key: conf}, {Key: deployment}}}}, schema.GroupKind{Group: "apps", Kind: "Deployment"}},
		"of a selector":                         {"Widget", bundlecontent.Input{Intent: selects("Widget")}, schema.GroupKind{Group: "x.dev", Kind: "Widget"}},
		"of a selector that the hub serves not": {"Unserved", bundlecontent.Input{Intent: selects("Unserved")}, schema.GroupKind{}},
		"of dependencies that stay":             {"Secret ServiceAccount", bundlecontent.Input{Intent: selects("Widget")}, schema.GroupKind{}},
		"of ConfigMaps":                         {"ConfigMap", bundlecontent.Input{Intent: &policymatch.Intent{Spec: v1alpha1.PropagationSpec{PropagateDeps: true}}}, schema.GroupKind{Kind: "ConfigMap"}},
		"of Secrets":                            {"Secret", bundlecontent.Input{Intent: &policymatch.Intent{Spec: v1alpha1.PropagationSpec{PropagateDeps: true}}}, schema.GroupKind{Kind: "Secret"}},
		"of ServiceAccounts":                    {"ServiceAccount", bundlecontent.Input{Intent: &policymatch.Intent{Spec: v1alpha1.PropagationSpec{PropagateDeps: true}}}, schema.GroupKind{Kind: "ServiceAccount"}},
		"of claims":                             {"PersistentVolumeClaim", bundlecontent.Input{Intent: &policymatch.Intent{Spec: v1alpha1.PropagationSpec{PropagateDeps: true}}}, schema.GroupKind{Kind: "PersistentVolumeClaim"}},
	} {
		_, b := newShopTables(t)
		reasons := map[string]error{}
		for kind := range strings.FieldsSeq(tc.unread) {
			reasons[kind] = errPlanStale
		}
		b.Kinds = unreadKinds{reasons: reasons}
		got, waits := b.firstUnsyncedInput(bundlePlan{input: tc.input, intent: tc.input.Intent})
		if got != tc.want || waits != (tc.want != schema.GroupKind{}) {
			t.Errorf("%s: waits %t for %v, want %v", what, waits, got, tc.want)
		}
	}
	_, b := newShopTables(t)
	b.Kinds = unreadKinds{}
	got := b.dependencyKinds(bundlecontent.Output{
		Dependencies: []atoll.ItemKey{conf, newKey("Unserved", "a")}, Selections: []atoll.Selection{{Group: "x.dev", Kind: "Widget"}, {Kind: "Unserved"}},
	})
	if want := (map[schema.GroupKind]bool{{Kind: "ConfigMap"}: true, {Group: "x.dev", Kind: "Widget"}: true}); len(got) != 2 || !got[schema.GroupKind{Kind: "ConfigMap"}] || !got[schema.GroupKind{Group: "x.dev", Kind: "Widget"}] {
		t.Errorf("dependencies are of %v, want %v", got, want)
	}
}

// A plan whose dependencies are of a kind that is not read writes nothing and waits, for that kind.
func TestAPlanWaitsForTheKindsOfItsDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b, writes := newWritingBinder(t)
		l.policies[0].Spec.PropagateDeps = true
		web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
		id := policymatch.BundleID{Namespace: "shop", Name: "web"}
		claim := map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": "disk"}}
		spec := l.templates[web].Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		spec["volumes"], spec["serviceAccountName"] = []any{claim}, "robot"
		b.Kinds = unsyncedKind{fakeTemplates{nil, nil, l}, "ServiceAccount"}
		if again, err := b.reconcileBundle(t.Context(), id); err != nil || again != reportWaitAfter || len(*writes) > 0 {
			t.Errorf("planned again after %v, %v; writes %q", again, err, *writes)
		}
		if got := b.ownership.bundlesWaitingForSync(); !slices.Equal(got, []policymatch.BundleID{id}) {
			t.Errorf("%v wait", got)
		}
		b.Kinds = fakeTemplates{nil, nil, l}
		if again, err := b.reconcileBundle(t.Context(), id); err != nil || again != 0 || len(*writes) == 0 {
			t.Errorf("all are read: planned again after %v, %v; writes %q", again, err, *writes)
		}
		if got := b.ownership.bundlesWaitingForSync(); got != nil {
			t.Errorf("%v wait, and all kinds are read", got)
		}
		if got := b.ownership.bundlesDependingOn(newKey("ServiceAccount", "robot")); !slices.Equal(got, []policymatch.BundleID{id}) {
			t.Errorf("%v need the account", got)
		}
	})
}

// A namespace is awaited where a Bundle in one has objects; a ClusterBundle has none to wait for.
func TestWhichPlansWaitForANamespace(t *testing.T) {
	chosen := []atoll.ItemKey{newKey("ConfigMap", "a")}
	for what, tc := range map[string]struct {
		plan bundlePlan
		want bool
	}{
		"objects without their namespace": {bundlePlan{isNamespaced: true, input: bundlecontent.Input{Chosen: chosen}}, true},
		"the namespace is known":          {bundlePlan{isNamespaced: true, input: bundlecontent.Input{Chosen: chosen, Namespace: &atoll.NamespaceMeta{}}}, false},
		"no object":                       {bundlePlan{isNamespaced: true}, false},
		"a ClusterBundle":                 {bundlePlan{input: bundlecontent.Input{Chosen: chosen}}, false},
	} {
		if got := tc.plan.isNamespaceMissing(); got != tc.want {
			t.Errorf("%s: %t, want %t", what, got, tc.want)
		}
	}
	_, b := newShopTables(t)
	for id, want := range map[policymatch.BundleID]bool{{Namespace: "shop", Name: "web"}: true, {Name: "web"}: false} {
		p, err := b.preparePlan(t.Context(), id, state.Bundle{}, false)
		if err != nil || p.isNamespaced != want || (p.input.Namespace != nil) != want || p.startedAt.IsZero() || p.input.OwnNamespace != id.OwnNamespace() {
			t.Errorf("%v: %+v, %v", id, p, err)
		}
	}
}
