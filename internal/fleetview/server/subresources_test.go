package server

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
	if err := refuseEvictionFromCordonedCluster(oslo, "web-1.oslo"); err != nil {
		t.Errorf("an eviction from a cluster that takes pods: %v", err)
	}
	oslo.Spec.Taints = []v1alpha1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
	if err := refuseEvictionFromCordonedCluster(oslo, "web-1.oslo"); err != nil {
		t.Errorf("an eviction from a cluster that is tainted otherwise: %v", err)
	}
	oslo.Spec.Taints = append(oslo.Spec.Taints, v1alpha1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	if err := refuseEvictionFromCordonedCluster(oslo, "web-1.oslo"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubectl taint node oslo drain=:NoExecute") {
		t.Errorf("an eviction from a cluster that is cordoned: %v", err)
	}
}

// TestAProxyIsAskedForAPort: as of any pod.
func TestAProxyIsAskedForAPort(t *testing.T) {
	for asked, want := range map[string][2]string{
		"web-1.oslo":            {"web-1.oslo", "web-1"},
		"web-1.oslo:8080":       {"web-1.oslo", "web-1:8080"},
		"https:web-1.oslo:8443": {"web-1.oslo", "https:web-1:8443"},
		"https:web-1.oslo:":     {"web-1.oslo", "https:web-1:"},
		"gopher:web-1.oslo:70":  {"gopher:web-1.oslo:70", "web-1"}, // which no pod is called
	} {
		if pod, as := splitProxyPodName(asked); pod != want[0] || as("web-1") != want[1] {
			t.Errorf("%s is %s, and %s there; want %v", asked, pod, as("web-1"), want)
		}
	}
}
