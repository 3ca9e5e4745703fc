package live

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

func TestNodesAreCarriedAsOneSum(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	measured := func(after, window time.Duration, usage ...string) metricsv1.NodeMetrics {
		n := metricsv1.NodeMetrics{Timestamp: metav1.NewTime(noon.Add(after)), Window: metav1.Duration{Duration: window}, Usage: corev1.ResourceList{}}
		for i := 0; i < len(usage); i += 2 {
			n.Usage[corev1.ResourceName(usage[i])] = resource.MustParse(usage[i+1])
		}
		return n
	}
	for name, x := range map[string]struct{ nodes, want []metricsv1.NodeMetrics }{
		"none": {nil, nil},
		"one":  {[]metricsv1.NodeMetrics{measured(0, time.Second, "cpu", "250m")}, []metricsv1.NodeMetrics{measured(0, time.Second, "cpu", "250m")}},
		"several": {
			[]metricsv1.NodeMetrics{measured(time.Minute, 10*time.Second, "cpu", "250m", "memory", "1Gi"), measured(0, time.Minute, "cpu", "1", "memory", "1Gi"), measured(time.Hour, time.Second, "memory", "1Gi", "x/y", "3")},
			[]metricsv1.NodeMetrics{measured(0, time.Minute, "cpu", "1250m", "memory", "3Gi", "x/y", "3")},
		},
	} {
		before := append([]metricsv1.NodeMetrics(nil), x.nodes...)
		for i := range before {
			before[i] = *before[i].DeepCopy()
		}
		if got := sumNodeMetrics(x.nodes); !equality.Semantic.DeepEqual(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
		if !equality.Semantic.DeepEqual(x.nodes, before) {
			t.Errorf("%s: what was summed has changed", name)
		}
	}
}
