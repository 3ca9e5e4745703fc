package placer

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// What moves by itself when scores change, and is over the removal budget, comes to rest.
func TestAttackHeldReschedulingComesToRest(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement = atMostClusters(1)
					b.Spec.Placement.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{Duration: time.Minute}, MoveCost: new(int32)}
					b.Spec.Removal.Budget, b.Spec.MoveOrder = &tight, order
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				fillCluster(m, "a", 30)
				addClusters(m, "b")
				time.Sleep(time.Hour)
				m.settleRows("web")
				first := m.rowsOf("web")
				writes, _ := m.countsAfterWait()
				seen := map[string]int{first: 1}
				for range 60 {
					time.Sleep(time.Minute)
					m.settleRows("web")
					r.enqueueAllRows("web") // any edit or report
					m.settleRows("web")
					seen[m.rowsOf("web")]++
				}
				now, _ := m.countsAfterWait()
				t.Logf("%s; %d writes in an hour; seen %v", first, now-writes, seen)
				if len(seen) > 1 {
					t.Errorf("it goes to and fro: %v", seen)
				}
			})
		})
	}
}

// The plan of a rebalance says what happens, also where the old copy goes first.
func TestAttackRebalanceUnderTheBudgetIsForeseen(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.Removal.Budget, b.Spec.MoveOrder = atMostClusters(1), &tight, order
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				fillCluster(m, "a", 5)
				addClusters(m, "b")
				synctest.Wait()
				b, _ := (fakeBundles{m}).Get("web")
				rebalanceAskedAt(time.Now())(&b)
				got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}})
				if err != nil {
					t.Fatal(err)
				}
				m.changeBundle("web", func(x *state.Bundle) { x.Meta = b.Meta })
				synctest.Wait()
				t.Logf("right after: %s", m.rowsOf("web"))
				m.settleRows("web")
				did := map[string]atoll.RowSpec{}
				for _, row := range (fakeRows{m}).ListOfBundle("web") {
					did[row.Cluster] = row.Spec
				}
				t.Logf("foreseen %s held %v waits %v, came %s", rowsText(got[0].After), got[0].HeldPlan != nil, got[0].OldCopyWaits, rowsText(did))
				r.enqueueAllRows("web")
				m.settleRows("web")
				t.Logf("one step later: %s", m.rowsOf("web"))
			})
		})
	}
}

// Failback over the budget.
func TestAttackHeldFailbackComesToRest(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "b")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.MoveOrder, b.Spec.Removal.Budget = ownThenCloudPlacement(time.Minute), order, &tight
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				expectRows(t, m, "web", "b Active r1")
				addClusters(m, "a")
				time.Sleep(5 * time.Minute)
				m.settleRows("web")
				seen := map[string]int{}
				for range 20 {
					r.enqueueAllRows("web")
					time.Sleep(time.Minute)
					m.settleRows("web")
					seen[m.rowsOf("web")]++
				}
				t.Log(seen)
				if len(seen) > 1 {
					t.Errorf("it goes to and fro: %v", seen)
				}
			})
		})
	}
}
