package server

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The answer names and counts nothing of other tenants. An eviction from a drained cluster is repeated while the drain goes on, and is refused when nothing moves any more. A
// cordon alone moves nothing, and the refusal names the command that does.
func TestEvictionsFollowTheDrain(t *testing.T) {
	cordon := v1alpha1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	drain := v1alpha1.Taint{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}
	report := func(status metav1.ConditionStatus, reason atoll.Reason, generation int64) *metav1.Condition {
		return &metav1.Condition{Type: v1alpha1.ClusterDraining, Status: status, Reason: string(reason), ObservedGeneration: generation, Message: "shop/secret waits"}
	}
	for name, tc := range map[string]struct {
		taints    []v1alpha1.Taint
		reported  *metav1.Condition
		isRemoved bool
		is        func(error) bool
		contains  string
	}{
		"takes pods":                   {is: func(err error) bool { return err == nil }},
		"another taint":                {taints: []v1alpha1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}, is: func(err error) bool { return err == nil }},
		"cordoned":                     {taints: []v1alpha1.Taint{cordon}, is: apierrors.IsForbidden, contains: "`atoll drain oslo`"},
		"drained and removed":          {taints: []v1alpha1.Taint{drain}, isRemoved: true, is: apierrors.IsTooManyRequests, contains: "is being removed"},
		"just drained":                 {taints: []v1alpha1.Taint{drain}, is: apierrors.IsTooManyRequests, contains: "begins"},
		"reported of an earlier edit":  {taints: []v1alpha1.Taint{drain}, reported: report(metav1.ConditionFalse, atoll.ReasonDrained, 1), is: apierrors.IsTooManyRequests, contains: "begins"},
		"replacements are awaited":     {taints: []v1alpha1.Taint{cordon, drain}, reported: report(metav1.ConditionTrue, atoll.ReasonWaitsForReplacements, 2), is: apierrors.IsTooManyRequests, contains: "the drain goes on (WaitsForReplacements)"},
		"nothing else can leave":       {taints: []v1alpha1.Taint{drain}, reported: report(metav1.ConditionTrue, atoll.ReasonCannotLeave, 2), is: apierrors.IsForbidden, contains: "nothing replaces this pod"},
		"only copies that stay remain": {taints: []v1alpha1.Taint{drain}, reported: report(metav1.ConditionFalse, atoll.ReasonDrained, 2), is: apierrors.IsForbidden, contains: "`atoll drain oslo`"},
	} {
		t.Run(name, func(t *testing.T) {
			oslo := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo", Generation: 2}, Spec: v1alpha1.ClusterSpec{Taints: tc.taints}}
			if tc.reported != nil {
				oslo.Status.Conditions, oslo.Status.Drain = []metav1.Condition{*tc.reported}, &v1alpha1.ClusterDrainStatus{Bundles: 4, Left: 1, Waiting: 3}
			}
			if tc.isRemoved {
				oslo.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}
			}
			err := refuseEviction(oslo, "web-1.oslo")
			if !tc.is(err) || err != nil && (!strings.Contains(err.Error(), tc.contains) || strings.ContainsAny(err.Error(), "34") || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%v", err)
			}
			if apierrors.IsTooManyRequests(err) && len(err.(apierrors.APIStatus).Status().Details.Causes) != 1 {
				t.Errorf("it has no cause: %+v", err)
			}
		})
	}
}
