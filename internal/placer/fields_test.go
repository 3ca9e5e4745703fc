package placer

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// The Bundle's removal mode decides whether an edit takes rows out at once.
func TestRemovalBudgetOfABundle(t *testing.T) {
	for _, tc := range []struct {
		budget intstr.IntOrString
		want   string
	}{
		{intstr.FromInt32(0), "a Active r1, b Held r1"},
		{intstr.FromInt32(1), "a Active r1, b Removing r1"},
	} {
		t.Run(tc.budget.String(), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				set := func(p v1alpha1.PlacementSpec) {
					m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = p, &tc.budget })
				}
				set(placementNamed("a", "b"))
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				set(placementNamed("a"))
				expectRows(t, m, "web", tc.want)
			})
		})
	}
}

// A cluster whose labels drift keeps what it runs, unless the Bundle states otherwise.
func TestWhenUnfitOfABundle(t *testing.T) {
	for unfit, then := range map[v1alpha1.WhenUnfit]string{
		v1alpha1.UnfitKeep:   "a Active r1, b Active r1",
		v1alpha1.UnfitRemove: "a Removing r1, b Active r1",
	} {
		t.Run(string(unfit), func(t *testing.T) {
			m := newFakeHub()
			prod := map[string]string{"env": "prod"}
			for _, name := range []string{"a", "b"} {
				m.changeCluster(name, func(c *v1alpha1.Cluster) { c.Labels = prod })
			}
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.WhenUnfit = placementLabelled(prod), unfit })
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = nil })
				expectRows(t, m, "web", then)
			})
		})
	}
}
