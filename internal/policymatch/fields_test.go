package policymatch

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// decodeYAML YAML as people write it.
func decodeYAML[T any](t *testing.T, text string) *T {
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
	{"name", "{apiVersion: example.com/v1, kind: Widget, name: other, labelSelector: {matchLabels: {app: till}}}"},
	{"labelSelector matchLabels", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchLabels: {app: pay}}}"},
	{"labelSelector matchExpressions In", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchExpressions: [{key: app, operator: In, values: [pay]}]}}"},
	{"labelSelector matchExpressions NotIn", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchExpressions: [{key: app, operator: NotIn, values: [shop]}]}}"},
	{"labelSelector matchExpressions DoesNotExist", "{apiVersion: example.com/v1, kind: Widget, labelSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}"},
}

// reference is chosen by {apiVersion: example.com/v1, kind: Widget}; of the others each
// differs from it in one thing.
var (
	referenceSubject  = newSubject("example.com", "Widget", "shop", "web", "shop")
	differingSubjects = map[string]Subject{
		"apiVersion":                      newSubject("apps", "Widget", "shop", "web", "shop"),
		"kind":                            newSubject("example.com", "Gadget", "shop", "web", "shop"),
		"namespace":                       newSubject("example.com", "Widget", "till", "web", "shop"),
		"name":                            newSubject("example.com", "Widget", "shop", "other", "shop"),
		"labelSelector matchLabels":       newSubject("example.com", "Widget", "shop", "web", "pay"),
		"labelSelector matchExpressions":  newSubject("example.com", "Widget", "shop", "web", "pay"),
		"labelSelector matchExpressions ": newSubject("example.com", "Widget", "shop", "web", ""),
	}
)

func newSubject(group, kind, ns, name, app string) Subject {
	s := Subject{Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: ns, Name: name}, UID: "u", Labels: map[string]string{}}
	if app != "" {
		s.Labels["app"] = app
	}
	return s
}

// subjectDifferingIn returns the object that a case selects.
func subjectDifferingIn(field string) Subject {
	if strings.HasSuffix(field, "DoesNotExist") {
		return differingSubjects["labelSelector matchExpressions "]
	}
	for _, op := range []string{" In", " NotIn"} {
		field = strings.TrimSuffix(field, op)
	}
	return differingSubjects[field]
}

func TestResourceSelectorFields(t *testing.T) {
	chosen := func(rs v1alpha1.ResourceSelector, sub Subject) bool {
		x := &PolicyIndex{}
		x.SetClusterPolicies([]*v1alpha1.ClusterPropagationPolicy{clusterPolicy("p", 0, policySpec(0, rs))})
		return DecidePolicy(x, sub, Namespace{Name: sub.Key.Namespace}, nil).Winner != nil
	}
	all := v1alpha1.ResourceSelector{APIVersion: "example.com/v1", Kind: "Widget"}
	if !chosen(all, referenceSubject) {
		t.Fatal("the reference is not chosen by its kind")
	}
	for _, tc := range selectorFields {
		t.Run(tc.field, func(t *testing.T) {
			rs := *decodeYAML[v1alpha1.ResourceSelector](t, tc.selector)
			if chosen(rs, referenceSubject) {
				t.Error("chosen although it differs")
			}
			if !chosen(rs, subjectDifferingIn(tc.field)) {
				t.Errorf("%s is not chosen", subjectDifferingIn(tc.field).Key)
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
		sorted := SortOverrides([]*v1alpha1.ClusterOverridePolicy{p}, nil)
		return len(sorted) == 1 && sorted[0].SelectsItem(&atoll.Item{Key: sub.Key}, func(*atoll.Item) map[string]string { return sub.Labels })
	}
	if !overridden(nil, referenceSubject) {
		t.Error("without selectors it is about everything, and not about the reference")
	}
	for _, tc := range selectorFields {
		t.Run(tc.field, func(t *testing.T) {
			rs := decodeYAML[v1alpha1.ResourceSelector](t, tc.selector)
			if overridden(rs, referenceSubject) {
				t.Error("overridden although it differs")
			}
			if !overridden(rs, subjectDifferingIn(tc.field)) {
				t.Errorf("%s is not overridden", subjectDifferingIn(tc.field).Key)
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
	for _, o := range SortOverrides(
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
				Source: v1alpha1.BundleSource{Kind: clusterPolicyKind, Name: "p"}, level: levelClusterPolicy,
				Spec: &v1alpha1.PropagationSpec{GroupBy: *decodeYAML[v1alpha1.GroupBy](t, tc.groupBy)},
			}
			var order []BundleID
			groups := map[BundleID]string{}
			for _, s := range subjects {
				id, _ := BundleForSubject(c, s)
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
