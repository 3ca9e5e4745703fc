package decisions

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func withFreeCPU(free string) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		asked := resource.MustParse("100")
		asked.Sub(resource.MustParse(free))
		c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
		c.Status.Resources.Requested = corev1.ResourceList{corev1.ResourceCPU: asked}
	}
}

// A published choice stays while better clusters come, and is made from scratch on request, once.
func TestARebalanceIsPublished(t *testing.T) {
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		want := func(names string) {
			t.Helper()
			if got := h.publishedText("shop"); got != names {
				t.Fatalf("published %q, want %q", got, names)
			}
		}
		ask := func(at time.Time) {
			t.Helper()
			key := types.NamespacedName{Namespace: "shop", Name: "edge"}
			p, _ := fakePlacements{h}.Get(key)
			p.Meta.Annotations = maps.Clone(p.Meta.Annotations)
			if p.Meta.Annotations == nil {
				p.Meta.Annotations = map[string]string{}
			}
			p.Meta.Annotations[atoll.AnnotationRebalance] = atoll.FormatRebalanceTime(at)
			obj := p.ToObject()
			if err := h.client.Update(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			h.storeObject(obj)
			for _, fn := range h.onPlacement {
				fn(key)
			}
		}
		h.changeCluster("a", withFreeCPU("50"))
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{MaxClusters: 1, Scores: []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu"}}})
		want("a")
		h.changeCluster("b", withFreeCPU("90"))
		want("a")
		at := time.Now()
		ask(at)
		want("b")
		h.changeCluster("a", withFreeCPU("100"))
		want("b")
		ask(at)
		want("b")
		d := (fakeDecisions{h}).OfPlacement(types.NamespacedName{Namespace: "shop", Name: "edge"})
		if len(d) != 1 || !strings.Contains(d[0].Status.PlacementFingerprint, atoll.RebalanceSeparator) {
			t.Errorf("published as %+v", d)
		}
		ask(at.Add(time.Second))
		want("a")
	})
}
