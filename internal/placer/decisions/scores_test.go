package decisions

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// A Placement that may move does when a report makes another cluster better; other reports cause
// no decision.
func TestPublishesWhatIsBetter(t *testing.T) {
	free := func(cpus int64) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}
		}
	}
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		full := resource.MustParse("100")
		h.changeCluster("a", free(50))
		h.changeCluster("b", free(10))
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{
			MaxClusters:  1,
			Scores:       []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}},
			Rescheduling: &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{}},
		})
		for _, tc := range []struct {
			b    int64
			want string
		}{{10, "a"}, {59, "a"}, {61, "b"}, {55, "b"}, {30, "a"}} {
			h.changeCluster("b", free(tc.b))
			time.Sleep(scoreDebounce)
			if got := h.publishedText("shop"); got != tc.want {
				t.Errorf("where a has 50 CPUs and b %d, published %q, want %q", tc.b, got, tc.want)
			}
		}
	})
}

// The hold time of failback runs for a Placement as for a policy.
func TestPublishesTheWayBack(t *testing.T) {
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		h.changeCluster("a", nil)
		h.changeCluster("b", nil)
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{
			ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
				{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
				{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
			},
			Failback: &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{Duration: 10 * time.Minute}},
		})
		want := func(clusters string) {
			t.Helper()
			if got := h.publishedText("shop"); got != clusters {
				t.Fatalf("published %q, want %q", got, clusters)
			}
		}
		want("a")
		h.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		want("b")
		h.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(9 * time.Minute)
		want("b")
		time.Sleep(2 * time.Minute)
		want("a")
	})
}
