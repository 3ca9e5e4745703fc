package decisions

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// byKey is Placements as they would be.
type byKey map[types.NamespacedName]state.Placement

func (b byKey) Get(key types.NamespacedName) (state.Placement, bool) {
	p, ok := b[key]
	return p, ok
}

// What a Placement would publish is foreseen within the sets of its namespace, and nothing
// is written.
func TestForesee(t *testing.T) {
	l := &limits{bound: map[string][]string{"shop": {"prod", "test"}}}
	runWith(t, func(c *Config) { c.Sets, c.Views = l, byLabel{} }, func(t *testing.T, h *hub) {
		h.cluster("a", env("prod"))
		h.cluster("b", env("test"))
		h.place(t, "shop", v1alpha1.PlacementSpec{})
		if got := h.published("shop"); got != "a b" {
			t.Fatalf("published %q", got)
		}
		key := types.NamespacedName{Namespace: "shop", Name: "near"}
		for k := range h.placements {
			key = k
		}
		is, _ := placements{h}.Get(key)
		narrow := is
		narrow.Spec.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: []string{"b", "c"}}
		p := New(Config{Placements: placements{h}, Decisions: decisions{h}, Clusters: clusters{h}, Hub: holds{h}, Views: byLabel{}, Sets: l, Client: h.client})
		writes := h.writes
		for name, tc := range map[string]struct {
			tables Tables
			after  []string
		}{
			"as it is":         {Tables{}, []string{"a", "b"}},
			"an edit":          {Tables{Placements: byKey{key: narrow}}, []string{"b"}},
			"another set":      {Tables{Sets: &limits{bound: map[string][]string{"shop": {"prod"}}}}, []string{"a"}},
			"one that is gone": {Tables{Placements: byKey{}}, nil},
		} {
			got := p.Foresee(tc.tables, []types.NamespacedName{key})
			if len(got) != 1 || !slices.Equal(got[0].Before, []string{"a", "b"}) || !slices.Equal(got[0].After, tc.after) {
				t.Errorf("%s: %+v, want %q", name, got, tc.after)
			}
		}
		if h.writes != writes || h.published("shop") != "a b" {
			t.Errorf("foreseeing wrote: %s", h.published("shop"))
		}
	})
}
