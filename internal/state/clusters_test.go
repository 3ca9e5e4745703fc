package state

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Who checks in is there while it is Ready, and nobody is told when it comes and goes.
func TestOnlineOfClustersThatCheckIn(t *testing.T) {
	c := newClusters()
	told := []string{}
	c.Subscribe(func(name string) { told = append(told, name) })
	put := func(connection v1alpha1.ConnectionType, ready metav1.ConditionStatus) {
		v := &v1alpha1.Cluster{}
		v.Name, v.UID = "shop", "u-shop"
		v.Spec.Connection = &v1alpha1.ClusterConnection{Type: connection}
		meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: ready})
		c.put(v)
		told = nil
	}
	put(v1alpha1.ConnectionCheckIn, metav1.ConditionUnknown)
	c.SetOnline("u-shop", true)
	if c.Online("u-shop") {
		t.Error("online before the inventory said so")
	}
	put(v1alpha1.ConnectionCheckIn, metav1.ConditionTrue)
	for _, on := range []bool{false, true, false} {
		c.SetOnline("u-shop", on)
		if !c.Online("u-shop") || len(told) > 0 {
			t.Errorf("stream %t: online %t, told of %v", on, c.Online("u-shop"), told)
		}
	}
	put(v1alpha1.ConnectionStream, metav1.ConditionTrue)
	if c.Online("u-shop") {
		t.Error("online without the stream that it is to hold")
	}
	c.SetOnline("u-shop", true)
	if !c.Online("u-shop") || !slices.Equal(told, []string{"shop"}) {
		t.Errorf("with its stream: online %t, told of %v", c.Online("u-shop"), told)
	}
}
