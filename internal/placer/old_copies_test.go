package placer

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// With maxClusters, a copy that is being removed is awaited also in a cluster that fits and is not chosen.
func TestAnOldCopyInAClusterThatFitsIsAwaited(t *testing.T) {
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
func TestATaintThatGoesStartsNoSecondCopy(t *testing.T) {
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

// A copy that is wanted again while it is being removed replaces no other old copy. When its row is collected,
// it waits for the other one.
func TestAReturningCopyAwaitsAnotherOldCopy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		place := func(c ...string) {
			m.changeBundle("web", func(b *state.Bundle) {
				b.Spec.Placement, b.Spec.MoveOrder = placementNamed(c...), v1alpha1.MoveRecreate
			})
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

// A Pending row in a cluster that disconnects makes room for another cluster. When the cluster is back, one of
// them is wanted.
func TestAPendingRowLeavesADisconnectedCluster(t *testing.T) {
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
	})
}

// A deleted template does not come back in a cluster whose row waited at an older revision.
func TestAPendingRowStartsAtNoOldRevision(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", nil)
	m.changeCluster("b", withCapacity(5))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), v1alpha1.MoveRecreate })
		m.cutRevision("web", undividedContent("web", 3))
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		next := undividedContent("web", 8)
		next.Tombstones = []atoll.Tombstone{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "old"}, UID: "x", Cause: atoll.CauseDeleted}}
		m.cutRevision("web", next)
		synctest.Wait()
		m.settleRows("web")
		if got := m.rowsOf("web"); got == "b Active r1" {
			t.Errorf("a copy starts at the old revision, with what was deleted since: %s", got)
		}
	})
}

// A move whose old copy runs in a connected cluster is not reported as one of a disconnected copy, nor
// written, because the hub starts.
func TestARestartOfTheHubWritesNoWait(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveRecreate, ""} {
		t.Run("order "+string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			for _, name := range []string{"a", "b"} {
				m.changeCluster(name, func(c *v1alpha1.Cluster) {
					c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
				})
			}
			synctest.Test(t, func(t *testing.T) {
				stop := startReconciler(t, m)
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), order })
				m.cutRevision("web", statefulSetContent())
				m.settleRows("web")
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
				expectRows(t, m, "web", "a Removing r1, b Pending r1")
				stop()
				time.Sleep(time.Minute)
				for _, name := range []string{"a", "b"} {
					m.setOnline(name, false)
				}
				writes, _ := m.countsAfterWait()
				stop = startReconciler(t, m)
				time.Sleep(5 * time.Second)
				row, _ := (fakeRows{m}).Get("web", "b")
				if now, _ := m.countsAfterWait(); now > writes {
					t.Errorf("%d writes because the hub started: %s", now-writes, row.Spec.Reason)
				}
				stop()
				time.Sleep(time.Minute)
			})
		})
	}
}

// A row whose removal is confirmed and not collected yet remembers that its namespace stays in the member.
// The collection alone takes that away, and leaves a Vacant row.
func TestACollectedRowRemembersItsNamespace(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		place := func(c ...string) {
			m.changeBundle("web", func(b *state.Bundle) {
				b.Spec.Placement, b.Spec.MoveOrder = placementNamed(c...), v1alpha1.MoveRecreate
			})
			synctest.Wait()
		}
		place("a", "b")
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		place("c")
		m.reportState("web", "a", atoll.RowRemoved) // and the member keeps the empty namespace
		synctest.Wait()
		place("a")
		place("c")
		if _, ok := (fakeRows{m}).Get("web", "a"); !ok {
			t.Errorf("no row says any more that the namespace stays in a: %s", m.rowsOf("web"))
		}
	})
}

// A row that waits holds nothing yet: an object that moves to its Bundle is not there.
func TestAPendingRowHoldsNoMovedItem(t *testing.T) {
	m := newFakeHub()
	m.rows["to"] = map[string]state.Row{"b": {Cluster: "b", Spec: atoll.RowSpec{UID: "uid-b", Phase: atoll.RowPending}}}
	if r := New(m.reconcilerConfig()); r.hasStayingRow("to", "b") {
		t.Error("a Pending row counts as a Bundle that holds the object in the cluster: it would stay there when the row goes")
	}
}

// The row of a Cluster that was deleted and joined again is given up also where the cluster is not chosen.
func TestTheRowOfARejoinedClusterIsGivenUp(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder, b.Spec.Placement = v1alpha1.MoveRecreate, atMostClusters(1) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		addClusters(m, "b")
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.UID = "uid-a-2" // not connected
		})
		synctest.Wait()
		m.settleRows("web")
		r.enqueueAllRows("web")
		expectRows(t, m, "web", "b Active r1")
	})
}

// Deletion of the Bundle with a replacement that waits leaves no row but the tombstone.
func TestDeletionWithAPendingRow(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), v1alpha1.MoveRecreate })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.setOnline("a", false)
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		m.markDeleted("web")
		expectRows(t, m, "web", "a Removing r1")
	})
}

// Two replacements over a divided workload: nothing shrinks, and all ends Active with the whole number.
func TestADividedMoveEnds(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		divided := func(c ...string) {
			m.changeBundle("web", func(b *state.Bundle) {
				b.Spec.Placement, b.Spec.MoveOrder = dividedPlacement, v1alpha1.MoveRecreate
				b.Spec.Placement.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: c}
			})
			synctest.Wait()
		}
		divided("a", "b")
		m.cutRevision("web", contentAsking("web", 6))
		m.settleRows("web")
		divided("b", "c")
		divided("a", "b", "c")
		m.settleRows("web")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 2, b Active r1 2, c Active r1 2")
		m.setOnline("a", false)
		divided("b", "c")
		time.Sleep(time.Hour)
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1 2, b Active r1 3, c Active r1 3")
	})
}
