package binder

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// The status of a failover is written beside the rest of the status, and taken away again. A Bundle that another writer changed is a conflict.
func TestSetBundleFailover(t *testing.T) {
	made := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "bundle-uid"}, Status: v1alpha1.BundleStatus{Rollout: &v1alpha1.RolloutStatus{CurrentStage: "canary"}}}
	b, x, _ := newTestBinder(t, made)
	read := func() state.Bundle {
		var stored v1alpha1.Bundle
		if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &stored); err != nil {
			t.Fatal(err)
		}
		out, _ := state.BundleOf(&stored)
		return out
	}
	before := read()
	if err := b.SetBundleFailover(t.Context(), before, &v1alpha1.ApplicationFailoverStatus{HealthyRevision: "web-1-x"}); err != nil {
		t.Fatal(err)
	}
	after := read()
	if is := after.Status; is.Failover == nil || is.Failover.HealthyRevision != "web-1-x" || is.Rollout == nil || is.Rollout.CurrentStage != "canary" || len(is.Conditions) == 0 || len(x.written) != 1 {
		t.Errorf("the status is %+v, and %d Bundles are in the table", is, len(x.written))
	}
	if before.Status.Failover != nil || len(before.Status.Conditions) > 0 {
		t.Errorf("the Bundle of the caller changed: %+v", before.Status)
	}
	if err := b.SetBundleFailover(t.Context(), before, nil); !apierrors.IsConflict(err) {
		t.Errorf("an outdated Bundle is written: %v", err)
	}
	if err := b.SetBundleFailover(t.Context(), after, nil); err != nil || read().Status.Failover != nil {
		t.Errorf("%v, and the status is %+v", err, read().Status.Failover)
	}
}
