package sourcesets

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// setCondition sets a condition of a SourceSet.
func setCondition(set *v1alpha1.SourceSet, kind string, isTrue bool, reason atoll.Reason, message string) {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&set.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: string(reason), Message: phrase.TruncateText(phrase.EscapeLine(message), 1024), ObservedGeneration: set.Generation,
	})
}

// updateSet changes the status of a SourceSet, and writes it when it has changed. A SourceSet that was made again under the name is
// another one, and is not changed.
func (r *Reconciler) updateSet(ctx context.Context, set *v1alpha1.SourceSet, change func(now *v1alpha1.SourceSet)) error {
	old := set
	for range 3 {
		if old.UID != set.UID || old.DeletionTimestamp != nil {
			return nil
		}
		now := old.DeepCopy()
		change(now)
		atoll.AddUnknownConditions("SourceSet", &now.Status.Conditions, now.Generation, metav1.Now())
		now.Status.WaitsFor = unmetReason(now)
		if apiequality.Semantic.DeepEqual(now.Status, old.Status) {
			return nil
		}
		err := r.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(atoll.HubFieldManager))
		switch {
		case err == nil:
			r.Sets.Put(now)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("write the status of a SourceSet: %w", err)
		}
		// The table lags behind the store: the spec that this status is of may have changed.
		var fresh v1alpha1.SourceSet
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(set), &fresh); err != nil {
			return client.IgnoreNotFound(err)
		}
		old = &fresh
	}
	return fmt.Errorf("write the status of the SourceSet %s: it changes all the time", set.Name)
}

// unmetReason returns why the SourceSet is not complete; empty when it is.
func unmetReason(set *v1alpha1.SourceSet) string {
	for _, kind := range []string{v1alpha1.SourceSetGenerated, v1alpha1.SourceSetApplied} {
		if c := meta.FindStatusCondition(set.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}
