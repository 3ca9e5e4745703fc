package binder

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

func overridesOf(policies ...string) *atoll.Content {
	c := &atoll.Content{}
	for _, p := range policies {
		c.Rules = append(c.Rules, atoll.Rule{Policy: p}, atoll.Rule{Policy: p, Index: 1})
	}
	return c
}

// The status counts the Bundles whose content has rules of the policy.
func TestBundlesOfOverridePolicies(t *testing.T) {
	b, _, _ := newTestBinder(t)
	w := b.policyStatus
	web, api := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "api"}
	want := func(when string, all, own int32) {
		t.Helper()
		for key, want := range map[PolicyKey]int32{{kindClusterOverridePolicy, "", "all"}: all, {kindOverridePolicy, "shop", "own"}: own} {
			got := int32(0)
			if u := w.overrideUses[key]; u != nil {
				got = u.bundles
			}
			if got != want {
				t.Errorf("%s: %d bundles of %v, want %d", when, got, key, want)
			}
		}
	}
	w.recordUsedOverrides(web, overridesOf("ClusterOverridePolicy/all", "OverridePolicy/shop/own"))
	want("one bundle", 1, 1)
	w.recordUsedOverrides(api, overridesOf("ClusterOverridePolicy/all"))
	w.recordUsedOverrides(api, overridesOf("ClusterOverridePolicy/all"))
	want("two bundles", 2, 1)
	w.recordUsedOverrides(web, overridesOf("ClusterOverridePolicy/all"))
	want("one policy no longer selects", 2, 0)
	w.recordUsedOverrides(web, nil)
	w.recordUsedOverrides(api, overridesOf())
	want("no bundle", 0, 0)
	if len(w.overrideUses) != 0 || len(w.overridesOf) != 0 {
		t.Errorf("memory of policies that are in no content: %v, %v", w.overrideUses, w.overridesOf)
	}
}

func TestOverrideStatus(t *testing.T) {
	spec := v1alpha1.OverrideSpec{OverrideRules: []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{
		Plaintext: []v1alpha1.PlaintextOverrider{{Path: "/metadata/labels/a", Operator: v1alpha1.OverrideRemove}},
	}}}}
	broken, unread := *spec.DeepCopy(), *spec.DeepCopy()
	broken.OverrideRules[0].Overriders.Plaintext[0].Path = "no pointer"
	unread.ResourceSelectors = []v1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap", LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
	}}}
	for name, c := range map[string]struct {
		spec    v1alpha1.OverrideSpec
		bundles int32
		status  metav1.ConditionStatus
		reason  string
	}{
		"in use":                     {spec, 2, metav1.ConditionTrue, "RulesApply"},
		"selects nothing":            {spec, 0, metav1.ConditionFalse, "SelectsNothing"},
		"an impossible rule":         {broken, 2, metav1.ConditionFalse, "InvalidRule"},
		"a selector without meaning": {unread, 0, metav1.ConditionFalse, "InvalidRule"},
	} {
		old := v1alpha1.OverrideStatus{}
		got := overrideStatus(old, 7, &c.spec, c.bundles)
		if got.ObservedGeneration != 7 || got.Bundles != c.bundles || len(got.Conditions) != 1 || len(old.Conditions) != 0 {
			t.Fatalf("%s: %+v", name, got)
		}
		if is := got.Conditions[0]; is.Type != atoll.ConditionTypes["OverridePolicy"][0].Type || is.Status != c.status || is.Reason != c.reason || is.ObservedGeneration != 7 || is.LastTransitionTime.IsZero() || is.Message == "" {
			t.Errorf("%s: %+v", name, is)
		}
	}
}

// A status alone makes no plan stale.
func TestAStatusOfAnOverrideMakesNoPlanStale(t *testing.T) {
	a := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Generation: 2}}
	b := a.DeepCopy()
	b.Status.Bundles = 3
	edited := a.DeepCopy()
	edited.Generation++
	again := a.DeepCopy()
	again.UID = "v"
	if !isSameSpec(a, b) || isSameSpec(a, edited) || isSameSpec(a, again) {
		t.Error("a policy is the same while its UID and generation are")
	}
}

// overrideTable is a table of override policies.
type overrideTable struct {
	Overrides
	own []*v1alpha1.OverridePolicy
	all []*v1alpha1.ClusterOverridePolicy
}

func (x overrideTable) OverridePolicies(string) []*v1alpha1.OverridePolicy         { return x.own }
func (x overrideTable) ClusterOverridePolicies() []*v1alpha1.ClusterOverridePolicy { return x.all }

// The status of an override policy is written to that policy, and once.
func TestAStatusOfAnOverrideIsWritten(t *testing.T) {
	table := overrideTable{
		own: []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "another"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}}},
		all: []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "all"}}},
	}
	b, _, _ := newTestBinder(t)
	writes := 0
	b.Client = fake.NewClientBuilder().WithScheme(b.Client.Scheme()).WithObjects(table.own[0], table.own[1], table.all[0]).
		WithStatusSubresource(&v1alpha1.OverridePolicy{}, &v1alpha1.ClusterOverridePolicy{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}).Build()
	for _, p := range []client.Object{table.own[0], table.own[1], table.all[0]} {
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Fatal(err)
		}
	}
	b.Overrides = table
	b.policyStatus.recordUsedOverrides(policymatch.BundleID{Namespace: "shop", Name: "web"}, overridesOf("ClusterOverridePolicy/all", "OverridePolicy/shop/own"))
	for range 2 {
		for _, key := range []PolicyKey{{kindClusterOverridePolicy, "", "all"}, {kindOverridePolicy, "shop", "own"}, {kindOverridePolicy, "shop", "gone"}} {
			if err := b.policyStatus.writeStatus(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range []client.Object{table.own[1], table.all[0]} {
			if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
		}
		for name, st := range map[string]v1alpha1.OverrideStatus{"own": table.own[1].Status, "all": table.all[0].Status} {
			if st.Bundles != 1 || !meta.IsStatusConditionTrue(st.Conditions, atoll.ConditionTypes["OverridePolicy"][0].Type) {
				t.Errorf("policy %s: %+v", name, st)
			}
		}
		if writes != 2 {
			t.Errorf("%d writes, want one of each policy", writes)
		}
	}
}

// The rules of an override policy name it by its kind, its namespace and its name.
func TestTheRulesOfAnOverrideNameItsPolicy(t *testing.T) {
	for text, want := range map[string]PolicyKey{
		"ClusterOverridePolicy/all": {kindClusterOverridePolicy, "", "all"}, "OverridePolicy/shop/own": {kindOverridePolicy, "shop", "own"},
	} {
		if got := policyKeyOfRule(text); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A new content enqueues the override policies whose count of Bundles it changes, and no others.
func TestAnOverrideIsEnqueuedWhenItsCountChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newTestBinder(t)
		takeDue := recordPolicyQueue(t, b)
		web := policymatch.BundleID{Namespace: "shop", Name: "web"}
		all, own, other := PolicyKey{kindClusterOverridePolicy, "", "all"}, PolicyKey{kindOverridePolicy, "shop", "own"}, PolicyKey{kindOverridePolicy, "shop", "other"}
		for _, step := range []struct {
			what     string
			policies []string
			want     []PolicyKey
		}{
			{"the first content", []string{"ClusterOverridePolicy/all", "OverridePolicy/shop/own", "ClusterOverridePolicy/all"}, []PolicyKey{all, own}},
			{"the same policies", []string{"OverridePolicy/shop/own", "ClusterOverridePolicy/all"}, nil},
			{"one goes and one comes", []string{"ClusterOverridePolicy/all", "OverridePolicy/shop/other"}, []PolicyKey{other, own}},
		} {
			b.policyStatus.recordUsedOverrides(web, overridesOf(step.policies...))
			got := takeDue()
			slices.SortFunc(got, comparePolicies)
			if !slices.Equal(got, step.want) {
				t.Errorf("%s: %v, want %v", step.what, got, step.want)
			}
		}
	})
}

// namespacedOverrides are override policies by namespace.
type namespacedOverrides struct {
	overrideTable
	by map[string][]*v1alpha1.OverridePolicy
}

func (x namespacedOverrides) OverridePolicies(ns string) []*v1alpha1.OverridePolicy { return x.by[ns] }

// A start rechecks the statuses of all override policies.
func TestAStartRechecksTheStatusesOfOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newTestBinder(t)
		takeDue := recordPolicyQueue(t, b)
		b.Namespaces = listedNamespaces{}
		own := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}}
		b.Overrides = namespacedOverrides{overrideTable{all: []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "all"}}}}, map[string][]*v1alpha1.OverridePolicy{"shop": {own}}}
		b.policyStatus.enqueueOverridePolicies()
		got := takeDue()
		slices.SortFunc(got, comparePolicies)
		if want := []PolicyKey{{kindClusterOverridePolicy, "", "all"}, {kindOverridePolicy, "shop", "own"}}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// The first fault of an override policy is named with its place.
func TestTheFaultOfAnOverrideIsNamed(t *testing.T) {
	label := func(operator metav1.LabelSelectorOperator) v1alpha1.ResourceSelector {
		return v1alpha1.ResourceSelector{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: operator}}}}
	}
	rule := func(path string) v1alpha1.RuleWithCluster {
		return v1alpha1.RuleWithCluster{Overriders: v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{{Path: path, Operator: v1alpha1.OverrideRemove}}}}
	}
	used := metav1.ConditionTrue
	for what, tc := range map[string]struct {
		spec    v1alpha1.OverrideSpec
		bundles int32
		status  metav1.ConditionStatus
		reason  atoll.Reason
		message string // or its beginning
	}{
		"used":              {v1alpha1.OverrideSpec{ResourceSelectors: []v1alpha1.ResourceSelector{{}, label("Exists")}, OverrideRules: []v1alpha1.RuleWithCluster{rule("/a")}}, 1, used, atoll.ReasonRulesApply, "its rules are in the content of Bundles"},
		"not used":          {v1alpha1.OverrideSpec{}, 0, metav1.ConditionFalse, atoll.ReasonSelectsNothing, "no Bundle has an object that resourceSelectors select"},
		"a faulty selector": {v1alpha1.OverrideSpec{ResourceSelectors: []v1alpha1.ResourceSelector{{}, label("Near")}}, 1, metav1.ConditionFalse, atoll.ReasonInvalidRule, "resourceSelectors[1].labelSelector: "},
		"a faulty rule":     {v1alpha1.OverrideSpec{OverrideRules: []v1alpha1.RuleWithCluster{rule("/a"), rule("no pointer")}}, 0, metav1.ConditionFalse, atoll.ReasonInvalidRule, "overrideRules[1].overriders.plaintext"},
	} {
		old := v1alpha1.OverrideStatus{Bundles: 5}
		got := overrideStatus(old, 7, &tc.spec, tc.bundles)
		c := got.Conditions[0]
		if got.Bundles != tc.bundles || c.Type != v1alpha1.PolicyApplied || c.Status != tc.status || c.Reason != string(tc.reason) || !strings.HasPrefix(c.Message, tc.message) {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
