package setstatus

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// countInterval is the shortest time between two writes of a set's number of clusters, so that a thousand
// clusters that join cost a few writes.
const countInterval = 10 * time.Second

// writeSetStatus writes the status of a set when it has changed. It returns the time after which it must be called again.
func (w *StatusWriter) writeSetStatus(ctx context.Context, name string) (again time.Duration, err error) {
	old, ok := w.sets.Get(name)
	if !ok || old.DeletionTimestamp != nil {
		delete(w.lastWrites, name)
		return 0, nil
	}
	now := old.DeepCopy()
	now.Status = setStatus(old, w.sets.CountClusters(name))
	if apiequality.Semantic.DeepEqual(old.Status, now.Status) {
		return 0, nil
	}
	if wait := countInterval - time.Since(w.lastWrites[name]); wait > 0 && old.Status.ObservedGeneration == old.Generation {
		return wait, nil
	}
	if err := w.patchStatus(ctx, "ClusterSet", old, now); err != nil {
		return 0, err
	}
	w.lastWrites[name] = time.Now()
	return 0, nil
}

// setStatus returns the status of a set that has this number of clusters.
func setStatus(set *v1alpha1.ClusterSet, clusters int) v1alpha1.ClusterSetStatus {
	now := *set.Status.DeepCopy()
	now.ObservedGeneration, now.Clusters = set.Generation, new(int32(min(clusters, 1<<31-1)))
	c := metav1.Condition{
		Type: v1alpha1.ClusterSetEmpty, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonClustersSelected), ObservedGeneration: set.Generation,
		Message: "clusters are in the set",
	}
	if clusters == 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(atoll.ReasonNoClusterMatched), emptySetMessage(set)
	}
	meta.SetStatusCondition(&now.Conditions, c)
	return now
}

// emptySetMessage describes how a cluster gets into an empty set.
func emptySetMessage(set *v1alpha1.ClusterSet) string {
	if set.Spec.ClusterSelector.SelectorType == v1alpha1.SelectByLabels {
		return "no cluster has the labels of spec.clusterSelector: label a Cluster, or change the selector"
	}
	return fmt.Sprintf("no cluster is in the set: label a Cluster with %s=%s, or join one with a token of the set", v1alpha1.LabelClusterSet, set.Name)
}
