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

func deletedObject[T client.Object](o T) T {
	at := metav1.Now()
	o.SetDeletionTimestamp(&at)
	return o
}

func withClusterUID(c *v1alpha1.Cluster, uid string) *v1alpha1.Cluster {
	c.UID = types.UID(uid)
	return c
}

// Tables as they would be answer for what is supposed, and the tables that are hear
// nothing of it.
func TestSupposedSetsAndClusters(t *testing.T) {
	clusters := newClusters()
	sets := newSets(clusters)
	views := newViews(clusters, nil)
	sets.put(openSet(selectingSet("default", nil)))
	sets.put(exclusiveSet("asia"))
	sets.put(setBinding("shop", "asia"))
	clusters.put(withClusterUID(memberCluster("tokyo", map[string]string{"atoll.dev/set": "asia"}), "t"))
	clusters.put(withClusterUID(memberCluster("oslo", nil), "o"))
	clusters.SetOnline("t", true)
	heard := recordNotifications(clusters.Subscribe)
	written := []client.Object{
		withClusterUID(memberCluster("oslo", map[string]string{"atoll.dev/set": "asia", "env": "prod"}), "o"),
		withClusterUID(memberCluster("lima", map[string]string{"env": "prod"}), "new:lima"),
		deletedObject(withClusterUID(memberCluster("tokyo", nil), "t")),
		selectingSet("prod", map[string]string{"env": "prod"}),
		deletedObject(selectingSet("default", nil)),
		setBinding("shop", "prod"),
		deletedObject(setBinding("shop", "asia")),
		&v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: "hub"}, Spec: v1alpha1.HubSettingsSpec{PlacementProperties: []string{"price"}}},
	}
	c := clusters.SupposeWritten(written...)
	s, v := sets.SupposeWritten(c, written...), views.SupposeWritten(c, written...)
	var names []string
	for _, one := range c.List() {
		names = append(names, one.Name)
	}
	for what, ok := range map[string]bool{
		"the clusters":                     slices.Equal(names, []string{"lima", "oslo"}),
		"tokyo by its UID":                 func() bool { _, ok := c.GetByUID("t"); return !ok }(),
		"the sets of oslo":                 slices.Equal(c.SetsOfCluster("oslo"), []string{"asia", "prod"}),
		"the sets of lima":                 slices.Equal(c.SetsOfCluster("lima"), []string{"prod"}),
		"sets as placement sees them":      slices.Equal(v.ViewOf(clusterNamed(c, "lima")).Sets, []string{"prod"}),
		"the listed properties":            slices.Equal(v.PlacementPropertyNames(), []string{"price"}),
		"a newcomer counts as online":      c.IsOnline("new:lima"),
		"an offline cluster stays offline": !c.IsOnline("o"),
		"the sets of APIs stay":            len(v.versions.byHash) == len(views.versions.byHash),
		"where shop may place":             slices.Equal(s.AllowedSets("shop"), []string{"prod"}),
		"where others may place":           len(s.AllowedSets("blog")) == 0,
		"a set of labels":                  slices.Equal(s.OfLabels(map[string]string{"env": "prod"}), []string{"prod"}),
		"shop is bound by its binding":     s.IsBound("shop", "prod") && !s.IsBound("shop", "asia"),
	} {
		if !ok {
			t.Errorf("as supposed: %s", what)
		}
	}
	for what, ok := range map[string]bool{
		"the sets of tokyo":          slices.Equal(clusters.SetsOfCluster("tokyo"), []string{"asia", "default"}),
		"the sets of oslo":           slices.Equal(clusters.SetsOfCluster("oslo"), []string{"default"}),
		"no cluster came":            clusters.Len() == 2 && !clusters.IsOnline("new:lima"),
		"where shop may place":       slices.Equal(sets.AllowedSets("shop"), []string{"asia"}),
		"where others may place":     slices.Equal(sets.AllowedSets("blog"), []string{"default"}),
		"nothing is listed":          len(views.PlacementPropertyNames()) == 0,
		"no subscriber was notified": len(heard()) == 0,
	} {
		if !ok {
			t.Errorf("as it is: %s", what)
		}
	}
}

func clusterNamed(c *ClusterTable, name string) *v1alpha1.Cluster {
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
	of := func(s *ClusterScoreTable) int64 {
		n, _ := s.RatingOf("shop", "oslo", "price", time.Now())
		return n
	}
	if got := of(s.SupposeWritten(rate("a", 30))); got != 30 {
		t.Errorf("an edit: %d", got)
	}
	if got := of(s.SupposeWritten(deletedObject(rate("a", 10)))); got != 20 || of(s) != 10 {
		t.Errorf("one that is gone: %d, and %d as it is", got, of(s))
	}
	if !s.HasObject("shop", "a") || s.HasObject("shop", "c") {
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
	next := p.SupposeWritten(at("shop", 2), at("blog", 3), deletedObject(at("", 1)), rate("a", 1))
	most := func(t *PlacementTable, ns string) int32 {
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
	table, kinds := newTemplates(nil, nil, nil), []schema.GroupKind{{Kind: "ConfigMap"}, {Group: "example.com", Kind: "ConfigMap"}, {Kind: "Secret"}}
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
			table.storeTemplate(gk, object(gk, ns, "a"))
		}
	}
	changed, come := object(kinds[0], "shop", "a"), object(kinds[0], "shop", "b")
	supposed := table.SupposeWritten(map[atoll.ItemKey]*unstructured.Unstructured{
		itemKeyOf(kinds[0], changed): changed, itemKeyOf(kinds[0], come): come, {Kind: "Secret", Namespace: "shop", Name: "c"}: object(kinds[2], "shop", "c"),
	})
	for _, ns := range []string{"", "shop", "till"} {
		if got := table.ListOfKind(kinds[0], ns); len(got) != 1 || got[0].GetNamespace() != ns || got[0].GroupVersionKind().GroupKind() != kinds[0] {
			t.Errorf("in %q: %v", ns, got)
		}
	}
	// Previews read the table by an interface: by a method of another name they would read what is stored.
	var asked interface {
		ListOfKind(gk schema.GroupKind, ns string) []*unstructured.Unstructured
		IsSynced(group, kind string) bool
	} = supposed
	got := asked.ListOfKind(kinds[0], "shop")
	if len(got) != 2 || !slices.Contains(got, changed) || !slices.Contains(got, come) || len(supposed.ListOfKind(kinds[0], "till")) != 1 {
		t.Errorf("as supposed: %v", got)
	}
	thing := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	asked = table.SupposeWritten(map[atoll.ItemKey]*unstructured.Unstructured{itemKeyOf(thing, object(thing, "shop", "a")): object(thing, "shop", "a")})
	if !asked.IsSynced(thing.Group, thing.Kind) {
		t.Error("a kind that only written objects have waits for its read")
	}
}
