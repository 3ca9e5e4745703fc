package manifest_test

import (
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// TestFirstOfAPolicyApplies: of the rules of a policy with First, a cluster has the first one that targets it, however many
// times the policy's rules are there. Rules of other policies are not concerned.
func TestFirstOfAPolicyApplies(t *testing.T) {
	label := func(value string) v1alpha1.Overriders {
		return v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{value: "x"}}}}
	}
	rule := func(policy string, index int, first bool, key atoll.ItemKey, clusters ...string) atoll.Rule {
		r := newRule(policy, label("rule"), key)
		r.Index, r.First = index, first
		if len(clusters) > 0 {
			r.Target = &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: clusters}}
		}
		return r
	}
	const p, q = "OverridePolicy/shop/p", "OverridePolicy/shop/q"
	c := newContent(
		rule(p, 0, true, roleKey, "a"), rule(p, 1, true, roleKey, "a", "b"), rule(p, 2, true, roleKey),
		rule(p, 0, true, webKey, "a"), rule(p, 1, true, webKey, "a", "b"), rule(p, 2, true, webKey), // selected more specifically
		rule(q, 0, false, webKey), rule(q, 1, false, webKey, "b"),
	)
	c.Rules[1].Overriders, c.Rules[4].Overriders = v1alpha1.Overriders{}, v1alpha1.Overriders{} // keeps the third one out
	cache, renderer, names := manifest.NewVariantCache(c), manifest.NewRenderer(c), map[string]bool{}
	for cluster, want := range map[string][]int{"a": {0, 3, 6}, "b": {1, 4, 6, 7}, "c": {2, 5, 6}} {
		view := atoll.ClusterView{Name: cluster}
		got, variant := manifest.MatchRules(c, view)
		again, same := renderer.MatchRules(&view)
		if !slices.Equal(got, want) || !slices.Equal(again, want) || variant != same || cache.VariantOf(view) != variant || names[variant] {
			t.Errorf("%s: %v, %v", cluster, got, again)
		}
		names[variant] = true
	}
}
