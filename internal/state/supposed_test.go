package state

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func gone[T client.Object](o T) T {
	at := metav1.Now()
	o.SetDeletionTimestamp(&at)
	return o
}

func identified(c *v1alpha1.Cluster, uid string) *v1alpha1.Cluster {
	c.UID = types.UID(uid)
	return c
}

// Tables as they would be answer for what is supposed, and the tables that are hear
// nothing of it.
func TestSupposedSetsAndClusters(t *testing.T) {
	clusters := newClusters()
	sets := newSets(clusters)
	views := newViews(clusters)
	sets.put(opened(selecting("default", nil)))
	sets.put(exclusive("asia"))
	sets.put(binding("shop", "asia"))
	clusters.put(identified(member("tokyo", map[string]string{"atoll.dev/set": "asia"}), "t"))
	clusters.put(identified(member("oslo", nil), "o"))
	clusters.SetOnline("t", true)
	heard := told(clusters.Subscribe)
	written := []client.Object{
		identified(member("oslo", map[string]string{"atoll.dev/set": "asia", "env": "prod"}), "o"),
		identified(member("lima", map[string]string{"env": "prod"}), "new:lima"),
		gone(identified(member("tokyo", nil), "t")),
		selecting("prod", map[string]string{"env": "prod"}),
		gone(selecting("default", nil)),
		binding("shop", "prod"),
		gone(binding("shop", "asia")),
		&v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: "hub"}, Spec: v1alpha1.HubSettingsSpec{PlacementProperties: []string{"price"}}},
	}
	c := clusters.With(written...)
	s, v := sets.With(c, written...), views.With(c, written...)
	var names []string
	for _, one := range c.List() {
		names = append(names, one.Name)
	}
	for what, ok := range map[string]bool{
		"who is there":                 slices.Equal(names, []string{"lima", "oslo"}),
		"tokyo by its UID":             func() bool { _, ok := c.ByUID("t"); return !ok }(),
		"the sets of oslo":             slices.Equal(c.Sets("oslo"), []string{"asia", "prod"}),
		"the sets of lima":             slices.Equal(c.Sets("lima"), []string{"prod"}),
		"sets as placement sees them":  slices.Equal(v.Of(named(c, "lima")).Sets, []string{"prod"}),
		"the listed properties":        slices.Equal(v.Listed(), []string{"price"}),
		"a newcomer counts as online":  c.Online("new:lima"),
		"who was away stays away":      !c.Online("o"),
		"where shop may place":         slices.Equal(s.Bound("shop"), []string{"prod"}),
		"where others may place":       len(s.Bound("blog")) == 0,
		"a set of labels":              slices.Equal(s.OfLabels(map[string]string{"env": "prod"}), []string{"prod"}),
		"shop is bound by its binding": s.BoundBy("shop", "prod") && !s.BoundBy("shop", "asia"),
	} {
		if !ok {
			t.Errorf("as supposed: %s", what)
		}
	}
	for what, ok := range map[string]bool{
		"the sets of tokyo":      slices.Equal(clusters.Sets("tokyo"), []string{"asia", "default"}),
		"the sets of oslo":       slices.Equal(clusters.Sets("oslo"), []string{"default"}),
		"nobody came":            clusters.Len() == 2 && !clusters.Online("new:lima"),
		"where shop may place":   slices.Equal(sets.Bound("shop"), []string{"asia"}),
		"where others may place": slices.Equal(sets.Bound("blog"), []string{"default"}),
		"nothing is listed":      len(views.Listed()) == 0,
		"nobody was told":        len(heard()) == 0,
	} {
		if !ok {
			t.Errorf("as it is: %s", what)
		}
	}
}

func named(c *Clusters, name string) *v1alpha1.Cluster {
	v, _ := c.Get(name)
	return v
}

func TestSupposedScoresAndPlacements(t *testing.T) {
	rate := func(name string, value int32) *v1alpha1.ClusterScore {
		return &v1alpha1.ClusterScore{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.ClusterScoreSpec{
			ClusterName: "oslo", Scores: []v1alpha1.NamedScore{{Name: "price", Value: value}},
		}}
	}
	s := newScores()
	s.put(rate("a", 10))
	s.put(rate("b", 20))
	of := func(s *Scores) int64 {
		n, _ := s.Of("shop", "oslo", "price", time.Now())
		return n
	}
	if got := of(s.With(rate("a", 30))); got != 30 {
		t.Errorf("an edit: %d", got)
	}
	if got := of(s.With(gone(rate("a", 10)))); got != 20 || of(s) != 10 {
		t.Errorf("one that is gone: %d, and %d as it is", got, of(s))
	}
	if !s.Knows("shop", "a") || s.Knows("shop", "c") {
		t.Error("which objects there are")
	}
	p := newPlacements()
	at := func(ns string, max int32) client.Object {
		if ns == "" {
			return &v1alpha1.ClusterPlacement{ObjectMeta: metav1.ObjectMeta{Name: "near"}, Spec: v1alpha1.PlacementSpec{MaxClusters: max}}
		}
		return &v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "near"}, Spec: v1alpha1.PlacementSpec{MaxClusters: max}}
	}
	p.put(at("shop", 1))
	p.put(at("", 1))
	next := p.With(at("shop", 2), at("blog", 3), gone(at("", 1)), rate("a", 1))
	most := func(t *Placements, ns string) int32 {
		one, ok := t.Get(types.NamespacedName{Namespace: ns, Name: "near"})
		if !ok {
			return -1
		}
		return one.Spec.MaxClusters
	}
	if most(next, "shop") != 2 || most(next, "blog") != 3 || most(next, "") != -1 || most(p, "shop") != 1 || most(p, "blog") != -1 || most(p, "") != 1 {
		t.Error("Placements as supposed or as they are")
	}
}

// Templates of a kind, as they are and as they would be.
func TestTemplatesOfAKind(t *testing.T) {
	table, kinds := newTemplates(nil, nil), []schema.GroupKind{{Kind: "ConfigMap"}, {Group: "example.com", Kind: "ConfigMap"}, {Kind: "Secret"}}
	object := func(gk schema.GroupKind, ns, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(gk.WithVersion("v1"))
		o.SetNamespace(ns)
		o.SetName(name)
		return o
	}
	for _, gk := range kinds {
		table.kinds[gk] = &templateKind{}
		for _, ns := range []string{"", "shop", "till"} {
			table.store(gk, object(gk, ns, "a"))
		}
	}
	changed, come := object(kinds[0], "shop", "a"), object(kinds[0], "shop", "b")
	supposed := table.With(map[atoll.ItemKey]*unstructured.Unstructured{
		keyOf(kinds[0], changed): changed, keyOf(kinds[0], come): come, {Kind: "Secret", Namespace: "shop", Name: "c"}: object(kinds[2], "shop", "c"),
	})
	for _, ns := range []string{"", "shop", "till"} {
		if got := table.OfKind(kinds[0], ns); len(got) != 1 || got[0].GetNamespace() != ns || got[0].GroupVersionKind().GroupKind() != kinds[0] {
			t.Errorf("in %q: %v", ns, got)
		}
	}
	got := supposed.OfKind(kinds[0], "shop")
	if len(got) != 2 || !slices.Contains(got, changed) || !slices.Contains(got, come) || len(supposed.OfKind(kinds[0], "till")) != 1 {
		t.Errorf("as supposed: %v", got)
	}
}
