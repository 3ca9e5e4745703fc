package failover

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/failover/loss"
)

// writeCondition writes the condition FailoverPaused of the HubSettings, when it has changed.
func (r *ClusterReconciler) writeCondition(ctx context.Context) error {
	hub := &v1alpha1.HubSettings{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.HubSettingsName}, hub); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // nothing is stated
		}
		return fmt.Errorf("read the HubSettings: %w", err)
	}
	next := hub.DeepCopy()
	setPauseCondition(next, r.isPaused)
	if apiequality.Semantic.DeepEqual(hub.Status, next.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, next, fieldOwner); err != nil {
		return fmt.Errorf("write the status of the HubSettings: %w", err)
	}
	return nil
}

// setPauseCondition sets the condition, and removes it where no failover is stated.
func setPauseCondition(hub *v1alpha1.HubSettings, isPaused bool) {
	if hub.Spec.Failover == nil {
		meta.RemoveStatusCondition(&hub.Status.Conditions, v1alpha1.HubFailoverPaused)
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.HubFailoverPaused, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonFewLost), ObservedGeneration: hub.Generation,
		Message: "the hub taints clusters that are lost",
	}
	if isPaused {
		c.Status, c.Reason = metav1.ConditionTrue, string(atoll.ReasonManyLost)
		c.Message = fmt.Sprintf("more than %d %% of all clusters, of those with streams, or of a zone, are lost: the hub taints no further one. "+
			"Mend their connection, taint single ones by `kubectl taint node CLUSTER %s:NoExecute`, or raise spec.failover.maxLostPercent", loss.TermsOf(hub.Spec.Failover).MaxLostPercent, v1alpha1.TaintUnreachable)
	}
	meta.SetStatusCondition(&hub.Status.Conditions, c)
}
