package binder

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// unreadableReason explains why a kind is not read, since when, and what to do. It is empty for
// the first 10 s and for a kind that is read.
func (b *Binder) unreadableReason(gk schema.GroupKind) string {
	err := b.Kinds.UnreadReason(gk.Group, gk.Kind)
	since := b.unreadableKinds.startWait(gk, time.Now())
	if err == nil || time.Since(since) < reportWaitAfter {
		return ""
	}
	return fmt.Sprintf("objects of kind %s cannot be read since %s: %v; what is placed stays as it is, and changes wait. Look at the hub's log, and repair or remove what cannot be read",
		gk, phrase.FormatTime(since), err)
}

// awaitKind waits for a kind without which the content could be wrong: no Revision is created.
// After a while the Bundle and its policy report the wait.
func (b *Binder) awaitKind(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, from bundleOrigin, gk schema.GroupKind) (again time.Duration, err error) {
	b.ownership.setWaitsForSync(id, true)
	if b.ReadOnly {
		return 0, nil
	}
	why := b.unreadableReason(gk)
	if why == "" {
		return reportWaitAfter, nil
	}
	if b.unreadableKinds.markReported(gk) {
		b.Log.Error("a kind cannot be read; no revision is cut of a Bundle that has objects of it, other Bundles go on", "kind", gk.String(), "why", why)
	}
	return recheckWaitAfter, b.setUnboundCondition(ctx, id, bundle, from, atoll.ReasonCannotRead, why)
}

// clearUnboundCondition withdraws the condition of an earlier wait.
func (b *Binder) clearUnboundCondition(ctx context.Context, bundle state.Bundle, from bundleOrigin) error {
	for _, gk := range b.unreadableKinds.pendingKeys() {
		if b.Kinds.IsSynced(gk.Group, gk.Kind) {
			b.unreadableKinds.endWait(gk)
		}
	}
	c := meta.FindStatusCondition(bundle.Status.Conditions, v1alpha1.BundleBound)
	if b.ReadOnly || atoll.IsUndetermined(c) || c.Status == metav1.ConditionTrue {
		return nil
	}
	id := policymatch.BundleID{Namespace: bundle.Ref.Namespace, Name: bundle.Ref.Name}
	b.policyStatus.enqueuePolicy(PolicyKey{from.source.Kind, policyNamespace(from.source.Kind, id), from.source.Name})
	return b.SetBundleCondition(ctx, bundle, metav1.Condition{
		Type: v1alpha1.BundleBound, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonRead), Message: "all kinds of its objects are read, and all can be sent",
	})
}

// SetBundleCondition writes a condition of a Bundle that exists, when it changes.
func (b *Binder) SetBundleCondition(ctx context.Context, bundle state.Bundle, c metav1.Condition) error {
	if bundle.Ref.UID == "" {
		return nil
	}
	c.ObservedGeneration = bundle.Meta.Generation
	before, next := bundle.ToObject(), bundle
	next.Status.Conditions = append([]metav1.Condition(nil), bundle.Status.Conditions...)
	if !meta.SetStatusCondition(&next.Status.Conditions, c) {
		return nil
	}
	atoll.AddUnknownConditions("Bundle", &next.Status.Conditions, bundle.Meta.Generation, metav1.Now())
	now := next.ToObject()
	if err := b.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
		return fmt.Errorf("write the condition of bundle %s/%s: %w", bundle.Ref.Namespace, bundle.Ref.Name, err)
	}
	b.Bundles.Put(now)
	return nil
}

// SetBundleRollout writes what is decided about a Bundle's rollout. A Bundle that changed since is a conflict.
func (b *Binder) SetBundleRollout(ctx context.Context, bundle state.Bundle, is v1alpha1.RolloutStatus) error {
	before, next := bundle.ToObject(), bundle
	next.Status.Rollout = &is
	next.Status.Conditions = append([]metav1.Condition(nil), bundle.Status.Conditions...)
	atoll.AddUnknownConditions("Bundle", &next.Status.Conditions, bundle.Meta.Generation, metav1.Now())
	now := next.ToObject()
	if err := b.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
		return fmt.Errorf("write the rollout of bundle %s/%s: %w", bundle.Ref.Namespace, bundle.Ref.Name, err)
	}
	b.Bundles.Put(now)
	return nil
}
