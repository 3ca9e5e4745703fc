package get

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// A lost cluster shows when the hub taints it, and one with the taint since when.
func TestALostClusterShowsItsFailover(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lost := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}, Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue},
		{Type: v1alpha1.ClusterReady, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-2 * time.Minute))},
	}}}
	tainted := lost.DeepCopy()
	tainted.Spec.Taints = []v1alpha1.Taint{{Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: now.Add(-time.Minute)}}}
	terms := func(after time.Duration) *v1alpha1.ClusterFailover {
		return &v1alpha1.ClusterFailover{After: metav1.Duration{Duration: after}}
	}
	for _, tc := range []struct {
		cluster *v1alpha1.Cluster
		terms   *v1alpha1.ClusterFailover
		want    string
	}{
		{lost, nil, ""},
		{lost, terms(5 * time.Minute), "taints it in 3m"},
		{lost, terms(time.Minute), "about to taint it"},
		{tainted, nil, "tainted as lost since 2026-01-01T11:59:00Z"},
		{&v1alpha1.Cluster{}, terms(time.Minute), ""},
	} {
		if got := failoverText(tc.cluster, tc.terms, now); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
