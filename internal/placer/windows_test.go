package placer

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// openAtMidnight has a window of the first two hours of each day for clusters of ring 1. Tests begin at midnight in UTC.
func openAtMidnight() *v1alpha1.Rollout {
	return &v1alpha1.Rollout{Windows: []v1alpha1.ChangeWindow{{
		Type: v1alpha1.ChangeWindowAllow, Schedule: "0 0 * * *", Duration: metav1.Duration{Duration: 2 * time.Hour},
		ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "1"}},
	}}}
}

// A change outside the window waits for its next start, without a step or a write in between. A Bundle at rest has no step when a
// window opens or ends.
func TestChangesWaitForTheirWindow(t *testing.T) {
	m := newRings("a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Rollout = placementNamed("a", "b"), openAtMidnight() })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		time.Sleep(3 * time.Hour)
		writes, steps := m.countsAfterWait()
		time.Sleep(24 * time.Hour)
		if w, s := m.countsAfterWait(); w != writes || s != steps {
			t.Errorf("%d steps and %d writes of a Bundle at rest", s-steps, w-writes)
		}
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		expectRows(t, m, "web", "a Active r1, b Active r2")
		m.settleRows("web")
		writes, steps = m.countsAfterWait()
		time.Sleep(20*time.Hour + 59*time.Minute)
		if w, s := m.countsAfterWait(); w != writes || s != steps {
			t.Errorf("%d steps and %d writes before the window opens", s-steps, w-writes)
		}
		expectRows(t, m, "web", "a Active r1, b Active r2")
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r2, b Active r2")
	})
}

// Another label takes a cluster out of a window at once.
func TestALabelTakesAClusterOutOfAWindow(t *testing.T) {
	m := newRings("a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Rollout = placementNamed("a"), openAtMidnight() })
		time.Sleep(3 * time.Hour)
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		expectRows(t, m, "web", "a Pending r1")
		labelRing(m, "a", "2")
		synctest.Wait()
		expectRows(t, m, "web", "a Active r1")
	})
}

// A window that follows the time zones of clusters opens in each at its own midnight. Another zone counts at once.
func TestAWindowFollowsTheZoneOfItsCluster(t *testing.T) {
	m := newRings("a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		byCluster := openAtMidnight()
		byCluster.Windows[0].ClusterSelector, byCluster.Windows[0].UseClusterTimeZone = nil, true
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Spec.TimeZone = "Asia/Kolkata" }) // 05:30 ahead of UTC
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Rollout = placementNamed("a", "b"), byCluster })
		time.Sleep(time.Hour)
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		expectRows(t, m, "web", "a Active r1, b Pending r1")
		time.Sleep(17*time.Hour + 29*time.Minute) // 18:29 in UTC
		expectRows(t, m, "web", "a Active r1, b Pending r1")
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r1, b Active r1")
		m.settleRows("web")
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		expectRows(t, m, "web", "a Active r1, b Active r2")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.TimeZone = "Asia/Kolkata" })
		synctest.Wait()
		expectRows(t, m, "web", "a Active r2, b Active r2")
	})
}
