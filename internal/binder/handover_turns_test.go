package binder

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// A Bundle whose rows take a revision in turns covers a cluster when its row there has a revision with the items. Until
// then the old Bundle keeps them: otherwise the cluster would lose what the other row brings much later.
func TestARowThatAwaitsItsTurnTakesNothingOver(t *testing.T) {
	row := func(cluster, revision string) state.Row {
		return state.Row{Cluster: cluster, Spec: atoll.RowSpec{UID: cluster, Generation: 1, Revision: revision, Phase: atoll.RowActive},
			Status: &atoll.RowStatus{Generation: 1, State: atoll.RowReady}}
	}
	old := []state.Row{row("oslo", "old-1-a")}
	for name, c := range map[string]struct {
		next     []state.Row
		hasTurns bool
		want     bool
	}{
		"all at once, the revision is on its way": {[]state.Row{row("oslo", "n-1-a")}, false, true},
		"in turns, and the row waits":             {[]state.Row{row("oslo", "n-1-a"), row("lima", "n-2-b")}, true, false},
		"in turns, and the row has had its turn":  {[]state.Row{row("oslo", "n-2-b"), row("lima", "n-1-a")}, true, true},
	} {
		s := successor{latestRevision: "n-2-b", minRevision: 2, hasTurns: c.hasTurns, isOnline: func(string) bool { return true }}
		if got := coversOldRows(old, c.next, s); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// A disconnected cluster that waits for its first copy blocks the handover where the old Bundle has a copy there. It blocks
// no other handover.
func TestADisconnectedClusterWithoutTheOldCopyBlocksNoHandover(t *testing.T) {
	row := func(cluster string, phase atoll.RowPhase) state.Row {
		return state.Row{Cluster: cluster, Spec: atoll.RowSpec{UID: cluster, Generation: 1, Revision: "n-2-b", Phase: phase},
			Status: &atoll.RowStatus{Generation: 1, State: atoll.RowReady}}
	}
	next := []state.Row{row("oslo", atoll.RowActive), row("quito", atoll.RowPending)}
	for name, c := range map[string]struct {
		old    []string
		online bool
		want   bool
	}{
		"disconnected, without the old copy": {[]string{"oslo", "lima"}, false, true},
		"connected, without the old copy":    {[]string{"oslo", "lima"}, true, false},
		"disconnected, with the old copy":    {[]string{"oslo", "lima", "quito"}, false, false},
	} {
		var old []state.Row
		for _, cluster := range c.old {
			old = append(old, row(cluster, atoll.RowActive))
		}
		s := successor{latestRevision: "n-2-b", minRevision: 2, hasTurns: true, isOnline: func(uid string) bool { return uid != "quito" || c.online }}
		if got := coversOldRows(old, next, s); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
