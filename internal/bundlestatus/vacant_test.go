package bundlestatus

import (
	"slices"
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// vacateCluster reports that a row is gone and that its namespace stays.
func (m *memory) vacateCluster(cluster string) {
	m.reportRemoving(cluster)
	m.setRow("b", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved, NamespaceKept: true}
	})
}

func (m *memory) rowPhases(uid string) map[string]atoll.RowPhase {
	out := map[string]atoll.RowPhase{}
	for _, row := range (memRows{m}).ListOfBundle(uid) {
		out[row.Cluster] = row.Spec.Phase
	}
	return out
}

// markReported returns the row of a namespace the report that it is done.
func (m *memory) markReported(cluster string) {
	m.setRow("ns-shop", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved}
	})
}

func TestANamespaceThatStaysIsRemembered(t *testing.T) {
	for name, end := range map[string]func(m *memory){
		"deleted":                func(m *memory) { m.markDeleted("shop") },
		"deleted without a look": func(m *memory) { m.removeCluster("shop", true) },
	} {
		t.Run(name, func(t *testing.T) {
			withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
				m.vacateCluster("a")
				m.vacateCluster("b")
				step(time.Minute)
				if rows := m.rowPhases("b"); len(rows) != 1 || rows["far"] == "" {
					t.Errorf("removed rows stay: %v", rows)
				}
				if rows := m.rowPhases("ns-shop"); len(rows) != 2 || rows["a"] != atoll.RowVacant || rows["b"] != atoll.RowVacant {
					t.Fatalf("rows of the namespace: %v", rows)
				}
				m.countWrites("rows")
				step(time.Hour)
				if n := m.countWrites("rows"); n > 0 {
					t.Errorf("%d writes about a namespace that is there", n)
				}
				end(m)
				step(time.Minute)
				if rows := m.rowPhases("ns-shop"); len(rows) != 2 || rows["a"] != atoll.RowRemoving || rows["b"] != atoll.RowRemoving {
					t.Fatalf("rows of the deleted namespace: %v", rows)
				}
				m.markReported("a")
				m.markReported("b")
				step(time.Minute)
				if rows := m.rowPhases("ns-shop"); len(rows) > 0 || m.slices["ns-shop-0"] != nil {
					t.Errorf("left behind: %v, %v", rows, m.slices)
				}
			})
		})
	}
}

// A namespace that a table lacks is not one that a user deleted.
func TestANamespaceThatATableLacksStays(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.vacateCluster("a")
		step(time.Minute)
		m.removeCluster("shop", false)
		step(time.Minute)
		if rows := m.rowPhases("ns-shop"); len(rows) != 1 || rows["a"] != atoll.RowVacant {
			t.Errorf("rows of the namespace: %v", rows)
		}
	})
}

// A namespace that is deleted between the report and its collection: the row itself
// is ordered once more.
func TestANamespaceThatGoesMeanwhile(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.vacateCluster("a")
		m.markDeleted("shop")
		step(time.Minute)
		row, ok := (memRows{m}).Get("b", "a")
		if !ok || row.Spec.Phase != atoll.RowRemoving || row.Spec.IsRemovalDone(row.Status) {
			t.Errorf("the row: %v, %+v", ok, row)
		}
		if rows := m.rowPhases("ns-shop"); len(rows) > 0 {
			t.Errorf("rows of the namespace: %v", rows)
		}
		m.reportRemoved("a")
		step(time.Minute)
		if _, ok := (memRows{m}).Get("b", "a"); ok {
			t.Error("the row stays")
		}
	})
}

// A namespace that was deleted and recreated is kept under both UIDs. Forgetting one keeps the other.
func TestForgettingOneKeptNamespaceKeepsTheOther(t *testing.T) {
	x := newBundleIndex()
	for _, uid := range []string{"ns-1", "ns-2"} {
		x.bundles[uid] = &indexed{}
		x.recordVacantNamespace(enginev1.BundleRef{UID: uid, Namespace: "shop"})
	}
	for _, step := range []struct {
		forget string
		want   []string
	}{{"", []string{"ns-1", "ns-2"}}, {"ns-1", []string{"ns-2"}}, {"ns-2", nil}} {
		x.dropBundleMemo(step.forget)
		if got := x.vacantNamespaceUIDs("shop"); !slices.Equal(got, step.want) {
			t.Errorf("without %q: %v, want %v", step.forget, got, step.want)
		}
	}
	if len(x.stays) > 0 {
		t.Errorf("memory of namespaces that stay nowhere: %v", x.stays)
	}
}
