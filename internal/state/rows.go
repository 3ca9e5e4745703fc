package state

import (
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/session"
)

// Row is one Bundle in one cluster.
type Row struct {
	Bundle  enginev1.BundleRef
	Cluster string
	// Slice that holds the row.
	Slice string
	Spec  atoll.RowSpec
	// Status is nil before the first report of this cluster UID.
	Status *atoll.RowStatus
	// StatusHash is session.StatusHash of Status, worked out once for each status;
	// empty without one, and in what ListOfBundle gives.
	StatusHash string
}

// RowTable is the table of all rows of all TargetSlices. It keeps lines as the slices have them and
// decodes them for each reader: a row takes about 250 bytes.
//
// Its lock is held to read or to change the table, never to decode a slice: a page has a lock
// of its own for its writer.
type RowTable struct {
	client client.Client

	mu       sync.RWMutex
	pages    map[string]*slicePage  // by slice name
	byBundle map[string]*bundleRows // by Bundle UID
	// byNamespace are those of byBundle whose Bundles are in a namespace, by that and UID.
	byNamespace    map[string]map[string]*bundleRows
	byClusterUID   map[string]*clusterRows // by cluster UID
	highestVersion int64                   // highest resource version seen
	notifier[rowsChange]
	transitions notifier[[]RowTransition]
}

// bundleRows are the rows of one Bundle.
type bundleRows struct {
	pages []*slicePage         // by number
	rows  map[string]*tableRow // by cluster name
}

// clusterRows are the rows of one cluster.
type clusterRows struct {
	uid, name     string
	rows          []*tableRow // by Bundle UID
	requestedPods int64       // that the staying ones of them request
}

// IsReady reports whether the row is Active, and its cluster reported Ready at its generation.
func (r Row) IsReady() bool {
	return r.Spec.Phase == atoll.RowActive && r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowReady
}

// RowTransition is the change of one row in a slice. Before is zero for a row that came, After for
// one that went.
type RowTransition struct {
	Bundle, Cluster string
	Before, After   rowcodec.Summary
}

type rowsChange struct {
	bundle            string
	clusters, ordered []string
}

func newRows(c client.Client) *RowTable {
	return &RowTable{
		client:   c,
		pages:    map[string]*slicePage{},
		byBundle: map[string]*bundleRows{}, byNamespace: map[string]map[string]*bundleRows{},
		byClusterUID: map[string]*clusterRows{},
	}
}

// ListOfBundle lists the Bundle's rows by cluster name.
func (t *RowTable) ListOfBundle(uid string) []Row {
	t.mu.RLock()
	b := t.byBundle[uid]
	if b == nil || len(b.rows) == 0 {
		t.mu.RUnlock()
		return nil
	}
	found, pages := make([]rowSnapshot, 0, len(b.rows)), len(b.pages)
	for _, p := range b.pages {
		for _, r := range p.rows {
			if pages == 1 || b.rows[r.cluster] == r {
				found = append(found, r.takeSnapshot())
			}
		}
	}
	t.mu.RUnlock()
	order := make([]int32, len(found))
	for i := range order {
		order[i] = int32(i)
	}
	if pages > 1 {
		slices.SortFunc(order, func(i, j int32) int { return strings.Compare(found[i].row.cluster, found[j].row.cluster) })
	}
	out := make([]Row, len(found))
	for i, at := range order {
		found[at].decodeRow(&out[i])
	}
	return out
}

// SmallBundle is the number of rows up to which a Bundle's last Ready waits for no other report. Larger
// Bundles have more to gather, and reading their rows for each report costs more.
const SmallBundle = 16

// AllReady reports whether there are rows, and each of them is Ready.
func AllReady(rows []Row) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows, func(r Row) bool { return !r.IsReady() })
}

// ListOfSmallBundle lists the Bundle's rows by cluster name; none when it has more than SmallBundle.
func (t *RowTable) ListOfSmallBundle(uid string) []Row {
	t.mu.RLock()
	b := t.byBundle[uid]
	isSmall := b != nil && len(b.rows) <= SmallBundle
	t.mu.RUnlock()
	if !isSmall {
		return nil
	}
	return t.ListOfBundle(uid)
}

// ListOfCluster lists the rows of the cluster with that UID by Bundle UID.
func (t *RowTable) ListOfCluster(uid string) []Row {
	t.mu.RLock()
	m := t.byClusterUID[uid]
	if m == nil {
		t.mu.RUnlock()
		return nil
	}
	found := make([]rowSnapshot, 0, len(m.rows))
	for _, r := range m.rows {
		found = append(found, r.takeSnapshot())
	}
	t.mu.RUnlock()
	out := make([]Row, len(found))
	for i := range found {
		found[i].decodeRow(&out[i])
		t.fillStatusHash(&out[i], &found[i])
	}
	return out
}

// RequestedPodsOf returns how many pods the rows of the cluster with that UID request, of each row that
// is to stay 1 at least.
func (t *RowTable) RequestedPodsOf(uid string) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if m := t.byClusterUID[uid]; m != nil {
		return m.requestedPods
	}
	return 0
}

// Get returns one row.
func (t *RowTable) Get(bundleUID, cluster string) (out Row, ok bool) {
	t.mu.RLock()
	r := t.findRow(bundleUID, cluster)
	if r == nil {
		t.mu.RUnlock()
		return out, false
	}
	v := r.takeSnapshot()
	t.mu.RUnlock()
	v.decodeRow(&out)
	t.fillStatusHash(&out, &v)
	return out, true
}

// CountOfCluster returns how many rows the cluster with that UID has.
func (t *RowTable) CountOfCluster(uid string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if m := t.byClusterUID[uid]; m != nil {
		return len(m.rows)
	}
	return 0
}

// HasRow reports whether the cluster has a row of the Bundle.
func (t *RowTable) HasRow(bundleUID, cluster string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.findRow(bundleUID, cluster) != nil
}

// fillStatusHash computes the hash of the row's status, and keeps it with the row until the
// status changes.
func (t *RowTable) fillStatusHash(out *Row, v *rowSnapshot) {
	if out.Status == nil || v.statusHash != "" {
		out.StatusHash = v.statusHash
		return
	}
	out.StatusHash = session.StatusHash(*out.Status)
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := v.row; r.status == v.status && r.page.dictionaries == v.dictionaries {
		r.statusHash = out.StatusHash
	}
}

// BundlesWithRows returns the Bundles that have rows, by UID; those that are deleted included.
func (t *RowTable) BundlesWithRows() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]string, 0, len(t.byBundle))
	for uid, b := range t.byBundle {
		if len(b.rows) > 0 {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}

// HighestResourceVersion returns the highest version of the store in which the table's newest slice was written. It only
// grows while the store is not set back.
func (t *RowTable) HighestResourceVersion() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.highestVersion
}

// PlacedNamespacesByCluster returns the clusters that have rows of Bundles in a namespace, or in any where it is
// empty, and in which namespaces, in no order. It costs the rows of those namespaces.
func (t *RowTable) PlacedNamespacesByCluster(namespace string) map[string][]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[string][]string{}
	if namespace != "" {
		addPlacedClusters(out, namespace, t.byNamespace[namespace])
		return out
	}
	for of, bundles := range t.byNamespace {
		addPlacedClusters(out, of, bundles)
	}
	return out
}

// addPlacedClusters notes the clusters of a namespace's Bundles.
func addPlacedClusters(out map[string][]string, namespace string, bundles map[string]*bundleRows) {
	for _, b := range bundles {
		for cluster := range b.rows {
			if in := out[cluster]; len(in) == 0 || in[len(in)-1] != namespace {
				out[cluster] = append(in, namespace)
			}
		}
	}
}

// HasRowsInNamespace reports whether a cluster has rows of Bundles in a namespace. It costs no more than
// the Bundles of the namespace.
func (t *RowTable) HasRowsInNamespace(namespace, cluster string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, b := range t.byNamespace[namespace] {
		if b.rows[cluster] != nil {
			return true
		}
	}
	return false
}

// EmptySlices returns the empty slices of a Bundle by number, for their collector, and the number of all its slices.
func (t *RowTable) EmptySlices(bundleUID string) (empty []*enginev1.TargetSlice, all int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b := t.byBundle[bundleUID]
	if b == nil {
		return nil, 0
	}
	for _, p := range b.pages {
		if len(p.rows)+len(p.unreadable) == 0 {
			empty = append(empty, p.toSliceObjectWithoutRows())
		}
	}
	return empty, len(b.pages)
}

// Subscribe subscribes to changes: a Bundle's UID and the names of the clusters whose rows
// changed, came or went.
func (t *RowTable) Subscribe(fn func(bundleUID string, clusters []string)) {
	t.addSubscriber(func(c rowsChange) { fn(c.bundle, c.clusters) })
}

// SubscribeWithChangedOrders subscribes to the same changes, with the rows whose orders changed, or that
// were added or deleted. The status alone changed of the other rows.
func (t *RowTable) SubscribeWithChangedOrders(fn func(bundleUID string, clusters, ordered []string)) {
	t.addSubscriber(func(c rowsChange) { fn(c.bundle, c.clusters, c.ordered) })
}

// SubscribeTransitions subscribes to the changes of rows with what they were before. The changes of
// one slice come in their order. A subscriber must not write rows.
func (t *RowTable) SubscribeTransitions(fn func([]RowTransition)) { t.transitions.addSubscriber(fn) }

func (t *RowTable) put(obj client.Object) {
	if f := t.updatePageFromSlice(obj.(*enginev1.TargetSlice)); f != nil {
		defer raisePanic(f.panicked)
		t.notifyChanged(f)
	}
}

// updatePageFromSlice fills the page of a slice, and notifies of the rows' transitions before it unlocks the
// page. It returns nil when the table has a later version of the slice.
func (t *RowTable) updatePageFromSlice(s *enginev1.TargetSlice) *pageUpdate {
	p := t.lockPage(s.Name, &s.Spec.Bundle)
	defer p.fillLock.Unlock()
	// A known version is filled again, so that table and informer have one text.
	if p.meta.UID == s.UID && isOlderVersion(s.ResourceVersion, p.meta.ResourceVersion) {
		return nil
	}
	f := p.computePageUpdate(s, t.transitions.hasSubscribers())
	t.applyUpdateOfVersion(f, s.ResourceVersion)
	t.notifyTransitions(f)
	return f
}

// applyUpdateOfVersion applies a filling with the content of a version of the store.
func (t *RowTable) applyUpdateOfVersion(f *pageUpdate, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.highestVersion = max(t.highestVersion, parseVersion(version))
	t.applyPageUpdate(f)
}

func (t *RowTable) removeObject(obj client.Object) {
	if f := t.removePageOfSlice(obj); f != nil {
		defer raisePanic(f.panicked)
		t.notifyChanged(f)
	}
}

// removePageOfSlice removes the page of a slice with its rows, and notifies of the rows' transitions before
// it unlocks the page. It returns nil when the table does not have the slice.
func (t *RowTable) removePageOfSlice(obj client.Object) *pageUpdate {
	p := t.lockPage(obj.GetName(), nil)
	if p == nil {
		return nil
	}
	defer p.fillLock.Unlock()
	if p.meta.UID != obj.GetUID() {
		return nil
	}
	f := p.computePageUpdate(&enginev1.TargetSlice{}, t.transitions.hasSubscribers())
	t.dropPage(f)
	t.notifyTransitions(f)
	return f
}

// dropPage applies the filling of a page without rows, and removes the page.
func (t *RowTable) dropPage(f *pageUpdate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := f.page
	p.dropped = true
	delete(t.pages, p.name)
	t.applyPageUpdate(f)
	b := t.byBundle[p.bundle.UID]
	if b.pages = slices.DeleteFunc(b.pages, func(o *slicePage) bool { return o == p }); len(b.pages) == 0 {
		delete(t.byBundle, p.bundle.UID)
		in := t.byNamespace[p.bundle.Namespace]
		if delete(in, p.bundle.UID); len(in) == 0 {
			delete(t.byNamespace, p.bundle.Namespace)
		}
	}
}

// lockPage returns the page of that name, to be filled; a new one of the Bundle, where
// there is none. Without a Bundle that is nil. The caller unlocks fillLock of the page.
func (t *RowTable) lockPage(name string, bundle *enginev1.BundleRef) *slicePage {
	for {
		p := t.findOrAddPage(name, bundle)
		if p == nil {
			return nil
		}
		p.fillLock.Lock()
		if !p.dropped {
			return p
		}
		p.fillLock.Unlock() // it was dropped in between
	}
}

// findOrAddPage returns the page of that name. Without such a page it adds one of the Bundle, or
// returns nil without a Bundle.
func (t *RowTable) findOrAddPage(name string, bundle *enginev1.BundleRef) *slicePage {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pages[name]
	if p == nil && bundle != nil {
		p = &slicePage{name: strings.Clone(name), number: pageNumberOf(name), bundle: *bundle, dictionaries: &dictionaryPair{}}
		t.pages[p.name] = p
	}
	return p
}

// notifyTransitions notifies of changed rows, and keeps the first panic of a subscriber. The caller
// holds the lock of the page.
func (t *RowTable) notifyTransitions(f *pageUpdate) {
	if len(f.transitions) > 0 {
		f.panicked = t.transitions.callAll(f.transitions)
	}
}

// notifyChanged notifies of changed rows. The caller holds no lock.
func (t *RowTable) notifyChanged(f *pageUpdate) {
	if len(f.changed) > 0 {
		t.notifyAll(rowsChange{f.page.bundle.UID, f.changed, f.ordered})
	}
}

// addPage adds a page to its Bundle. The caller holds the lock.
func (t *RowTable) addPage(p *slicePage) {
	p.listed = true
	b := t.byBundle[p.bundle.UID]
	if b == nil {
		b = &bundleRows{rows: map[string]*tableRow{}}
		t.byBundle[p.bundle.UID] = b
		if ns := p.bundle.Namespace; ns != "" {
			if t.byNamespace[ns] == nil {
				t.byNamespace[ns] = map[string]*bundleRows{}
			}
			t.byNamespace[ns][p.bundle.UID] = b
		}
	} else {
		p.bundle = b.pages[0].bundle
	}
	i, _ := slices.BinarySearchFunc(b.pages, p.number, func(o *slicePage, n int) int { return o.number - n })
	b.pages = slices.Insert(b.pages, i, p)
}
