package placer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// Nobody does anything for a day: a move over the budget that scores began must not be ordered and taken back.
func TestAttackHeldReschedulingWritesNothingByItself(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate, ""} {
		t.Run("order "+string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement = atMostClusters(1)
					b.Spec.Placement.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{Duration: time.Minute}}
					b.Spec.Removal.Budget, b.Spec.MoveOrder = &tight, order
				})
				m.cutRevision("web", attackSet())
				m.settleRows("web")
				fillCluster(m, "a", 30)
				addClusters(m, "b")
				time.Sleep(time.Hour)
				m.settleRows("web")
				row, _ := (fakeRows{m}).Get("web", "a")
				writes, _ := m.countsAfterWait()
				for range 24 * 60 {
					time.Sleep(time.Minute)
					m.settleRows("web")
				}
				now, _ := m.countsAfterWait()
				is, _ := (fakeRows{m}).Get("web", "a")
				t.Logf("%s, %d writes", m.rowsOf("web"), now-writes)
				if now > writes {
					t.Errorf("%d writes in a quiet day, generation of a %d to %d, %d warnings", now-writes, row.Spec.Generation, is.Spec.Generation, len(m.takeWarnings()))
				}
			})
		})
	}
}

// A plan must not tell of a wait and a gap that do not come about, and a rebalance must not vanish.
func TestAttackPlanOfARebalance(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	tight := intstr.FromInt32(0)
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = atMostClusters(1), &tight })
		m.cutRevision("web", attackSet())
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
		if got[0].HeldPlan == nil && len(got[0].OldCopyWaits) > 0 {
			t.Errorf("foreseen: %s, no plan that waits, and yet %v", rowsText(got[0].After), got[0].OldCopyWaits)
		}
	})
}

// Law 3: a removal that a disconnected cluster has yet to carry out does not make every change cost all rows, for weeks.
func TestAttackChangesCostWhatTheyTouch(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			label := func(v string) func(*v1alpha1.Cluster) {
				return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"db": v} }
			}
			for i := range 20 {
				m.changeCluster(fmt.Sprintf("c%02d", i), label("yes"))
			}
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.WhenUnfit, b.Spec.MoveOrder = placementLabelled(map[string]string{"db": "yes"}), v1alpha1.UnfitRemove, order
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				m.setOnline("c00", false)
				m.changeCluster("c00", label("no"))
				time.Sleep(time.Minute)
				m.settleRows("web")
				time.Sleep(time.Minute)
				synctest.Wait()
				_, looks := m.countsAfterWait()
				for i := range 10 {
					m.changeCluster(fmt.Sprintf("d%02d", i), label("yes"))
					synctest.Wait()
				}
				_, now := m.countsAfterWait()
				t.Logf("%d looks at all rows for 10 clusters that join", now-looks)
				if now-looks > 2 {
					t.Errorf("%d looks at all rows", now-looks)
				}
			})
		})
	}
}

// An object goes from a Bundle in a to a Bundle in b that states Recreate.
func TestAttackObjectThatChangesItsBundle(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("old", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), v1alpha1.MoveRecreate })
		m.cutRevision("old", attackSet())
		m.settleRows("old")
		m.changeBundle("new", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("b"), v1alpha1.MoveRecreate })
		m.cutRevision("old", &atoll.Content{Tombstones: []atoll.Tombstone{{Key: attackSet().Items[0].Key, UID: "u", Cause: atoll.CauseMoved, MovedTo: []string{"new"}}}})
		m.cutRevision("new", attackSet())
		synctest.Wait()
		row, _ := (fakeRows{m}).Get("old", "a")
		if got := m.rowsOf("new"); got != "" && row.Status.Generation != row.Spec.Generation {
			t.Errorf("a has not removed the set (old: %s), and b is ordered to run it (new: %s)", m.rowsOf("old"), got)
		}
	})
}
