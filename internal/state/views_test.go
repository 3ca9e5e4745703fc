package state

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// An APISet that comes after the Clusters that name it is told of, for those alone.
func TestViewsTellOfAPISets(t *testing.T) {
	clusters := newClusters()
	v := newViews(clusters)
	for name, hash := range map[string]string{"a": "h1", "b": "h2", "c": "h1"} {
		clusters.put(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name)}, Status: v1alpha1.ClusterStatus{APIsHash: hash}})
	}
	told := map[string]int{}
	v.Subscribe(func(name string) { told[name]++ })
	set := &enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "h1"}, APIs: []string{"/v1/Pod"}}
	a, _ := clusters.Get("a")
	if v.Of(a).APIs != nil {
		t.Error("what a serves is known before its APISet is")
	}
	v.put(set)
	v.put(set)
	v.drop(set)
	if want := map[string]int{"a": 1, "c": 1}; !reflect.DeepEqual(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	if got := v.Of(a).APIs; !reflect.DeepEqual(got, schedule.APIsOf(set.APIs)) {
		t.Errorf("a serves %v", got)
	}
	b, _ := clusters.Get("b")
	if v.Of(b).APIs != nil {
		t.Error("b serves what another's APISet lists")
	}
}
