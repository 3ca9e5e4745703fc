package placer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// While the old copy ends, the place of its replacement goes to another Bundle, and the Bundle runs nowhere. With
// Surge it has its place from the first step on.
func TestAttackPlaceOfAWithheldReplacementIsKept(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			m.changeCluster("a", withCapacity(5))
			m.changeCluster("b", withCapacity(5))
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), order })
				m.cutRevision("web", undividedContent("web", 5))
				m.settleRows("web")
				expectRows(t, m, "web", "a Active r1")
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
				time.Sleep(time.Minute)
				m.placeBundle("late", placementNamed("b"), undividedContent("late", 5))
				m.settleRows("late")
				m.settleRows("web")
				if got := m.rowsOf("web"); got != "b Active r1" {
					t.Errorf("web has %q, late has %q", got, m.rowsOf("late"))
				}
			})
		})
	}
}

// A failback over the default order: the group that is left is disconnected, comes back, and both run.
func TestAttackEvictedClusterComesBackInDefaultOrder(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = ownThenCloudPlacement(time.Minute) })
		m.cutRevision("web", attackSet())
		m.settleRows("web")
		m.setOnline("a", false)
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		// a comes back; its agent removes the copy, and its report is late while the hold time ends.
		m.setOnline("a", true)
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(2 * time.Minute)
		expectRowsNot(t, m, "web", "a Active r1, b Leaving r1")
	})
}

func expectRowsNot(t *testing.T, m *fakeHub, uid, rows string) {
	t.Helper()
	if got := m.rowsOf(uid); got == rows {
		t.Errorf("a is started while b runs: %s", got)
	}
}

var _ = atoll.RowActive
