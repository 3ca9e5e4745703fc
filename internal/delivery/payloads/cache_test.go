package payloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/state"
)

// testTables are Tables of one content. afterRead runs once, after the first answer of the
// method of that name, so that a test changes the tables between two reads.
type testTables struct {
	content          *atoll.Content
	staying          map[string]bool // by cluster: the other Bundle has a row that stays
	leaves           map[string]bool // by cluster
	namespaceDeleted bool
	heldBack         []string
	afterRead        map[string]func()
}

func (t *testTables) runAfter(method string) {
	if change := t.afterRead[method]; change != nil {
		delete(t.afterRead, method)
		change()
	}
}

func (t *testTables) GetContent(context.Context, string) (*atoll.Content, error) {
	defer t.runAfter("Content")
	return t.content, nil
}

func (t *testTables) HasStayingRow(_, cluster string) bool {
	defer t.runAfter("HasStayingRow")
	return t.staying[cluster]
}

func (t *testTables) GetCluster(name string) (*atoll.ClusterView, bool) {
	defer t.runAfter("Cluster")
	return &atoll.ClusterView{Name: name}, t.leaves[name]
}

func (t *testTables) IsNamespaceDeleted(string) bool {
	defer t.runAfter("IsNamespaceDeleted")
	return t.namespaceDeleted
}

func (t *testTables) ListRecalledDeletions(*atoll.Content) []string {
	defer t.runAfter("ListHeldBack")
	return t.heldBack
}

// newTestTables returns tables in which the other Bundle, which took over an item, has a
// row in tokyo and in paris.
func newTestTables() *testTables {
	item := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	return &testTables{
		content:   &atoll.Content{Tombstones: []atoll.Tombstone{{Key: item, UID: "t", MovedTo: []string{"other"}}}},
		staying:   map[string]bool{"tokyo": true, "paris": true},
		leaves:    map[string]bool{},
		afterRead: map[string]func(){},
	}
}

func testRow(cluster string) state.Row {
	return state.Row{
		Bundle: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "b"}, Cluster: cluster,
		Spec: atoll.RowSpec{UID: "uid-" + cluster, Generation: 1, Revision: "r", Phase: atoll.RowActive},
	}
}

func newTestRenderer(t *testTables) *Renderer {
	return NewRenderer(t, func(context.Context, string) error { return nil }, []byte("key"), quarantine.NewAccounts())
}

func newTestMetrics() Metrics {
	return Metrics{
		Renders: metrictable.GatewayRenders.NewCounter(), RenderFailures: metrictable.GatewayRenderFailures.NewCounter(), RenderSeconds: metrictable.GatewayRenderSeconds.NewHistogram(),
		Encodes: metrictable.GatewayEncodes.NewCounter(), Hits: metrictable.GatewayCacheHits.NewCounter(), Bytes: metrictable.GatewayCacheBytes.NewGauge(),
	}
}

func newTestCache(t *testing.T, tables *testTables) *Cache {
	return NewCache(t.Context(), newTestRenderer(tables), 1<<20, newTestMetrics())
}

// orderedFor returns the manifest that the cluster is sent.
func orderedFor(t *testing.T, c *Cache, cluster string) (m atoll.Manifest) {
	t.Helper()
	p, err := c.GetOrRender(testRow(cluster))
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.EncodeFor(Base{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// The other Bundle loses its row in tokyo right after the row is read for tokyo's manifest. Paris,
// the other Bundle's remaining cluster, must still learn that the item moved: without movedTo the
// tombstone deletes an object that another Bundle has taken over.
func TestClusterNeverReceivesTombstoneOfAnotherCluster(t *testing.T) {
	tables := newTestTables()
	tables.afterRead["HasStayingRow"] = func() { tables.staying["tokyo"] = false }
	cache := newTestCache(t, tables)
	orderedFor(t, cache, "tokyo")
	if m := orderedFor(t, cache, "paris"); len(m.Tombstones) != 1 || !slices.Equal(m.Tombstones[0].MovedTo, []string{"other"}) {
		t.Errorf("paris is sent the tombstones %+v, without the Bundle that took the item over", m.Tombstones)
	}
	if m := orderedFor(t, cache, "tokyo"); len(m.Tombstones) != 1 || m.Tombstones[0].MovedTo != nil {
		t.Errorf("tokyo, where the other Bundle has no row any more, is sent the tombstones %+v", m.Tombstones)
	}
}

// A cluster starts to leave the fleet, and then its rows are Removing, at any moment of a read: no
// manifest deletes the moved object, which stays with its cluster.
func TestALeavingClusterKeepsWhatMovedWithin(t *testing.T) {
	for _, method := range []string{"Content", "HasStayingRow", "Cluster", "IsNamespaceDeleted", "ListHeldBack"} {
		tables := newTestTables()
		tables.afterRead[method] = func() { tables.leaves["tokyo"], tables.staying["tokyo"] = true, false }
		m := orderedFor(t, newTestCache(t, tables), "tokyo")
		for _, tombstone := range m.Tombstones {
			if tombstone.MovedTo == nil {
				t.Errorf("a change after %s: tokyo is sent a tombstone that deletes the moved object", method)
			}
		}
	}
	// Between the two reads, too: the rows are read as Removing, the cluster as it was before.
	tables := newTestTables()
	tables.staying["tokyo"] = false
	tables.afterRead["HasStayingRow"] = func() { tables.leaves["tokyo"] = true }
	if m := orderedFor(t, newTestCache(t, tables), "tokyo"); len(m.Tombstones) != 0 && m.Tombstones[0].MovedTo == nil {
		t.Errorf("rows read before the cluster: tokyo is sent %+v", m.Tombstones)
	}
}

// The cache never serves a later row a manifest that the tables of that moment do not give,
// whatever changes in the tables while a manifest is made, and whenever.
func TestNoChangeBetweenReadsIsServedLater(t *testing.T) {
	changes := map[string]func(*testTables){
		"the row of the other Bundle goes": func(x *testTables) { x.staying["tokyo"] = false },
		"the cluster leaves the fleet":     func(x *testTables) { x.leaves["tokyo"] = true },
		"both change":                      func(x *testTables) { x.staying["tokyo"], x.leaves["tokyo"] = false, true },
		"the namespace is deleted":         func(x *testTables) { x.namespaceDeleted = true },
	}
	for name, change := range changes {
		for _, method := range []string{"Content", "HasStayingRow", "Cluster", "IsNamespaceDeleted", "ListHeldBack"} {
			tables := newTestTables()
			tables.afterRead[method] = func() { change(tables) }
			cache := newTestCache(t, tables)
			orderedFor(t, cache, "tokyo")
			for _, cluster := range []string{"tokyo", "paris"} {
				got, want := orderedFor(t, cache, cluster), orderedFor(t, newTestCache(t, tables), cluster)
				if got.Content != want.Content {
					t.Errorf("%s after %s: %s is sent %+v, and its tables give %+v", name, method, cluster, got, want)
				}
			}
		}
	}
}

// A manifest is a function of its input alone: the tables may change before it is rendered.
func TestManifestIsRenderedFromItsInput(t *testing.T) {
	tables := newTestTables()
	r := newTestRenderer(tables)
	in, err := r.ReadManifestInput(t.Context(), testRow("tokyo"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.RenderManifest(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	tables.staying, tables.leaves["tokyo"], tables.namespaceDeleted, tables.heldBack = nil, true, true, []string{"x"}
	if after, err := r.RenderManifest(t.Context(), in); err != nil || after.Content != before.Content {
		t.Errorf("the same input gives %+v and, after the tables changed, %+v (%v)", before, after, err)
	}
}

func TestInputsThatCannotBeRendered(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*testTables, *state.Row)
		want string
	}{
		"held back": {func(x *testTables, _ *state.Row) { x.heldBack = []string{"ConfigMap shop/conf"} }, "was deleted before the hub was restored"},
		"variant":   {func(_ *testTables, r *state.Row) { r.Spec.Variant = "other" }, "changed since its row"},
	} {
		tables, row := newTestTables(), testRow("tokyo")
		c.edit(tables, &row)
		if _, err := newTestCache(t, tables).GetOrRender(row); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "render revision r for cluster tokyo") {
			t.Errorf("%s: %v", name, err)
		}
		// A removal needs neither.
		row.Spec.Phase = atoll.RowRemoving
		if _, err := newTestCache(t, tables).GetOrRender(row); err != nil {
			t.Errorf("%s, of a row that is removed: %v", name, err)
		}
	}
}

func TestNamespaceIsDeletedOnlyWhenTheStoreConfirmsIt(t *testing.T) {
	tables := newTestTables()
	tables.namespaceDeleted = true
	r := newTestRenderer(tables)
	in, err := r.ReadManifestInput(t.Context(), testRow("tokyo"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.RenderManifest(t.Context(), in); err != nil || !slices.Equal(m.DeletedNamespaces, []string{"shop"}) {
		t.Errorf("deleted namespaces %v, %v", m.DeletedNamespaces, err)
	}
	r.confirmDeleted = func(context.Context, string) error { return errors.New("it exists") }
	if m, err := r.RenderManifest(t.Context(), in); err == nil {
		t.Errorf("a namespace that the store has is deleted: %v", m.DeletedNamespaces)
	}
}

// A cache key differs exactly where something differs that a manifest depends on.
func TestCacheKeysTellRowsApart(t *testing.T) {
	key := func(edit func(*atoll.RowSpec)) string {
		row := testRow("tokyo")
		row.Spec = atoll.RowSpec{
			UID: "u", Generation: 3, Revision: "r", Variant: "v", Assigned: map[string]int64{"web": 2}, OrdinalStarts: map[string]int64{"db": 0},
			ExcludedPending: map[string]int64{"config": 10}, Phase: atoll.RowActive,
		}
		edit(&row.Spec)
		in, err := newTestRenderer(newTestTables()).ReadManifestInput(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		return in.CacheKey()
	}
	same := key(func(*atoll.RowSpec) {})
	for name, edit := range map[string]func(*atoll.RowSpec){
		"revision":           func(r *atoll.RowSpec) { r.Revision = "s" },
		"variant":            func(r *atoll.RowSpec) { r.Variant = "w" },
		"assigned replicas":  func(r *atoll.RowSpec) { r.Assigned = map[string]int64{"web": 3} },
		"ordinals":           func(r *atoll.RowSpec) { r.OrdinalStarts = map[string]int64{"db": 9} },
		"no waiting item":    func(r *atoll.RowSpec) { r.ExcludedPending = nil },
		"other waiting item": func(r *atoll.RowSpec) { r.ExcludedPending = map[string]int64{"other": 10} },
		"an approval": func(r *atoll.RowSpec) {
			r.Approvals = []atoll.DriftApproval{{Item: "web", ID: "1", By: "alice", At: 9}}
		},
		"removing": func(r *atoll.RowSpec) { r.Phase = atoll.RowRemoving },
		"orphan":   func(r *atoll.RowSpec) { r.Orphan = true },
	} {
		if key(edit) == same {
			t.Errorf("%s: rows that differ in it share a key", name)
		}
	}
	for name, edit := range map[string]func(*atoll.RowSpec){
		"another cluster":       func(r *atoll.RowSpec) { r.UID = "w" },
		"generation":            func(r *atoll.RowSpec) { r.Generation = 9 },
		"time of waiting":       func(r *atoll.RowSpec) { r.ExcludedPending = map[string]int64{"config": 11} },
		"items kept out":        func(r *atoll.RowSpec) { r.Absent = []string{"x"} },
		"reason":                func(r *atoll.RowSpec) { r.Reason = "x" },
		"phase Leaving":         func(r *atoll.RowSpec) { r.Phase = atoll.RowLeaving },
		"reason of an old kind": func(r *atoll.RowSpec) { r.Reason = string(atoll.ReasonClusterRemoved) },
	} {
		if key(edit) != same {
			t.Errorf("%s: rows that differ only in it have different keys", name)
		}
	}
}

func TestCacheKeysTellTablesApart(t *testing.T) {
	key := func(edit func(*testTables)) string {
		tables := newTestTables()
		edit(tables)
		in, err := newTestRenderer(tables).ReadManifestInput(t.Context(), testRow("tokyo"))
		if err != nil {
			t.Fatal(err)
		}
		return in.CacheKey()
	}
	seen := map[string]string{}
	for name, edit := range map[string]func(*testTables){
		"as it is":          func(*testTables) {},
		"no row stays":      func(x *testTables) { x.staying = nil },
		"cluster leaves":    func(x *testTables) { x.leaves["tokyo"] = true },
		"namespace deleted": func(x *testTables) { x.namespaceDeleted = true },
		"held back":         func(x *testTables) { x.heldBack = []string{"x"} },
	} {
		k := key(edit)
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q have the same key", name, other)
		}
		seen[k] = name
	}
	if key(func(x *testTables) { x.staying["paris"], x.leaves["paris"] = false, true }) != key(func(*testTables) {}) {
		t.Error("the state of another cluster changes the key")
	}
}

// An orphaned row of a cluster that leaves the fleet keeps its items, one that a policy
// orphans does not say so.
func TestCacheKeyHasWhyARowIsOrphaned(t *testing.T) {
	r := newTestRenderer(newTestTables())
	left, dropped := testRow("tokyo"), testRow("tokyo")
	left.Spec.Phase, left.Spec.Orphan, left.Spec.Reason = atoll.RowRemoving, true, string(atoll.ReasonClusterRemoved)+": "+string(v1alpha1.ClusterOrphan)
	dropped.Spec.Phase, dropped.Spec.Orphan = atoll.RowRemoving, true
	var keys [2]string
	for i, row := range []state.Row{left, dropped} {
		in, err := r.ReadManifestInput(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = in.CacheKey()
		m, err := r.RenderManifest(t.Context(), in)
		if err != nil || m.ClusterDecommissioned != (i == 0) {
			t.Errorf("row %d: left behind %t, %v", i, m.ClusterDecommissioned, err)
		}
	}
	if keys[0] == keys[1] {
		t.Error("both rows share a key")
	}
}

// A row that is removed with its Bundle deletes the items that stay in clusters otherwise.
func TestCacheKeyHasThatTheBundleIsDeleted(t *testing.T) {
	r := newTestRenderer(newTestTables())
	keys := map[atoll.Reason]string{}
	for _, reason := range []atoll.Reason{atoll.ReasonBundleDeleted, atoll.ReasonPlacementEdited, atoll.ReasonObjectsDeleted} {
		row := testRow("tokyo")
		row.Spec.Phase, row.Spec.Reason = atoll.RowRemoving, atoll.RowReason{Reason: reason, Text: "text"}.String()
		in, err := r.ReadManifestInput(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		keys[reason] = in.CacheKey()
	}
	if keys[atoll.ReasonBundleDeleted] == keys[atoll.ReasonPlacementEdited] || keys[atoll.ReasonPlacementEdited] != keys[atoll.ReasonObjectsDeleted] {
		t.Errorf("the keys are %v", keys)
	}
}

func TestCacheIsBounded(t *testing.T) {
	const maxBytes = 20_000
	cache := newTestCache(t, newTestTables())
	cache.maxBytes = maxBytes
	for i := range 100 {
		row := testRow("tokyo")
		row.Spec.Revision = fmt.Sprint(i)
		if _, err := cache.GetOrRender(row); err != nil {
			t.Fatal(err)
		}
	}
	held := 0
	for _, e := range cache.entries {
		held += e.Value.(*Payload).bytes
	}
	if held != cache.bytes || len(cache.entries) == 100 {
		t.Errorf("%d entries of %d bytes count as %d bytes", len(cache.entries), held, cache.bytes)
	}
	if cache.bytes > maxBytes || len(cache.entries) != cache.recent.Len() || len(cache.entries) < 2 {
		t.Errorf("%d bytes in %d entries", cache.bytes, len(cache.entries))
	}
}
