package binder

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// Verdicts of gates are written beside the rest of the status. A Bundle that another writer changed is a conflict.
func TestSetBundleRollout(t *testing.T) {
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
	gates := []v1alpha1.GateStatus{{Stage: "canary", Name: "owner", State: v1alpha1.GateWaiting}}
	decided := *before.Status.Rollout
	decided.Gates, decided.Rollback, decided.StageCut = gates, &v1alpha1.RollbackStatus{Revision: "r"}, &v1alpha1.StageCut{Revision: "r"}
	if err := b.SetBundleRollout(t.Context(), before, decided); err != nil {
		t.Fatal(err)
	}
	after := read().Status
	if after.Rollout == nil || len(after.Rollout.Gates) != 1 || after.Rollout.Rollback == nil || after.Rollout.StageCut == nil || after.Rollout.CurrentStage != "canary" || len(after.Conditions) == 0 || len(x.written) != 1 {
		t.Errorf("the status is %+v, and %d Bundles are in the table", after, len(x.written))
	}
	if before.Status.Rollout.Gates != nil || len(before.Status.Conditions) > 0 {
		t.Errorf("the Bundle of the caller changed: %+v", before.Status)
	}
	if err := b.SetBundleRollout(t.Context(), before, v1alpha1.RolloutStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("an outdated Bundle is written: %v", err)
	}
}
