package summarise

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// vacated reports that a row is gone and that its namespace stays.
func (m *memory) vacated(cluster string) {
	m.removing(cluster)
	m.setRow("b", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved, Vacant: true}
	})
}

func (m *memory) phases(uid string) map[string]atoll.RowPhase {
	out := map[string]atoll.RowPhase{}
	for _, row := range (memRows{m}).OfBundle(uid) {
		out[row.Cluster] = row.Spec.Phase
	}
	return out
}

// reported gives the row of a namespace the report that it is done.
func (m *memory) reported(cluster string) {
	m.setRow("ns-shop", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved}
	})
}

func TestANamespaceThatStaysIsRemembered(t *testing.T) {
	for name, end := range map[string]func(m *memory){
		"deleted":                    func(m *memory) { m.doom("shop") },
		"deleted while nobody looks": func(m *memory) { m.lose("shop", true) },
	} {
		t.Run(name, func(t *testing.T) {
			placed(t, func(m *memory, step func(time.Duration)) {
				m.vacated("a")
				m.vacated("b")
				step(time.Minute)
				if rows := m.phases("b"); len(rows) != 1 || rows["far"] == "" {
					t.Errorf("removed rows stay: %v", rows)
				}
				if rows := m.phases("ns-shop"); len(rows) != 2 || rows["a"] != atoll.RowVacant || rows["b"] != atoll.RowVacant {
					t.Fatalf("rows of the namespace: %v", rows)
				}
				m.written("rows")
				step(time.Hour)
				if n := m.written("rows"); n > 0 {
					t.Errorf("%d writes about a namespace that is there", n)
				}
				end(m)
				step(time.Minute)
				if rows := m.phases("ns-shop"); len(rows) != 2 || rows["a"] != atoll.RowRemoving || rows["b"] != atoll.RowRemoving {
					t.Fatalf("rows of the deleted namespace: %v", rows)
				}
				m.reported("a")
				m.reported("b")
				step(time.Minute)
				if rows := m.phases("ns-shop"); len(rows) > 0 || m.slices["ns-shop-0"] != nil {
					t.Errorf("left behind: %v, %v", rows, m.slices)
				}
			})
		})
	}
}

// A table that lacks a namespace is not a user who deleted it.
func TestANamespaceThatATableLacksStays(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.vacated("a")
		step(time.Minute)
		m.lose("shop", false)
		step(time.Minute)
		if rows := m.phases("ns-shop"); len(rows) != 1 || rows["a"] != atoll.RowVacant {
			t.Errorf("rows of the namespace: %v", rows)
		}
	})
}

// A namespace that is deleted between the report and its collection: the row itself
// is ordered once more.
func TestANamespaceThatGoesMeanwhile(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.vacated("a")
		m.doom("shop")
		step(time.Minute)
		row, ok := (memRows{m}).Get("b", "a")
		if !ok || row.Spec.Phase != atoll.RowRemoving || row.Spec.Removed(row.Status) {
			t.Errorf("the row: %v, %+v", ok, row)
		}
		if rows := m.phases("ns-shop"); len(rows) > 0 {
			t.Errorf("rows of the namespace: %v", rows)
		}
		m.removed("a")
		step(time.Minute)
		if _, ok := (memRows{m}).Get("b", "a"); ok {
			t.Error("the row stays")
		}
	})
}
