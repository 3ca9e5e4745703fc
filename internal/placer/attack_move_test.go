package placer

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"

	"atoll.dev/atoll/internal/atoll"
)

// With maxClusters, a cluster that fits and is not chosen has no verdict, so that its copy, which is being
// removed, is overlooked by the next step over all rows.
func TestAttackAnOldCopyInAClusterThatFitsIsOverlooked(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder, b.Spec.Placement = v1alpha1.MoveRecreate, atMostClusters(1) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		fillCluster(m, "a", 5)
		addClusters(m, "b")
		synctest.Wait()
		m.changeBundle("web", rebalanceAskedAt(time.Now()))
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		r.enqueueAllRows("web") // any edit or revision
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
	})
}

// The same after an eviction whose taint goes: the old copy in a disconnected cluster may still run.
func TestAttackATaintThatGoesStartsASecondCopy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder, b.Spec.Placement = v1alpha1.MoveRecreate, atMostClusters(1) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		addClusters(m, "b")
		m.setOnline("a", false)
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		synctest.Wait()
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Removing r1, b Pending r2")
	})
}

// A copy that is wanted again while it is being removed is counted as the replacement of another old copy. When
// its row is collected, its cluster's own step starts it at once.
func TestAttackAReturningCopyOverlooksAnOldCopy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		place := func(c ...string) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed(c...), v1alpha1.MoveRecreate })
		}
		place("a", "b")
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.setOnline("a", false)
		place("c")
		expectRows(t, m, "web", "a Removing r1, b Removing r1, c Pending r1")
		place("b")
		expectRows(t, m, "web", "a Removing r1, b Removing r1")
		m.reportState("web", "b", atoll.RowRemoved)
		synctest.Wait()
		m.dropRow("web", "b")
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
	})
}

// A Pending row in a cluster that disconnects has no verdict with maxClusters: the row stays while another
// cluster is chosen, and when the cluster is back both are wanted.
func TestAttackAPendingRowOfADisconnectedClusterStays(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder, b.Spec.Placement = v1alpha1.MoveRecreate, atMostClusters(1) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		addClusters(m, "b")
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		m.setOnline("b", false)
		addClusters(m, "c")
		synctest.Wait()
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		if got := m.rowsOf("web"); got != "a Removing r1, c Pending r2" {
			t.Errorf("b is disconnected, and the rows are %s", got)
		}
		m.setOnline("b", true)
		synctest.Wait()
		r.enqueueAllRows("web")
		synctest.Wait()
		if got := m.rowsOf("web"); got != "a Removing r1, c Pending r2" && got != "a Removing r1, b Pending r2" {
			t.Errorf("with b back, for one cluster, the rows are %s", got)
		}
		m.settleRows("web")
		t.Log(m.rowsOf("web"))
	})
}
