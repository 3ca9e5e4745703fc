package view

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// TestNobodyIsEvictedFromACordonedCluster: there a pod would start again at once.
func TestNobodyIsEvictedFromACordonedCluster(t *testing.T) {
	oslo := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}
	if err := mayLeave(oslo, "web-1.oslo"); err != nil {
		t.Errorf("an eviction from a cluster that takes pods: %v", err)
	}
	oslo.Spec.Taints = []v1alpha1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
	if err := mayLeave(oslo, "web-1.oslo"); err != nil {
		t.Errorf("an eviction from a cluster that is tainted otherwise: %v", err)
	}
	oslo.Spec.Taints = append(oslo.Spec.Taints, v1alpha1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	if err := mayLeave(oslo, "web-1.oslo"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubectl taint node oslo drain=:NoExecute") {
		t.Errorf("an eviction from a cluster that is cordoned: %v", err)
	}
}
