package placer

import (
	"testing"
	"testing/synctest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// An order to correct drift is one write for the rows that report the drift. An old order, and a malformed one, write
// nothing.
func TestAnOrderToCorrectDriftIsOneWrite(t *testing.T) {
	const id = "0123456789abcdef"
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a", "b")
		m.settleRows("web")
		setDrift := func(id string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			row := m.rows["web"]["a"]
			status := *row.Status
			status.Generation, status.Drifted = row.Spec.Generation, 1
			status.Items = []atoll.ItemStatus{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}, Health: atoll.Healthy, Drift: &atoll.Drift{Total: 1, ID: id}}}
			row.Status = &status
			m.rows["web"]["a"] = row
		}
		order := func(value string) int {
			before, _ := m.countsAfterWait()
			m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationCorrectDrift: value} })
			m.settleRows("web")
			after, _ := m.countsAfterWait()
			return after - before
		}
		approvals := func(cluster string) []atoll.DriftApproval {
			row, _ := fakeRows{m}.Get("web", cluster)
			return row.Spec.Approvals
		}
		setDrift(id)
		for _, value := range []string{"fedcba9876543210 alice", "all", id + "," + "x"} {
			if n := order(value); n != 0 || len(approvals("a")) != 0 {
				t.Errorf("the order %q makes %d writes, and the row has %+v", value, n, approvals("a"))
			}
		}
		before, _ := m.countsAfterWait()
		m.changeBundle("web", func(b *state.Bundle) {
			b.Meta.Annotations = map[string]string{atoll.AnnotationCorrectDrift: "fedcba9876543210 bob\n" + id + " alice"}
		})
		synctest.Wait()
		after, _ := m.countsAfterWait()
		got := approvals("a")
		if after-before != 1 || len(got) != 1 || got[0].ID != id || got[0].By != "alice" || got[0].Item != "/ConfigMap/shop/conf" || len(approvals("b")) != 0 {
			t.Errorf("%d writes, and the rows have %+v and %+v", after-before, got, approvals("b"))
		}
	})
}
