package schedule

import (
	"slices"
	"testing"

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
		if got := Limits(tc.namespace, tc.source, bound); !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
			t.Errorf("%s in %q: %q, want %q", tc.source, tc.namespace, got, tc.want)
		}
	}
}

// Clones change apart.
func TestClonesOfGrants(t *testing.T) {
	g := NewGrants()
	g.Set("default", DefaultSet())
	g.Bind("shop", "asia", true)
	c := g.Clone()
	c.Bind("shop", "prod", true)
	c.Set("default", nil)
	if !slices.Equal(g.Bound("shop"), []string{"asia"}) || !slices.Equal(g.Bound("blog"), []string{"default"}) || !g.HoldsAll([]string{"default"}) {
		t.Error("the original changed")
	}
	if !slices.Equal(c.Bound("shop"), []string{"asia", "prod"}) || len(c.Open()) != 0 || c.HoldsAll([]string{"default"}) {
		t.Error("the clone did not")
	}
}
