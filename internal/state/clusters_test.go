package state

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// A cluster that checks in is there while it is Ready, and no subscriber is notified when it comes
// and goes.
func TestOnlineOfClustersThatCheckIn(t *testing.T) {
	c := newClusters()
	notified := []string{}
	c.Subscribe(func(name string) { notified = append(notified, name) })
	put := func(connection v1alpha1.ConnectionType, ready metav1.ConditionStatus) {
		v := &v1alpha1.Cluster{}
		v.Name, v.UID = "shop", "u-shop"
		v.Spec.Connection = &v1alpha1.ClusterConnection{Type: connection}
		meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: ready})
		c.put(v)
		notified = nil
	}
	put(v1alpha1.ConnectionCheckIn, metav1.ConditionUnknown)
	c.SetOnline("u-shop", true)
	if c.IsOnline("u-shop") {
		t.Error("online before the inventory said so")
	}
	put(v1alpha1.ConnectionCheckIn, metav1.ConditionTrue)
	for _, on := range []bool{false, true, false} {
		c.SetOnline("u-shop", on)
		if !c.IsOnline("u-shop") || len(notified) > 0 {
			t.Errorf("stream %t: online %t, notified of %v", on, c.IsOnline("u-shop"), notified)
		}
	}
	put(v1alpha1.ConnectionStream, metav1.ConditionTrue)
	if c.IsOnline("u-shop") {
		t.Error("online without the stream that it is to hold")
	}
	c.SetOnline("u-shop", true)
	if !c.IsOnline("u-shop") || !slices.Equal(notified, []string{"shop"}) {
		t.Errorf("with its stream: online %t, notified of %v", c.IsOnline("u-shop"), notified)
	}
}
