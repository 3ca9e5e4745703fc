package view

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/live"
)

// TestOwnersAreTheMembersToSay: what the hub shows of them is no owner in the member.
func TestOwnersAreTheMembersToSay(t *testing.T) {
	yes, no := true, false
	pod := &api.Pod{}
	pod.Name, pod.Labels = "web-1.oslo", map[string]string{atoll.LabelCluster: "oslo"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: live.OwnerGroupVersion, Kind: "ReplicaSet", Name: "web.oslo", UID: "rs", Controller: &yes}}
	o := &objects{kind: kinds["pods"]}
	c := change{m: &member{Member: live.Member{Cluster: "oslo"}, Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}}, info: noPreconditions{}}
	if err := o.fits(c, pod, pod.DeepCopy()); err != nil {
		t.Errorf("owners that are as they were: %v", err)
	}
	for what, change := range map[string]func(*metav1.OwnerReference){
		"no controller": func(r *metav1.OwnerReference) { r.Controller = &no },
		"of a group":    func(r *metav1.OwnerReference) { r.APIVersion = "apps/v1" },
		"blocking":      func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &yes },
	} {
		after := pod.DeepCopy()
		change(&after.OwnerReferences[0])
		if err := o.fits(c, pod, after); err == nil {
			t.Errorf("%s: the member would be told of an owner that it does not have", what)
		}
	}
}

// noPreconditions of a change.
type noPreconditions struct{}

func (noPreconditions) Preconditions() *metav1.Preconditions { return nil }

func (noPreconditions) UpdatedObject(context.Context, runtime.Object) (runtime.Object, error) {
	return nil, nil
}
