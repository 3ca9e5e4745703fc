package state

import (
	"testing"

	"atoll.dev/atoll/internal/reconcile"
)

// A panic while a slice is filled or removed keeps no lock: the next slice is filled.
func TestAPanicOfTheTableKeepsNoLock(t *testing.T) {
	fail := func([]RowTransition) { panic("defect") }
	for name, act := range map[string]func(rows *RowTable){
		"a subscriber, of a new slice": func(rows *RowTable) {
			rows.SubscribeTransitions(fail)
			rows.put(healthySlice(1, 1000, 2))
		},
		"a subscriber, of a removed slice": func(rows *RowTable) {
			rows.SubscribeTransitions(fail)
			rows.removeObject(healthySlice(1, 0, 2))
		},
		"the table, of a new slice": func(rows *RowTable) {
			rows.byClusterUID = nil
			rows.put(healthySlice(1, 1000, 2))
		},
		"the table, of a removed slice": func(rows *RowTable) {
			rows.byBundle = nil
			rows.removeObject(healthySlice(1, 0, 2))
		},
	} {
		rows := newRows(nil)
		rows.put(healthySlice(1, 0, 2))
		if p := reconcile.ContainPanicCounted("test", func() { act(rows) }); p == nil {
			t.Errorf("%s: no panic", name)
		}
		if !rows.mu.TryLock() {
			t.Errorf("%s: the table is locked", name)
			continue
		}
		for slice, p := range rows.pages {
			if !p.fillLock.TryLock() {
				t.Errorf("%s: %s is locked", name, slice)
			}
		}
	}
}
