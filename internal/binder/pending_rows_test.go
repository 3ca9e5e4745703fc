package binder

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// A Bundle that takes objects over, and of which a row waits in a cluster that the old Bundle is in, has not replaced it.
func TestAPendingRowHasTakenNothingOver(t *testing.T) {
	row := func(c string, phase atoll.RowPhase, gen int64) state.Row {
		return state.Row{Cluster: c, Spec: atoll.RowSpec{UID: "u" + c, Phase: phase, Generation: gen, Revision: "to-1"}, Status: &atoll.RowStatus{UID: "u" + c, Generation: 1, State: atoll.RowReady}}
	}
	old := []state.Row{row("b", atoll.RowActive, 1)}
	s := successor{latestRevision: "to-1", isOnline: func(string) bool { return true }}
	for _, phase := range []atoll.RowPhase{atoll.RowActive, atoll.RowPending} {
		next := []state.Row{row("b", phase, 2), row("c", atoll.RowActive, 1)}
		if coversOldRows(old, next, s) != (phase == atoll.RowActive) { // Active in the same cluster takes over in place
			t.Errorf("%s in b: the old row there is released", phase)
		}
	}
}
