package placer

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// countAt returns how many rows are at a revision.
func (m *fakeHub) countAt(uid, revision string) int {
	synctest.Wait()
	return strings.Count(m.rowsOf(uid)+",", " "+revision+",")
}

// A step over the few rows that are touched keeps the default bound of the whole Bundle: clusters get the capacity for
// a revision one after another, and none of them is healthy at it.
func TestTouchedRowsKeepTheDefaultBound(t *testing.T) {
	const clusters = 8
	m := newFakeHub()
	for i := range clusters {
		m.changeCluster(fmt.Sprint("c", i), withCapacity(5))
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 4))
		m.settleRows("web")
		m.cutRevision("web", undividedContent("web", 7))
		m.settleRows("web")
		if n := m.countAt("web", "r2"); n > 0 {
			t.Fatalf("%d rows change without the capacity", n)
		}
		for i := range clusters {
			m.changeCluster(fmt.Sprint("c", i), withCapacity(9))
			if n := m.countAt("web", "r2"); n > 2 {
				t.Fatalf("%d of %d clusters change at once, want at most 2", n, clusters)
			}
		}
		for range clusters {
			for i := range clusters {
				m.reportState("web", fmt.Sprint("c", i), atoll.RowReady)
			}
			synctest.Wait()
		}
		if n := m.countAt("web", "r2"); n != clusters {
			t.Fatalf("%d of %d clusters have changed", n, clusters)
		}
	})
}
