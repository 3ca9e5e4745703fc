package binder

import (
	"errors"
	"slices"
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
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

// onlineClusters are the clusters that can be reached.
type onlineClusters struct {
	Clusters
	uids []string
}

func (x onlineClusters) IsOnline(uid string) bool { return slices.Contains(x.uids, uid) }

// latestRevisions are the latest Revisions of Bundles, by UID.
type latestRevisions struct {
	Revisions
	latest map[string]*enginev1.Revision
}

func (x latestRevisions) LatestOfBundle(uid string) (*enginev1.Revision, bool) {
	r, ok := x.latest[uid]
	return r, ok
}

// A Bundle releases items once the other one exists, has a Revision and is healthy in the clusters that can be
// reached. A Bundle that is gone has nothing to release.
func TestABundleHandsItsItemsOver(t *testing.T) {
	from, to := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "api"}
	ready := newHandoverRow("c", atoll.RowActive, atoll.RevisionName("n", 3, "0123456789abcdef"), 2, atoll.RowReady)
	for what, tc := range map[string]struct {
		change func(l *fakeTables, rows map[string][]state.Row, latest *enginev1.Revision)
		online []string
		want   bool
	}{
		"the new one is healthy":        {online: []string{"c"}, want: true},
		"its cluster cannot be reached": {want: false},
		"the old one is gone":           {func(l *fakeTables, _ map[string][]state.Row, _ *enginev1.Revision) { clear(l.bundles) }, nil, true},
		"the new one is not there yet":  {func(l *fakeTables, _ map[string][]state.Row, _ *enginev1.Revision) { delete(l.bundles, to) }, []string{"c"}, false},
		"the new one has no Revision":   {func(_ *fakeTables, _ map[string][]state.Row, r *enginev1.Revision) { r.Name = "" }, []string{"c"}, false},
		"the rows have an older Revision": {func(_ *fakeTables, _ map[string][]state.Row, r *enginev1.Revision) {
			r.Name, r.Spec.Base = atoll.RevisionName("n", 4, "0123456789abcdef"), 4
		}, []string{"c"}, false},
		"the rows need not move": {func(_ *fakeTables, _ map[string][]state.Row, r *enginev1.Revision) {
			r.Name, r.Spec.Base = atoll.RevisionName("n", 4, "0123456789abcdef"), 3
		}, []string{"c"}, true},
		"the new one has no rows": {func(_ *fakeTables, rows map[string][]state.Row, _ *enginev1.Revision) { delete(rows, "n") }, []string{"c"}, false},
		"neither has rows":        {func(_ *fakeTables, rows map[string][]state.Row, _ *enginev1.Revision) { clear(rows) }, []string{"c"}, true},
		"the new one is nowhere on purpose": {func(l *fakeTables, rows map[string][]state.Row, _ *enginev1.Revision) {
			delete(rows, "n")
			next := l.bundles[to]
			next.Spec.Placement.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: []string{""}}
			l.bundles[to] = next
		}, nil, true},
	} {
		l, b := newShopTables(t)
		l.bundles[to] = state.Bundle{Ref: enginev1.BundleRef{UID: "n", Namespace: "shop", Name: "api"}}
		rows := map[string][]state.Row{"b": {newHandoverRow("a", atoll.RowActive, "o", 2, atoll.RowReady)}, "n": {ready}}
		latest := &enginev1.Revision{}
		latest.Name = ready.Spec.Revision
		if tc.change != nil {
			tc.change(l, rows, latest)
		}
		revisions := latestRevisions{latest: map[string]*enginev1.Revision{}}
		if latest.Name != "" {
			revisions.latest["n"] = latest
		}
		b.Rows, b.Revisions, b.Clusters = reportedRows{rows: rows}, revisions, onlineClusters{uids: tc.online}
		if got := b.canHandOver(from, to); got != tc.want {
			t.Errorf("%s: %t, want %t", what, got, tc.want)
		}
	}
}

// An item that another Bundle places is held there once that Bundle's content has it and the handover is safe.
func TestTheWorldOfABundleShowsHandovers(t *testing.T) {
	l, b := newShopTables(t)
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}
	from, to := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "api"}
	world := bundleWorld{b, from}
	expect := func(what string, by bundlecontent.PlacedBy, held bool) {
		t.Helper()
		if gotBy, gotHeld := world.PlacedBy(key); gotBy != by || gotHeld != held {
			t.Errorf("%s: placed by %d, held %t; want %d, %t", what, gotBy, gotHeld, by, held)
		}
	}
	expect("the Bundle itself places it", bundlecontent.PlacedByThis, true)
	b.ownership.assignTemplate(key, to, bundleOrigin{})
	expect("another one places it", bundlecontent.PlacedByOther, false)
	b.ownership.setContent(to, "n", 1, &atoll.Content{Items: []atoll.Item{{Key: key}}})
	expect("another one has it, and does not exist in the table", bundlecontent.PlacedByOther, false)
	delete(l.bundles, from)
	expect("another one has it, and nothing is released", bundlecontent.PlacedByOther, true)
	b.ownership.unassignTemplate(key)
	expect("nothing places it", bundlecontent.PlacedByNone, false)

	b.ownership.recordDeletion(key, "u")
	if !world.WasDeleted(key, "u") || world.WasDeleted(key, "v") {
		t.Error("the deletion of an object is not that of its UID")
	}
	if got := world.OtherHolderUIDs(key); !slices.Equal(got, []string{"n"}) {
		t.Errorf("other holders are %v", got)
	}
}

// A Bundle that waits to hand over is touched when that Bundle changes, and when a cluster does. One that waits for
// nothing is not.
func TestBundlesThatWaitForAHandover(t *testing.T) {
	c := newOwnershipIndex()
	id := func(name string) policymatch.BundleID { return policymatch.BundleID{Namespace: "shop", Name: name} }
	web, api, db, free := newKey("Deployment", "web"), newKey("Deployment", "api"), newKey("Deployment", "db"), newKey("Deployment", "free")
	c.assignTemplate(web, id("new"), bundleOrigin{})
	c.assignTemplate(api, id("new"), bundleOrigin{})
	c.assignTemplate(db, id("other"), bundleOrigin{})
	expect := func(what string, want map[policymatch.BundleID][]policymatch.BundleID) {
		t.Helper()
		for to, waiting := range want {
			if got := c.bundlesHandingOverTo(to); !slices.Equal(got, waiting) {
				t.Errorf("%s: %v wait for %v, want %v", what, got, to, waiting)
			}
		}
	}
	c.recordPendingHandovers(id("b"), []atoll.ItemKey{web, free})
	c.recordPendingHandovers(id("a"), []atoll.ItemKey{free, api, db})
	expect("two wait", map[policymatch.BundleID][]policymatch.BundleID{
		id("new"): {id("a"), id("b")}, id("other"): {id("a")}, id("none"): nil, {}: {id("a"), id("b")},
	})
	c.recordPendingHandovers(id("a"), nil)
	expect("one waits", map[policymatch.BundleID][]policymatch.BundleID{id("new"): {id("b")}, id("other"): nil, {}: {id("b")}})
}

// The Bundle whose replicas are divided gives its answers, where several still have the item. Without their
// content nothing is planned.
func TestDividedItemsAreTakenOverFirst(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "job"}
	item := func(by string, divided bool) *atoll.Content {
		// A content is sorted by key: the item is found between others.
		return &atoll.Content{Items: []atoll.Item{
			{Key: newKey("ConfigMap", "a")}, {Key: newKey("ConfigMap", "b")},
			{Key: key, Divided: divided, Interpreted: &atoll.InterpreterAnswers{AnsweredBy: by}}, {Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "z"}},
		}}
	}
	for what, tc := range map[string]struct {
		contents []*atoll.Content // of Bundles a, b and c
		previous *atoll.Content
		want     string
	}{
		"the divided one is first": {[]*atoll.Content{item("a", true), item("b", false)}, nil, "a"},
		"the divided one is last":  {[]*atoll.Content{item("a", false), item("b", true)}, nil, "b"},
		"it is no new item":        {[]*atoll.Content{item("a", true)}, item("own", false), ""},
		"it is new beside others":  {[]*atoll.Content{item("a", true)}, &atoll.Content{Items: []atoll.Item{{Key: newKey("ConfigMap", "z")}}}, "a"},
		"one Bundle has it":        {[]*atoll.Content{{}, item("b", false)}, nil, "b"},
	} {
		l, b := newShopTables(t)
		for i, content := range tc.contents {
			name := string(rune('a' + i))
			l.contents["u"+name] = content
			b.ownership.setContent(policymatch.BundleID{Namespace: "shop", Name: name}, "u"+name, 1, content)
		}
		got, err := b.itemsTakenOver(t.Context(), policymatch.BundleID{Namespace: "shop", Name: "own"}, []atoll.ItemKey{key}, tc.previous)
		if err != nil || len(got) != min(1, len(tc.want)) {
			t.Errorf("%s: %v, %v", what, got, err)
			continue
		}
		if tc.want != "" && got[key].Interpreted.AnsweredBy != tc.want {
			t.Errorf("%s: taken from %s, want %s", what, got[key].Interpreted.AnsweredBy, tc.want)
		}
		away := errors.New("the store is away")
		b.Revisions = failingRevisions{fakeRevisions{nil, l}, away}
		if _, err := b.itemsTakenOver(t.Context(), policymatch.BundleID{Namespace: "shop", Name: "own"}, []atoll.ItemKey{key}, nil); !errors.Is(err, away) {
			t.Errorf("%s: the content cannot be read: %v", what, err)
		}
	}
}
