package state

import (
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// An APISet that comes after the Clusters that name it is notified of, for those alone.
func TestViewsTellOfAPISets(t *testing.T) {
	clusters := newClusters()
	v := newViews(clusters, nil)
	for name, hash := range map[string]string{"a": "h1", "b": "h2", "c": "h1"} {
		clusters.put(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name)}, Status: v1alpha1.ClusterStatus{APIsHash: hash}})
	}
	notified := map[string]int{}
	v.Subscribe(func(name string) { notified[name]++ })
	set := &enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "h1"}, APIs: []string{"/v1/Pod"}}
	a, _ := clusters.Get("a")
	if v.ViewOf(a).APIs != nil {
		t.Error("what a serves is known before its APISet is")
	}
	v.put(set)
	v.put(set)
	v.removeObject(set)
	if want := map[string]int{"a": 1, "c": 1}; !reflect.DeepEqual(notified, want) {
		t.Errorf("notified of %v, want %v", notified, want)
	}
	if got := v.ViewOf(a).APIs; !reflect.DeepEqual(got, schedule.APIsOf(set.APIs)) {
		t.Errorf("a serves %v", got)
	}
	b, _ := clusters.Get("b")
	if v.ViewOf(b).APIs != nil {
		t.Error("b serves what another's APISet lists")
	}
}

// Only listed properties of agents are visible, and a change of the list is notified of the
// Clusters with such a property.
func TestListedPropertiesAreSeen(t *testing.T) {
	clusters := newClusters()
	v := newViews(clusters, nil)
	for name, properties := range map[string][]v1alpha1.ClusterProperty{
		"a": {{Name: "nodes", Value: "3"}, {Name: "zone", Value: "z"}}, "b": {{Name: "zone", Value: "z"}}, "c": nil,
	} {
		clusters.put(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name)}, Status: v1alpha1.ClusterStatus{Properties: properties}})
	}
	notified := map[string]int{}
	v.Subscribe(func(name string) { notified[name]++ })
	a, _ := clusters.Get("a")
	settings := func(name string, placementProperties ...string) *v1alpha1.HubSettings {
		return &v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.HubSettingsSpec{PlacementProperties: placementProperties}}
	}
	check := func(what string, seen map[string]string, changed map[string]int, listed ...string) {
		t.Helper()
		if got := v.ViewOf(a).Properties; !reflect.DeepEqual(got, seen) {
			t.Errorf("%s: of a is seen %v, want %v", what, got, seen)
		}
		if !reflect.DeepEqual(notified, changed) {
			t.Errorf("%s: notified of %v, want %v", what, notified, changed)
		}
		if !slices.Equal(v.PlacementPropertyNames(), listed) {
			t.Errorf("%s: listed are %v, want %v", what, v.PlacementPropertyNames(), listed)
		}
		clear(notified)
	}
	check("without settings", nil, map[string]int{})
	v.put(settings("other", "nodes"))
	check("another name", nil, map[string]int{})
	v.put(settings("hub", "nodes", "gpus"))
	check("listed", map[string]string{"nodes": "3"}, map[string]int{"a": 1}, "gpus", "nodes")
	v.put(settings("hub", "nodes", "gpus"))
	check("again", map[string]string{"nodes": "3"}, map[string]int{}, "gpus", "nodes")
	v.put(settings("hub", "zone", "nodes"))
	check("one more", map[string]string{"nodes": "3", "zone": "z"}, map[string]int{"a": 1, "b": 1}, "nodes", "zone")
	v.removeObject(settings("hub"))
	check("the settings are deleted", nil, map[string]int{"a": 1, "b": 1})
}
