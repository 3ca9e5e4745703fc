package place

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// A Bundle goes to the next group when it is evicted from the first, comes back after the
// first has been in touch and fitting for the hold time, and is never without a place.
func TestFallBackAndFailback(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		online := func(cluster string, on bool) {
			m.mu.Lock()
			m.online["uid-"+cluster] = on
			m.mu.Unlock()
			for _, fn := range m.onCluster {
				fn(cluster)
			}
		}
		taint := func(taints ...v1alpha1.Taint) {
			m.cluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = taints })
		}
		m.bundle("web", func(b *state.Bundle) {
			b.Spec.Placement = v1alpha1.PlacementSpec{
				ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
					{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
					{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
				},
				Failback: &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{Duration: 10 * time.Minute}},
			}
		})
		m.cut("web", &atoll.Content{})
		want(t, m, "web", "a Active r1")
		m.settle("web")
		taint(v1alpha1.Taint{Key: "down", Effect: corev1.TaintEffectNoExecute})
		want(t, m, "web", "a Leaving r1, b Active r1")
		m.settle("web")
		want(t, m, "web", "b Active r1")
		taint()
		time.Sleep(9 * time.Minute)
		want(t, m, "web", "b Active r1")
		online("a", false) // the hold time ends, and begins anew when it is back
		time.Sleep(2 * time.Minute)
		want(t, m, "web", "b Active r1")
		online("a", true)
		time.Sleep(9 * time.Minute)
		want(t, m, "web", "b Active r1")
		time.Sleep(2 * time.Minute)
		want(t, m, "web", "a Active r1, b Leaving r1")
		m.settle("web")
		want(t, m, "web", "a Active r1")
	})
}
