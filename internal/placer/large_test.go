package placer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// newLargeMove has 2,000 clusters a0000, b0000, a0001 and so on, and a Bundle in the a half.
func newLargeMove(m *fakeHub) (from, to []string) {
	for i := range 1000 {
		from, to = append(from, fmt.Sprintf("a%04d", i)), append(to, fmt.Sprintf("b%04d", i))
	}
	addClusters(m, from...)
	addClusters(m, to...)
	return from, to
}

// TestReportsThatNothingWaitsForCostNoStep: 1,000 clusters roll out a revision one after the
// other. Every row was ordered at once and none waits for another, so that no report costs a
// step.
func TestReportsThatNothingWaitsForCostNoStep(t *testing.T) {
	m := newFakeHub()
	from, _ := newLargeMove(m)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed(from...) })
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		time.Sleep(time.Second)
		writes, _ := m.countsAfterWait()
		before, reads := countWrites(m), m.contentReads
		for _, c := range from {
			m.reportState("web", c, atoll.RowProgressing)
			time.Sleep(10 * time.Millisecond)
			m.reportState("web", c, atoll.RowReady)
		}
		time.Sleep(time.Minute)
		if n := countWrites(m) - before; n != 0 || m.contentReads != reads {
			t.Errorf("%d steps for reports that nothing waits for, and %d rows that are read", n, m.contentReads-reads)
		}
		if after, _ := m.countsAfterWait(); writes != 1 || after != 1 {
			t.Errorf("%d writes, then %d; want 1 for all", writes, after-writes)
		}
	})
}

// TestAMoveOfManyRowsLooksAtThemTogether: 1,000 rows move to 1,000 other clusters that
// become healthy one by one, 100 a second. A step looks at all 2,000 rows, so that
// there is one per tenth of a second at most, and not one per report; and the move
// ends none the later.
func TestAMoveOfManyRowsLooksAtThemTogether(t *testing.T) {
	m := newFakeHub()
	from, to := newLargeMove(m)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		all := intstr.FromString("100%")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = placementNamed(from...), &all })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed(to...) })
		synctest.Wait()
		writes, _ := m.countsAfterWait()
		before, begin := countWrites(m), time.Now()
		for _, c := range to {
			m.reportState("web", c, atoll.RowReady)
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(begin)
		time.Sleep(200 * time.Millisecond)
		most := int(took/(100*time.Millisecond)) + 5
		if n := countWrites(m) - before; n > most || n == 0 {
			t.Errorf("%d steps for %d reports in %s, want at most %d", n, len(to), took, most)
		}
		after, _ := m.countsAfterWait()
		if n := after - writes; n > most {
			t.Errorf("%d writes, want at most %d", n, most)
		}
		for _, c := range from {
			if r, ok := (fakeRows{m}).Get("web", c); ok && r.Spec.Phase != atoll.RowRemoving {
				t.Fatalf("%s is %s though all replacements are healthy", c, r.Spec.Phase)
			}
		}
		before = countWrites(m)
		for _, c := range from {
			m.reportState("web", c, atoll.RowRemoved)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := countWrites(m) - before; n > 1 {
			t.Errorf("%d steps for removals that nothing waits for", n)
		}
	})
}
