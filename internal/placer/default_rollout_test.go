package placer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
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
			time.Sleep(time.Second)
		}
		if n := m.countAt("web", "r2"); n != clusters {
			t.Fatalf("%d of %d clusters have changed", n, clusters)
		}
	})
}

// changeFleet reports each row of the Bundle as healthy some seconds after its change. It returns the time until all are, and
// the writes, and the rows in them.
func (m *fakeHub) changeFleet(t *testing.T, uid string, latency func() time.Duration) (took time.Duration, writes, rows int) {
	t.Helper()
	due, began, writesBefore, rowsBefore := map[string]time.Time{}, time.Now(), m.writes, m.rowsWritten
	latest, _ := (fakeRevisions{m}).LatestOfBundle(uid)
	for time.Since(began) < time.Hour {
		synctest.Wait()
		done := true
		for _, r := range (fakeRows{m}).ListOfBundle(uid) {
			isReady := r.Status != nil && r.Status.Generation == r.Spec.Generation
			done = done && isReady && r.Spec.Revision == latest.Name
			if at, waits := due[r.Cluster]; isReady || waits && time.Now().Before(at) {
				continue
			} else if waits {
				delete(due, r.Cluster)
				m.reportHealthy(uid, r.Cluster)
			} else {
				due[r.Cluster] = time.Now().Add(latency())
			}
		}
		if done {
			return time.Since(began), m.writes - writesBefore, m.rowsWritten - rowsBefore
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("the change is not done: %d rows at %s", m.countAt(uid, "r2"), latest.Name)
	return 0, 0, 0
}

// A healthy change writes each row once. Reports share the writes of the turns: at most one a second, however many
// clusters report.
func TestWritesOfADefaultChange(t *testing.T) {
	const clusters = 300
	for _, stated := range []*v1alpha1.Rollout{allAtOnce(), nil} {
		m := newFakeHub()
		for i := range clusters {
			m.changeCluster(fmt.Sprintf("c%04d", i), nil)
		}
		rnd := rand.New(rand.NewPCG(1, 1))
		latency := func() time.Duration { return time.Second + time.Duration(rnd.Int64N(int64(9*time.Second))) }
		runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.Rollout = stated })
			m.cutRevision("web", newRegionalContent(1))
			m.changeFleet(t, "web", latency)
			m.cutRevision("web", newRegionalContent(1))
			took, writes, rows := m.changeFleet(t, "web", latency)
			most := 1
			if stated == nil {
				most += int(took / time.Second)
			}
			if rows != clusters || writes > most {
				t.Errorf("%d writes of %d rows in %s, want at most %d of %d", writes, rows, took, most, clusters)
			}
		})
	}
}
