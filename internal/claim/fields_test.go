package claim

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// decode YAML as people write it.
func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Each leaf of a resource selector chooses web alone of these; the case says which
// leaf, and a selector that does.
var selectorFields = []struct{ field, selector string }{
	{"apiVersion", "{apiVersion: apps/v1, kind: Widget}"},
	{"kind", "{apiVersion: example.com/v1, kind: Gadget}"},
	{"namespace", "{apiVersion: example.com/v1, kind: Widget, namespace: till}"},
	{"name", "{apiVersion: example.com/v1, kind: Widget, name: other}"},
	{"labelSelector matchLabels", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchLabels: {app: pay}}}"},
	{"labelSelector matchExpressions In", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchExpressions: [{key: app, operator: In, values: [pay]}]}}"},
	{"labelSelector matchExpressions NotIn", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchExpressions: [{key: app, operator: NotIn, values: [shop]}]}}"},
	{"labelSelector matchExpressions DoesNotExist", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}"},
}

// reference is chosen by {apiVersion: example.com/v1, kind: Widget}; of the others each
// differs from it in one thing.
var (
	reference = selectable("example.com", "Widget", "shop", "web", "shop")
	different = map[string]Subject{
		"apiVersion":                      selectable("apps", "Widget", "shop", "web", "shop"),
		"kind":                            selectable("example.com", "Gadget", "shop", "web", "shop"),
		"namespace":                       selectable("example.com", "Widget", "till", "web", "shop"),
		"name":                            selectable("example.com", "Widget", "shop", "other", "shop"),
		"labelSelector matchLabels":       selectable("example.com", "Widget", "shop", "web", "pay"),
		"labelSelector matchExpressions":  selectable("example.com", "Widget", "shop", "web", "pay"),
		"labelSelector matchExpressions ": selectable("example.com", "Widget", "shop", "web", ""),
	}
)

func selectable(group, kind, ns, name, app string) Subject {
	s := Subject{Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: ns, Name: name}, UID: "u", Labels: map[string]string{}}
	if app != "" {
		s.Labels["app"] = app
	}
	return s
}

// other gives the object that a case chooses.
func other(field string) Subject {
	if strings.HasSuffix(field, "DoesNotExist") {
		return different["labelSelector matchExpressions "]
	}
	for _, op := range []string{" In", " NotIn"} {
		field = strings.TrimSuffix(field, op)
	}
	return different[field]
}

func TestResourceSelectorFields(t *testing.T) {
	chosen := func(rs v1alpha1.ResourceSelector, sub Subject) bool {
		x := &Index{}
		x.SetCluster([]*v1alpha1.ClusterPropagationPolicy{cpp("p", 0, policySpec(0, rs))})
		return Decide(x, sub, Namespace{Name: sub.Key.Namespace}, nil).Winner != nil
	}
	all := v1alpha1.ResourceSelector{APIVersion: "example.com/v1", Kind: "Widget"}
	if !chosen(all, reference) {
		t.Fatal("the reference is not chosen by its kind")
	}
	for _, tc := range selectorFields {
		t.Run(tc.field, func(t *testing.T) {
			rs := *decode[v1alpha1.ResourceSelector](t, tc.selector)
			if chosen(rs, reference) {
				t.Error("chosen although it differs")
			}
			if !chosen(rs, other(tc.field)) {
				t.Errorf("%s is not chosen", other(tc.field).Key)
			}
		})
	}
}

func TestOverrideSelectorFields(t *testing.T) {
	overridden := func(rs *v1alpha1.ResourceSelector, sub Subject) bool {
		p := &v1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.OverrideRules = []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{Replicas: new(int32)}}}
		if rs != nil {
			p.Spec.ResourceSelectors = []v1alpha1.ResourceSelector{*rs}
		}
		rules := rulesFor([]atoll.Item{{Key: sub.Key}}, InOrder([]*v1alpha1.ClusterOverridePolicy{p}, nil),
			func(*atoll.Item) map[string]string { return sub.Labels })
		return len(rules) == 1 && len(rules[0].Items) == 1 && rules[0].Items[0] == sub.Key
	}
	if !overridden(nil, reference) {
		t.Error("without selectors it is about everything, and not about the reference")
	}
	for _, tc := range selectorFields {
		t.Run(tc.field, func(t *testing.T) {
			rs := decode[v1alpha1.ResourceSelector](t, tc.selector)
			if overridden(rs, reference) {
				t.Error("overridden although it differs")
			}
			if !overridden(rs, other(tc.field)) {
				t.Errorf("%s is not overridden", other(tc.field).Key)
			}
		})
	}
}

// ClusterOverridePolicies first, then the namespace's own, then enforced ones; in each
// low priority first, then names.
func TestOverridesAreOrdered(t *testing.T) {
	cluster := func(name string, priority int32, enforced bool) *v1alpha1.ClusterOverridePolicy {
		p := &v1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Priority, p.Spec.Enforced = priority, enforced
		return p
	}
	own := func(name string, priority int32) *v1alpha1.OverridePolicy {
		p := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
		p.Spec.Priority = priority
		return p
	}
	var got []string
	for _, o := range InOrder(
		[]*v1alpha1.ClusterOverridePolicy{cluster("law", 0, true), cluster("late", 900, false), cluster("b", 500, false), cluster("a", 500, false), cluster("first-law", 0, true)},
		[]*v1alpha1.OverridePolicy{own("high", 1000), own("low", 0), own("middle", 500)},
	) {
		got = append(got, o.String())
	}
	want := "ClusterOverridePolicy/a ClusterOverridePolicy/b ClusterOverridePolicy/late " +
		"OverridePolicy/shop/low OverridePolicy/shop/middle OverridePolicy/shop/high " +
		"ClusterOverridePolicy/first-law ClusterOverridePolicy/law"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("in order: %s\nwant      %s", s, want)
	}
}

// The rules of a policy reach the content in their order, with their clusters.
func TestOverrideRulesReachTheContent(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	w, cfg := obj("Deployment", "web"), obj("ConfigMap", "cfg")
	m.put(w, "1", "ConfigMap/cfg")
	m.put(cfg, "2")
	m.claims[w] = Mine
	b.plan()
	b.in.Overrides = []*v1alpha1.OverridePolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "eu", Namespace: "shop"},
		Spec: *decode[v1alpha1.OverrideSpec](t, `
resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
overrideRules:
- {targetCluster: {clusterNames: [a]}, overriders: {replicas: 1}}
- {overriders: {plaintext: [{path: /spec/paused, operator: add, value: true}]}}
`),
	}}
	b.want("an override makes a revision", "ConfigMap/cfg@2+ Deployment/web@1", 2)
	rules := b.in.Previous.Rules
	if len(rules) != 2 || rules[0].Policy != "OverridePolicy/shop/eu" || rules[1].Index != 1 ||
		rules[0].Target == nil || rules[0].Target.ClusterNames[0] != "a" || rules[1].Target != nil ||
		*rules[0].Overriders.Replicas != 1 || rules[1].Overriders.Plaintext[0].Path != "/spec/paused" ||
		fmt.Sprint(rules[0].Items) != fmt.Sprint([]atoll.ItemKey{w}) {
		t.Errorf("rules %+v", rules)
	}
}

func TestGroupBy(t *testing.T) {
	sub := func(name, ns, instance string) Subject {
		s := Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: ns, Name: name}}
		if instance != "" {
			s.Labels = map[string]string{"instance": instance}
		}
		return s
	}
	subjects := []Subject{sub("a", "shop", "x"), sub("b", "shop", "x"), sub("c", "shop", "y"), sub("d", "shop", ""), sub("e", "till", "x")}
	for _, tc := range []struct{ name, groupBy, want string }{
		{"default", "{}", "abcd e"},
		{"Namespace", "{type: Namespace}", "abcd e"},
		{"Object", "{type: Object}", "a b c d e"},
		{"Label", "{type: Label, labelKey: instance}", "ab c d e"},
		{"another label", "{type: Label, labelKey: team}", "abcd e"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Candidate{
				Source: v1alpha1.BundleSource{Kind: cppKind, Name: "p"}, level: levelClusterPolicy,
				Spec: &v1alpha1.PropagationSpec{GroupBy: *decode[v1alpha1.GroupBy](t, tc.groupBy)},
			}
			var order []BundleID
			groups := map[BundleID]string{}
			for _, s := range subjects {
				id, _ := BundleFor(c, s)
				if _, known := groups[id]; !known {
					order = append(order, id)
				}
				groups[id] += s.Key.Name
			}
			var got []string
			for _, id := range order {
				got = append(got, groups[id])
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("groups %s, want %s", s, tc.want)
			}
		})
	}
}

// What the content says about members comes from the policy.
func TestContentSaysHowToApplyAndRemove(t *testing.T) {
	m := newMemory()
	b := newBundle(t, m, true)
	a := obj("ConfigMap", "a")
	m.put(a, "1")
	m.claims[a] = Mine
	b.in.Intent.Spec.ConflictResolution = v1alpha1.ConflictAdoptIfSame
	b.plan()
	if c := b.in.Previous; c.ConflictResolution != v1alpha1.ConflictAdoptIfSame || c.Removal != v1alpha1.RemoveDelete {
		t.Errorf("conflictResolution %s, removal.mode %s", c.ConflictResolution, c.Removal)
	}
	b.in.Intent.Spec.ConflictResolution, b.in.Intent.Spec.Removal.Mode = v1alpha1.ConflictOverwrite, v1alpha1.RemoveOrphan
	b.want("an edit of both makes a revision", "ConfigMap/a@1", 2)
	if c := b.in.Previous; c.ConflictResolution != v1alpha1.ConflictOverwrite || c.Removal != v1alpha1.RemoveOrphan {
		t.Errorf("conflictResolution %s, removal.mode %s", c.ConflictResolution, c.Removal)
	}
}
