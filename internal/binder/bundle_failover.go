package binder

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// SetBundleFailover writes what is stored about the health of a Bundle's application; nil: nothing is. A Bundle that changed since is a conflict.
func (b *Binder) SetBundleFailover(ctx context.Context, bundle state.Bundle, is *v1alpha1.ApplicationFailoverStatus) error {
	before, next := bundle.ToObject(), bundle
	next.Status.Failover = is
	next.Status.Conditions = append([]metav1.Condition(nil), bundle.Status.Conditions...)
	atoll.AddUnknownConditions("Bundle", &next.Status.Conditions, bundle.Meta.Generation, metav1.Now())
	now := next.ToObject()
	if err := b.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
		return fmt.Errorf("write the failover of bundle %s/%s: %w", bundle.Ref.Namespace, bundle.Ref.Name, err)
	}
	b.Bundles.Put(now)
	return nil
}
