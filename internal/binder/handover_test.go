package binder

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

func newHandoverRow(cluster string, phase atoll.RowPhase, revision string, generation int64, st atoll.RowState) state.Row {
	r := state.Row{Cluster: cluster, Spec: atoll.RowSpec{UID: cluster, Phase: phase, Revision: revision, Generation: 2}}
	if generation > 0 {
		r.Status = &atoll.RowStatus{Generation: generation, State: st}
	}
	return r
}

func TestAnItemIsHandedOverOnceItsNewPlaceIsHealthy(t *testing.T) {
	old := []state.Row{newHandoverRow("a", atoll.RowActive, "o", 2, atoll.RowReady), newHandoverRow("b", atoll.RowRemoving, "o", 2, atoll.RowReady)}
	for _, c := range []struct {
		name    string
		old     []state.Row
		next    []state.Row
		nowhere bool
		want    bool
	}{
		{"the old one is nowhere", nil, nil, false, true},
		{"the new one is nowhere yet", old, nil, false, false},
		{"the new one is nowhere on purpose", old, nil, true, true},
		{"in the same clusters nothing breaks", old, []state.Row{newHandoverRow("a", atoll.RowActive, "n", 0, "")}, false, true},
		{"a row that goes is no place", old, []state.Row{newHandoverRow("a", atoll.RowRemoving, "n", 2, atoll.RowReady)}, false, false},
		{"elsewhere and not reported", old, []state.Row{newHandoverRow("c", atoll.RowActive, "n", 0, "")}, false, false},
		{"elsewhere and progressing", old, []state.Row{newHandoverRow("c", atoll.RowActive, "n", 2, atoll.RowProgressing)}, false, false},
		{"elsewhere, but an older generation", old, []state.Row{newHandoverRow("c", atoll.RowActive, "n", 1, atoll.RowReady)}, false, false},
		{"elsewhere, but an older revision", old, []state.Row{newHandoverRow("c", atoll.RowActive, "m", 2, atoll.RowReady)}, false, false},
		{"elsewhere and healthy", old, []state.Row{newHandoverRow("c", atoll.RowActive, "n", 2, atoll.RowReady)}, false, true},
		{"one of two is healthy", old, []state.Row{
			newHandoverRow("c", atoll.RowActive, "n", 2, atoll.RowReady), newHandoverRow("d", atoll.RowActive, "n", 2, atoll.RowDegraded)}, false, false},
		{"a disconnected cluster blocks nothing", old, []state.Row{
			newHandoverRow("c", atoll.RowActive, "n", 2, atoll.RowReady), newHandoverRow("away", atoll.RowActive, "n", 0, "")}, false, true},
		{"all are away", old, []state.Row{newHandoverRow("away", atoll.RowActive, "n", 2, atoll.RowReady)}, false, false},
	} {
		got := coversOldRows(c.old, c.next, successor{latestRevision: "n", isPlacedNowhere: c.nowhere, isOnline: func(uid string) bool { return uid != "away" }})
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A Bundle takes over the answers of interpreters. It takes none over where the other Bundle has none, or
// has only the object's tombstone left.
func TestOnlyInterpretedItemsAreTakenOver(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}
	other := policymatch.BundleID{Namespace: "shop", Name: "api"}
	for what, tc := range map[string]struct {
		content atoll.Content
		want    int
	}{
		"with answers":     {atoll.Content{Items: []atoll.Item{{Key: key, Interpreted: &atoll.InterpreterAnswers{AnsweredBy: "a"}}}}, 1},
		"without answers":  {atoll.Content{Items: []atoll.Item{{Key: key}}}, 0},
		"only a tombstone": {atoll.Content{Tombstones: []atoll.Tombstone{{Key: key, Cause: atoll.CauseMoved}}}, 0},
	} {
		l, b := newShopTables(t)
		l.contents["b"] = &tc.content
		b.ownership.setContent(policymatch.BundleID{Namespace: "shop", Name: "web"}, "b", 1, &tc.content)
		got, err := b.itemsTakenOver(t.Context(), other, []atoll.ItemKey{key}, nil)
		if err != nil || len(got) != tc.want {
			t.Errorf("%s: %v, %v; want %d items", what, got, err, tc.want)
		}
	}
}
