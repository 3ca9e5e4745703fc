package server

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusternode"
)

// refuseEviction answers an eviction from a cluster that takes nothing new; nil: the pod may be evicted. An evicted
// pod would start there again, because the member's own nodes take it. While the cluster is drained, the answer is the one
// of a disruption budget, which `kubectl drain` repeats. The pod is gone when its Bundle has left.
func refuseEviction(c *v1alpha1.Cluster, pod string) error {
	if c.Spec.FindDrain() != nil {
		return refuseWhileDrained(c, pod)
	}
	if !clusternode.IsUnschedulable(c) {
		return nil
	}
	return apierrors.NewForbidden(corev1.Resource("pods"), pod, fmt.Errorf(
		"cluster %[1]s is cordoned, and a pod that is evicted there starts there again: `atoll drain %[1]s`, or kubectl taint node %[1]s %[2]s:NoExecute, moves what it runs; then kubectl drain %[1]s follows", c.Name, v1alpha1.TaintDrain))
}

// refuseWhileDrained answers an eviction from a drained cluster. It names and counts no Bundle, because most may be of other
// tenants.
func refuseWhileDrained(c *v1alpha1.Cluster, pod string) error {
	reported := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterDraining)
	switch {
	case c.Spec.Removal != nil: // its report stands in the place of that of the drain
		return tooManyEvictions(atoll.ReasonBundlesLeave, fmt.Sprintf("cluster %s is being removed, and what it runs leaves it", c.Name))
	case reported == nil || reported.ObservedGeneration < c.Generation:
		return tooManyEvictions(atoll.ReasonBundlesLeave, fmt.Sprintf("the drain of cluster %s begins", c.Name))
	case reported.Status != metav1.ConditionTrue || reported.Reason == string(atoll.ReasonCannotLeave):
		return apierrors.NewForbidden(corev1.Resource("pods"), pod, fmt.Errorf(
			"cluster %[1]s is drained, and nothing replaces this pod elsewhere, or a budget keeps it: `atoll drain %[1]s` lists what stays, and why", c.Name))
	}
	return tooManyEvictions(atoll.Reason(reported.Reason), fmt.Sprintf("cluster %s is drained, replacements first, and the drain goes on (%s)", c.Name, reported.Reason))
}

// tooManyEvictions returns the error that requires another try, as that of a disruption budget does.
func tooManyEvictions(reason atoll.Reason, message string) error {
	err := apierrors.NewTooManyRequests(message, 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseType(reason), Message: message}}
	return err
}
