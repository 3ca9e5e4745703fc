package setstatus

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// writeBindingStatus writes the status of a binding when it has changed.
func (w *StatusWriter) writeBindingStatus(ctx context.Context, key types.NamespacedName) error {
	old, ok := w.bindings.GetBinding(key)
	if !ok || old.DeletionTimestamp != nil {
		return nil
	}
	_, exists := w.sets.Get(key.Name)
	now := old.DeepCopy()
	now.Status = bindingStatus(old, exists)
	if apiequality.Semantic.DeepEqual(old.Status, now.Status) {
		return nil
	}
	return w.patchStatus(ctx, "ClusterSetBinding", old, now)
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
