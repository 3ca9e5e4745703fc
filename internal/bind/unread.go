package bind

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// reasonUnread of conditions.
const reasonUnread = "CannotRead"

// why a kind is not read, since when and what to do; empty while it is too early to
// say so, and once it is read.
func (b *Binder) why(gk schema.GroupKind) string {
	err := b.Templates.Unread(gk.Group, gk.Kind)
	since := b.unread.begin(gk, time.Now())
	if err == nil || time.Since(since) < waitsLong {
		return ""
	}
	return fmt.Sprintf("objects of kind %s cannot be read since %s: %v; what is placed stays as it is, and changes wait. Look at the hub's log, and repair or remove what cannot be read",
		gk, since.UTC().Format(time.RFC3339), err)
}

// await a kind without which the Bundle's content could be wrong: nothing is cut
// meanwhile, and after a while the Bundle and its policy say so.
func (b *Binder) await(ctx context.Context, id claim.BundleID, bundle state.Bundle, from origin, gk schema.GroupKind) error {
	if b.ReadOnly {
		return nil
	}
	why := b.why(gk)
	if why == "" {
		b.queue.AddAfter(id, waitsLong)
		return nil
	}
	b.queue.AddAfter(id, waitsAgain)
	if b.unread.first(gk) {
		b.Log.Error("a kind cannot be read; no revision is cut of a Bundle that has objects of it, other Bundles go on", "kind", gk.String(), "why", why)
	}
	return b.unbound(ctx, id, bundle, from, reasonUnread, why)
}

// resume takes back what await said.
func (b *Binder) resume(ctx context.Context, bundle state.Bundle, from origin) error {
	for _, gk := range b.unread.all() {
		if b.Templates.Synced(gk.Group, gk.Kind) {
			b.unread.end(gk)
		}
	}
	c := meta.FindStatusCondition(bundle.Status.Conditions, v1alpha1.BundleBound)
	if b.ReadOnly || c == nil || c.Status == metav1.ConditionTrue {
		return nil
	}
	b.reports.touch(policyKey{from.source.Kind, bundle.Ref.Namespace, from.source.Name})
	return b.Say(ctx, bundle, metav1.Condition{
		Type: v1alpha1.BundleBound, Status: metav1.ConditionTrue, Reason: "Read", Message: "all kinds of its objects are read, and all can be sent",
	})
}

// Say a condition of a Bundle that exists, where it is news.
func (b *Binder) Say(ctx context.Context, bundle state.Bundle, c metav1.Condition) error {
	if bundle.Ref.UID == "" {
		return nil
	}
	c.ObservedGeneration = bundle.Meta.Generation
	before, next := bundle.Object(), bundle
	next.Status.Conditions = append([]metav1.Condition(nil), bundle.Status.Conditions...)
	if !meta.SetStatusCondition(&next.Status.Conditions, c) {
		return nil
	}
	now := next.Object()
	if err := b.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), owner); err != nil {
		return fmt.Errorf("say what bundle %s/%s waits for: %w", bundle.Ref.Namespace, bundle.Ref.Name, err)
	}
	b.Bundles.Put(now)
	return nil
}
