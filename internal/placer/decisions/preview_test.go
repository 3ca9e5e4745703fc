package decisions

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// placementsByKey is Placements as they would be.
type placementsByKey map[types.NamespacedName]state.Placement

func (b placementsByKey) Get(key types.NamespacedName) (state.Placement, bool) {
	p, ok := b[key]
	return p, ok
}

// The preview of a Placement's decision is within the sets of its namespace, and nothing is
// written.
func TestForesee(t *testing.T) {
	l := &fakeSets{byNamespace: map[string][]string{"shop": {"prod", "test"}}}
	runWith(t, func(c *Config) { c.Sets, c.Views = l, labelSetViews{} }, func(t *testing.T, h *fakeHub) {
		h.changeCluster("a", withEnv("prod"))
		h.changeCluster("b", withEnv("test"))
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{})
		if got := h.publishedText("shop"); got != "a b" {
			t.Fatalf("published %q", got)
		}
		key := types.NamespacedName{Namespace: "shop", Name: "near"}
		for k := range h.placements {
			key = k
		}
		is, _ := fakePlacements{h}.Get(key)
		narrow := is
		narrow.Spec.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: []string{"b", "c"}}
		p := New(Config{Placements: fakePlacements{h}, Decisions: fakeDecisions{h}, Clusters: fakeClusters{h}, Hub: fakeHubState{h}, Views: labelSetViews{}, Sets: l, Client: h.client})
		writes := h.writes
		for name, tc := range map[string]struct {
			tables SupposedTables
			after  []string
		}{
			"as it is":         {SupposedTables{}, []string{"a", "b"}},
			"an edit":          {SupposedTables{Placements: placementsByKey{key: narrow}}, []string{"b"}},
			"another set":      {SupposedTables{Sets: &fakeSets{byNamespace: map[string][]string{"shop": {"prod"}}}}, []string{"a"}},
			"one that is gone": {SupposedTables{Placements: placementsByKey{}}, nil},
		} {
			got := p.PreviewPlacements(tc.tables, []types.NamespacedName{key})
			if len(got) != 1 || !slices.Equal(got[0].Before, []string{"a", "b"}) || !slices.Equal(got[0].After, tc.after) {
				t.Errorf("%s: %+v, want %q", name, got, tc.after)
			}
		}
		if h.writes != writes || h.publishedText("shop") != "a b" {
			t.Errorf("foreseeing wrote: %s", h.publishedText("shop"))
		}
	})
}
