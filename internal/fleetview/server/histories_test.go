package server

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/apps"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
)

func replicaSet(name, cluster string, owner types.UID) *apps.ReplicaSet {
	yes := true
	rs := &apps.ReplicaSet{}
	rs.Name, rs.Labels = fleetview.FullName(name, cluster), map[string]string{atoll.LabelCluster: cluster}
	rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: fleetview.OwnerGroupVersion, Kind: "Deployment", Name: "web", UID: owner, Controller: &yes}}
	return rs
}

// TestBesideAHistory the running objects are no part of it, and an object of such a list may be
// written back: the member gets no other owner.
func TestBesideAHistory(t *testing.T) {
	list := []runtime.Object{replicaSet("web-2", "bergen", "web"), replicaSet("db-1", "bergen", "db")}
	unsetMemberControllerFlags(list, "web")
	web, db := list[0].(*apps.ReplicaSet), list[1].(*apps.ReplicaSet)
	if len(web.OwnerReferences) != 1 || metav1.GetControllerOf(web) != nil || metav1.GetControllerOf(db) == nil {
		t.Errorf("they have the owners %+v and %+v", web.OwnerReferences, db.OwnerReferences)
	}
	is := replicaSet("web-2", "bergen", "web")
	o := &objectStorage{kind: kinds["replicasets"]}
	c := memberObjectChange{at: &memberObject{member: &member{Member: fleetview.Member{Cluster: "bergen"}, Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "bergen"}}}}, info: noPreconditions{}}
	if err := o.checkChange(c, is, web); err != nil || !reflect.DeepEqual(web.OwnerReferences, is.OwnerReferences) {
		t.Errorf("one of a list is written with owners %v: %v", web.OwnerReferences, err)
	}
}
