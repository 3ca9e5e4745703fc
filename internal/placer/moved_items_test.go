package placer

import (
	"maps"
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// movedItem is the tombstone of an item that moved to other Bundles.
func movedItem(name string, to ...string) atoll.Tombstone {
	return atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}, UID: "uid-" + name, Cause: atoll.CauseMoved, MovedTo: to}
}

// An item that moved to other Bundles leaves the clusters in which none of these has a row that stays. Items that
// moved before the row's revision, or that are left to members, are no loss.
func TestMovedItemsRemovedByCluster(t *testing.T) {
	orphan, deleted := movedItem("orphan", "api"), movedItem("deleted", "api")
	orphan.Orphan, deleted.Cause = true, atoll.CauseDeleted
	b, a := movedItem("b", "api", "db"), movedItem("a", "api")
	row := func(revision string) atoll.RowSpec { return atoll.RowSpec{Revision: revision, Phase: atoll.RowActive} }
	for _, tc := range []struct {
		name       string
		tombstones []atoll.Tombstone
		old        []atoll.Tombstone // of the row's revision
		row        atoll.RowSpec
		holders    map[string]atoll.RowPhase // of other Bundles in the cluster
		want       []string
	}{
		{"none has a row", []atoll.Tombstone{b, a}, nil, row("old"), nil, []string{a.ID(), b.ID()}},
		{"one of two Bundles has a row", []atoll.Tombstone{b, a}, nil, row("old"), map[string]atoll.RowPhase{"db": atoll.RowActive}, []string{a.ID()}},
		{"its row leaves", []atoll.Tombstone{a}, nil, row("old"), map[string]atoll.RowPhase{"api": atoll.RowLeaving}, nil},
		{"its row is being removed", []atoll.Tombstone{a}, nil, row("old"), map[string]atoll.RowPhase{"api": atoll.RowRemoving}, []string{a.ID()}},
		{"the row is at the target", []atoll.Tombstone{a}, nil, row("target"), nil, nil},
		{"it moved before", []atoll.Tombstone{a, b}, []atoll.Tombstone{a}, row("old"), nil, []string{b.ID()}},
		{"it is left to members", []atoll.Tombstone{a, orphan}, nil, row("old"), nil, []string{a.ID()}},
		{"it was deleted", []atoll.Tombstone{a, deleted}, nil, row("old"), nil, []string{a.ID()}},
		{"nothing moved", []atoll.Tombstone{deleted, orphan}, nil, row("old"), nil, nil},
	} {
		m := newFakeHub()
		m.contents["old"] = &atoll.Content{Tombstones: tc.old}
		for uid, phase := range tc.holders {
			m.rows[uid] = map[string]state.Row{"paris": {Cluster: "paris", Spec: atoll.RowSpec{Phase: phase}}}
		}
		got, err := New(m.reconcilerConfig()).movedItemsRemovedByCluster(t.Context(), "target", &atoll.Content{Tombstones: tc.tombstones}, map[string]atoll.RowSpec{"paris": tc.row})
		if err != nil || !slices.Equal(got["paris"], tc.want) {
			t.Errorf("%s: %q, %v; want %q", tc.name, got["paris"], err, tc.want)
		}
	}
}

// A content that is not there moves nothing. The old content must be known, and is read once for all rows.
func TestMovedItemsReadOldContents(t *testing.T) {
	m := newFakeHub()
	r := New(m.reconcilerConfig())
	if got, err := r.movedItemsRemovedByCluster(t.Context(), "target", nil, map[string]atoll.RowSpec{"paris": {Revision: "lost"}}); got != nil || err != nil {
		t.Errorf("no content: %v, %v", got, err)
	}
	moved := &atoll.Content{Tombstones: []atoll.Tombstone{movedItem("a", "api")}}
	if got, err := r.movedItemsRemovedByCluster(t.Context(), "target", moved, map[string]atoll.RowSpec{"paris": {Revision: "lost"}}); got != nil || formatError(err) != "no revision lost" {
		t.Errorf("a lost content: %v, %v", got, err)
	}
	m.contents["old"] = &atoll.Content{}
	rows := map[string]atoll.RowSpec{"paris": {Revision: "old"}, "oslo": {Revision: "old"}}
	if got, err := r.movedItemsRemovedByCluster(t.Context(), "target", moved, rows); err != nil || len(got["paris"]) != 1 || len(got["oslo"]) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// excludingContent is a content of the ConfigMaps one and two. A rule keeps one out of the clusters of the region eu.
func excludingContent() *atoll.Content {
	yes, c := true, &atoll.Content{}
	for _, name := range []string{"one", "two"} {
		c.Items = append(c.Items, atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}, APIVersion: "v1", UID: "uid-" + name, Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)})
	}
	in := &v1alpha1.FieldSelector{MatchExpressions: []v1alpha1.FieldRequirement{{Key: "region", Operator: "In", Values: []string{"eu"}}}}
	c.Rules = []atoll.Rule{{
		Policy: "OverridePolicy/shop/no-eu", Items: []atoll.ItemKey{c.Items[0].Key}, Overriders: v1alpha1.Overriders{NotHere: &yes},
		Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{FieldSelector: in}},
	}}
	return c
}

// An item that override rules exclude has the UID of what the row has of it, where its removal would delete that.
func TestExcludedItemsByCluster(t *testing.T) {
	content, before := excludingContent(), excludingContent()
	before.Rules = nil
	key := content.Items[0].Key
	eu := schedule.Cluster{ClusterView: atoll.ClusterView{Name: "paris", Region: "eu"}, UID: "uid-paris"}
	us := schedule.Cluster{ClusterView: atoll.ClusterView{Name: "austin", Region: "us"}, UID: "uid-austin"}
	row := atoll.RowSpec{UID: "uid-paris", Phase: atoll.RowActive, Revision: "before"}
	_, former := manifest.MatchRules(content, eu.ClusterView)
	for _, tc := range []struct {
		name    string
		removal v1alpha1.RemovalMode
		row     func(*atoll.RowSpec)
		want    string // UID
	}{
		{"the row has it", v1alpha1.RemoveDelete, func(*atoll.RowSpec) {}, "uid-one"},
		{"it is left to members", v1alpha1.RemoveOrphan, func(*atoll.RowSpec) {}, ""},
		{"the row is of an earlier cluster", v1alpha1.RemoveDelete, func(r *atoll.RowSpec) { r.UID = "other" }, ""},
		{"the row is being removed", v1alpha1.RemoveDelete, func(r *atoll.RowSpec) { r.Phase = atoll.RowRemoving }, ""},
		{"the row lists it as absent", v1alpha1.RemoveDelete, func(r *atoll.RowSpec) { r.Absent = []string{key.String()} }, ""},
		{"its removal waits for a confirmation", v1alpha1.RemoveDelete, func(r *atoll.RowSpec) { r.ExcludedPending = map[string]int64{key.String(): 1} }, "uid-one"},
		{"a row of an older hub had it excluded", v1alpha1.RemoveDelete, func(r *atoll.RowSpec) { r.Revision, r.Variant = "same", former }, ""},
		{"a row of an older hub had another variant", v1alpha1.RemoveDelete, func(r *atoll.RowSpec) { r.Revision, r.Variant = "same", "none" }, "uid-one"},
	} {
		m := newFakeHub()
		m.contents["before"], m.contents["same"] = before, content
		content.Removal = tc.removal
		is := row
		tc.row(&is)
		got, err := New(m.reconcilerConfig()).excludedItemsByCluster(t.Context(), content, []schedule.Cluster{eu, us}, map[string]atoll.RowSpec{"paris": is, "austin": row})
		want := map[string][]rollout.ExcludedItem{"paris": {{Key: key.String(), UID: tc.want}}}
		if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, %v; want %v", tc.name, got, err, want)
		}
	}
}

// The removal mode of the item itself decides whether its exclusion deletes what the row has.
func TestAnExcludedItemHasItsOwnRemovalMode(t *testing.T) {
	for _, tc := range []struct {
		policy, own v1alpha1.RemovalMode
		uid         string
		mustConfirm bool
	}{
		{v1alpha1.RemoveOrphan, v1alpha1.RemoveConfirm, "uid-one", true},
		{v1alpha1.RemoveDelete, v1alpha1.RemoveConfirm, "uid-one", true},
		{v1alpha1.RemoveOrphan, v1alpha1.RemoveDelete, "uid-one", false},
		{v1alpha1.RemoveDelete, v1alpha1.RemoveOrphan, "", false},
		{v1alpha1.RemoveDelete, v1alpha1.RemoveWithBundle, "", false},
	} {
		m, content := newFakeHub(), excludingContent()
		m.contents["before"] = &atoll.Content{Items: content.Items}
		content.Removal, content.Items[0].Treatment = tc.policy, &atoll.Treatment{Removal: tc.own}
		eu := []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "paris", Region: "eu"}, UID: "uid-paris"}}
		rows := map[string]atoll.RowSpec{"paris": {UID: "uid-paris", Phase: atoll.RowActive, Revision: "before"}}
		got, err := New(m.reconcilerConfig()).excludedItemsByCluster(t.Context(), content, eu, rows)
		want := map[string][]rollout.ExcludedItem{"paris": {{Key: content.Items[0].Key.String(), UID: tc.uid, MustConfirm: tc.mustConfirm}}}
		if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%+v: %v, %v; want %v", tc, got, err, want)
		}
	}
}

// Without rules that exclude items no row is read. A row whose content is lost cannot be judged.
func TestExcludedItemsReadOldContents(t *testing.T) {
	eu := []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "paris", Region: "eu"}, UID: "uid-paris"}}
	rows := map[string]atoll.RowSpec{"paris": {UID: "uid-paris", Phase: atoll.RowActive, Revision: "lost"}}
	r := New(newFakeHub().reconcilerConfig())
	without := excludingContent()
	without.Rules[0].Overriders.NotHere = nil
	for name, content := range map[string]*atoll.Content{"no content": nil, "no such rule": without} {
		if got, err := r.excludedItemsByCluster(t.Context(), content, eu, rows); got != nil || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := r.excludedItemsByCluster(t.Context(), excludingContent(), eu, rows); got != nil || formatError(err) != "no revision lost" {
		t.Errorf("a lost content: %v, %v", got, err)
	}
}
