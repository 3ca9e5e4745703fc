// Package setbindings writes the status of ClusterSetBindings.
//
// Contract: one Writer for each hub writes, while its hub leads. The status follows from the
// binding and the existence of its ClusterSet (bindingStatus, a pure function). A binding is written
// when its status changes: once when it is created, and once when its ClusterSet is created or
// deleted. Run is called once, when the tables are synced.
package setbindings

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
)

// Bindings is the table of ClusterSetBindings and ClusterSets.
type Bindings interface {
	Get(set string) (*v1alpha1.ClusterSet, bool)
	GetBinding(key types.NamespacedName) (*v1alpha1.ClusterSetBinding, bool)
	ListBindings() []types.NamespacedName
	SubscribeBindings(fn func(key types.NamespacedName))
}

// fieldOwner is the field manager of the status.
const fieldOwner = client.FieldOwner("atoll-hub")

// BindingStatusWriter writes the status of ClusterSetBindings. Make it with New.
type BindingStatusWriter struct {
	bindings Bindings
	client   client.Client
	loop     *reconcile.Loop[types.NamespacedName]
}

// New makes a Writer and subscribes it to the table.
func New(bindings Bindings, c client.Client, log *slog.Logger) *BindingStatusWriter {
	w := &BindingStatusWriter{bindings: bindings, client: c}
	w.loop = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "setbindings",
		Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			return 0, w.writeStatus(ctx, key)
		},
		Failed: func(key types.NamespacedName, err error) {
			if !apierrors.IsConflict(err) {
				log.Warn("could not write the status of a ClusterSetBinding; trying again", "namespace", key.Namespace, "name", key.Name, "err", err)
			}
		},
	})
	bindings.SubscribeBindings(w.loop.EnqueueNow)
	return w
}

// Run writes until ctx ends.
func (w *BindingStatusWriter) Run(ctx context.Context) error {
	w.loop.Run(ctx, func() {
		for _, key := range w.bindings.ListBindings() {
			w.loop.EnqueueRecheck(key, 0)
		}
	})
	return nil
}

// writeStatus writes the status of a binding when it has changed.
func (w *BindingStatusWriter) writeStatus(ctx context.Context, key types.NamespacedName) error {
	old, ok := w.bindings.GetBinding(key)
	if !ok || old.DeletionTimestamp != nil {
		return nil
	}
	_, exists := w.bindings.Get(key.Name)
	now := old.DeepCopy()
	now.Status = bindingStatus(old, exists)
	if apiequality.Semantic.DeepEqual(old.Status, now.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := w.client.Status().Patch(ctx, now, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of ClusterSetBinding %s: %w", key, err)
	}
	return nil
}

// bindingStatus returns the status of a binding whose ClusterSet exists or not.
func bindingStatus(b *v1alpha1.ClusterSetBinding, exists bool) v1alpha1.ClusterSetBindingStatus {
	now := *b.Status.DeepCopy()
	now.ObservedGeneration = b.Generation
	c := metav1.Condition{
		Type: v1alpha1.ClusterSetBindingBound, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonBound), ObservedGeneration: b.Generation,
		Message: "the namespace may place on the ClusterSet",
	}
	if !exists {
		c.Status, c.Reason = metav1.ConditionFalse, string(atoll.ReasonClusterSetMissing)
		c.Message = fmt.Sprintf("the ClusterSet %s does not exist", b.Spec.ClusterSet)
	}
	meta.SetStatusCondition(&now.Conditions, c)
	return now
}
