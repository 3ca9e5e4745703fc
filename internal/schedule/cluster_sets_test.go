package schedule

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Whose policies sets limit, and that no set is not the same as none.
func TestLimits(t *testing.T) {
	bound := func(ns string) []string { return map[string][]string{"shop": {"asia"}}[ns] }
	for _, tc := range []struct {
		namespace, source string
		want              []string
	}{
		{"shop", v1alpha1.SourcePropagationPolicy, []string{"asia"}},
		{"shop", v1alpha1.SourceAnnotation, []string{"asia"}},
		{"shop", v1alpha1.SourceClusterPropagationPolicy, nil},
		{"blog", v1alpha1.SourcePropagationPolicy, []string{}},
		{"", v1alpha1.SourceAnnotation, nil},
	} {
		if got := AllowedClusterSets(tc.namespace, tc.source, bound); !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
			t.Errorf("%s in %q: %q, want %q", tc.source, tc.namespace, got, tc.want)
		}
	}
}

// Clones change apart.
func TestClonesOfGrants(t *testing.T) {
	g := NewGrants()
	g.StoreClusterSet("default", NewDefaultSet())
	g.BindNamespace("shop", "asia", true)
	c := g.Clone()
	c.BindNamespace("shop", "prod", true)
	c.StoreClusterSet("default", nil)
	if !slices.Equal(g.SetsOfNamespace("shop"), []string{"asia"}) || !slices.Equal(g.SetsOfNamespace("blog"), []string{"default"}) || !g.IncludesAllClusters([]string{"default"}) {
		t.Error("the original changed")
	}
	if !slices.Equal(c.SetsOfNamespace("shop"), []string{"asia", "prod"}) || len(c.OpenSets()) != 0 || c.IncludesAllClusters([]string{"default"}) {
		t.Error("the clone did not")
	}
}

// A cluster is in the set that its label names, and in those whose selector matches.
func TestClustersAreInTheSetsThatMatchTheirLabels(t *testing.T) {
	byLabel := func(key, value string) *v1alpha1.ClusterSetSelector {
		return &v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
	}
	m := NewMembership()
	m.DefineSet("edge", byLabel("size", "small"))
	m.DefineSet("asia", &v1alpha1.ClusterSetSelector{})
	m.DefineSet("prod", byLabel("env", "prod"))
	m.DefineSet("broken", &v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Operator: "Other"}}}})
	for name, c := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"no label":             {nil, nil},
		"a set's label":        {map[string]string{v1alpha1.LabelClusterSet: "asia"}, []string{"asia"}},
		"an unknown set":       {map[string]string{v1alpha1.LabelClusterSet: "africa"}, nil},
		"a set with selector":  {map[string]string{v1alpha1.LabelClusterSet: "prod"}, nil},
		"a selector":           {map[string]string{"env": "prod"}, []string{"prod"}},
		"another value":        {map[string]string{"env": "test"}, nil},
		"a label and a choice": {map[string]string{v1alpha1.LabelClusterSet: "asia", "env": "prod", "size": "small"}, []string{"asia", "edge", "prod"}},
	} {
		if got := m.SetsForLabels(c.labels); !slices.Equal(got, c.want) {
			t.Errorf("%s: in %q, want %q", name, got, c.want)
		}
	}
	prod := map[string]string{"env": "prod"}
	for i, c := range []struct {
		labels  map[string]string
		changed bool
		want    []string
	}{{prod, true, []string{"prod"}}, {prod, false, []string{"prod"}}, {nil, true, nil}, {nil, false, nil}} {
		if changed := m.PutCluster("oslo", c.labels); changed != c.changed || !slices.Equal(m.SetsOf("oslo"), c.want) {
			t.Errorf("write %d: changed %t, in %q", i, changed, m.SetsOf("oslo"))
		}
	}
	m.PutCluster("oslo", prod)
	other := m.Clone()
	other.DefineSet("prod", nil)
	if !other.PutCluster("oslo", prod) || len(other.SetsOf("oslo")) > 0 || len(m.SetsOf("oslo")) != 1 || len(m.SetsForLabels(prod)) != 1 {
		t.Errorf("without the set prod: %q, and its original %q", other.SetsOf("oslo"), m.SetsOf("oslo"))
	}
	m.RemoveCluster("oslo")
	if len(m.SetsOf("oslo")) > 0 {
		t.Error("a removed cluster is in sets")
	}
}

// A set that is defined again has only the clusters of its new selector. A malformed one has none.
func TestRedefinedSetsHaveTheirNewClusters(t *testing.T) {
	exclusive := &v1alpha1.ClusterSetSelector{}
	byLabel := &v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
	broken := &v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}}}
	m := NewMembership()
	for i, tc := range []struct {
		selector         *v1alpha1.ClusterSetSelector
		labelled, chosen bool
	}{{exclusive, true, false}, {byLabel, false, true}, {exclusive, true, false}, {broken, false, false}, {byLabel, false, true}, {nil, false, false}} {
		m.DefineSet("s", tc.selector)
		labelled := m.SetsForLabels(map[string]string{v1alpha1.LabelClusterSet: "s"})
		chosen := m.SetsForLabels(map[string]string{"env": "prod"})
		if (len(labelled) == 1) != tc.labelled || (len(chosen) == 1) != tc.chosen {
			t.Errorf("definition %d: by the set's label in %q, by the selector in %q", i, labelled, chosen)
		}
	}
}

// Clusters in the same sets share one list: a fleet is large, and its sets are few.
func TestClustersOfEqualSetsShareTheirList(t *testing.T) {
	m := NewMembership()
	m.DefineSet("a", &v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{}})
	m.PutCluster("x", nil)
	m.PutCluster("y", nil)
	if x, y := m.SetsOf("x"), m.SetsOf("y"); &x[0] != &y[0] {
		t.Error("two clusters of the set a have a list each")
	}
	m.DefineSet("b", nil)
	if m.PutCluster("x", nil) || m.PutCluster("y", nil) {
		t.Error("a set that never was changes the sets of clusters")
	}
	if x, y := m.SetsOf("x"), m.SetsOf("y"); &x[0] != &y[0] {
		t.Error("after a change of sets two clusters have a list each")
	}
}

// Bindings are changed once. A namespace without bindings has the open sets, and one with bindings its own.
func TestBindings(t *testing.T) {
	g := NewGrants()
	open := NewDefaultSet()
	closed := open.DeepCopy()
	closed.Name, closed.Spec.UnboundNamespaces = "prod", ""
	for i, tc := range []struct {
		opened, want bool
	}{{g.StoreClusterSet("default", open), true}, {g.StoreClusterSet("default", open), false}, {g.StoreClusterSet("prod", closed), false}, {g.StoreClusterSet("gone", nil), false}} {
		if tc.opened != tc.want {
			t.Errorf("set %d opened: %t", i, tc.opened)
		}
	}
	if _, ok := g.Get("prod"); !ok || !slices.Equal(g.OpenSets(), []string{"default"}) {
		t.Errorf("open are %q", g.OpenSets())
	}
	for i, tc := range []struct {
		set           string
		bound, change bool
		want          []string
	}{
		{"prod", false, false, []string{"default"}}, {"prod", true, true, []string{"prod"}}, {"prod", true, false, []string{"prod"}},
		{"asia", true, true, []string{"asia", "prod"}}, {"prod", false, true, []string{"asia"}}, {"prod", false, false, []string{"asia"}}, {"asia", false, true, []string{"default"}},
	} {
		changed := g.BindNamespace("shop", tc.set, tc.bound)
		if got := g.SetsOfNamespace("shop"); changed != tc.change || !slices.Equal(got, tc.want) || g.HasBinding("shop", tc.set) != tc.bound {
			t.Errorf("binding %d: changed %t, sets %q; want %t, %q", i, changed, got, tc.change, tc.want)
		}
	}
	if len(g.boundByNamespace) != 0 {
		t.Errorf("bindings %v are left", g.boundByNamespace)
	}
	if !g.StoreClusterSet("default", nil) || len(g.OpenSets()) != 0 {
		t.Error("the last open set is still open")
	}
	none := open.DeepCopy()
	none.Spec.ClusterSelector.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	g.StoreClusterSet("some", none)
	if g.StoreClusterSet("all", open); g.IncludesAllClusters([]string{"some", "gone"}) || !g.IncludesAllClusters([]string{"some", "all"}) {
		t.Error("only a selector without conditions includes all clusters")
	}
}
