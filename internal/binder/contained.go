package binder

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
)

// reportPanic sets the Bundle's condition Bound to the reason ReconcilePanicked. The next success
// sets it back. A Bundle that has no object yet has no condition: the log has the panic.
func (b *Binder) reportPanic(ctx context.Context, id policymatch.BundleID, _ *reconcile.Panic) {
	bundle, exists := b.Bundles.GetByName(id.Namespace, id.Name)
	if !exists || b.ReadOnly {
		return
	}
	err := b.SetBundleCondition(ctx, bundle, metav1.Condition{
		Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonReconcilePanicked),
		Message: "its objects cannot be bound by a defect of Atoll: the content stays as it is, and the hub tries again; its log has the place",
	})
	if err != nil {
		b.Log.Warn("the condition of a bundle that cannot be bound is not written", "bundle", id.String(), "err", err)
	}
}

// handleEventContainingPanic handles an event. An event that panics is handled again after a pause, and other
// events go on: one template or policy must not end the hub. A template is handled again as if it
// had changed, because the panic may come after the binder has noted its state. The other handlers
// note a state after they have touched its Bundles, so that the next try finds the change.
func (b *Binder) handleEventContainingPanic(e tableEvent) {
	p := reconcile.ContainPanicCounted("bind-events", func() { b.handleEvent(e) })
	retry := e
	retry.force = e.template != (atoll.ItemKey{})
	if p == nil {
		delete(b.eventPauses, retry)
		return
	}
	last, repeated := b.eventPauses[retry]
	pause := reconcile.NextPanicPause(last)
	b.eventPauses[retry], p.IsRepeated = pause, repeated
	b.Log.Error("a change could not be bound; other changes go on, and this one is tried again",
		"template", e.template.String(), "policy", e.policy, "placement", e.placement, "namespace", e.namespace, "bundle", e.bundleUID, "after", pause, "err", p)
	time.AfterFunc(pause, func() { b.events.putRechecks(retry) })
}
