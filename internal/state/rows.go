package state

import (
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
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
	// empty without one, and in what OfBundle gives.
	StatusHash string
}

// Rows is the table of all rows of all TargetSlices. It keeps lines as the slices
// have them and decodes them for whoever reads: a row takes about 250 bytes.
//
// Its lock is held to read or to change what is there, never to work out what a slice
// means: a page has a lock of its own for who fills it.
type Rows struct {
	client client.Client

	mu       sync.RWMutex
	pages    map[string]*page       // by slice name
	byBundle map[string]*bundleRows // by Bundle UID
	// byNamespace are those of byBundle whose Bundles are in a namespace, by that and UID.
	byNamespace map[string]map[string]*bundleRows
	byMember    map[string]*memberRows // by cluster UID
	revision    int64                  // highest resource version seen
	notifier[rowsChanged]
}

// bundleRows are the rows of one Bundle.
type bundleRows struct {
	pages []*page         // by number
	rows  map[string]*row // by cluster name
}

// memberRows are the rows of one cluster.
type memberRows struct {
	uid, name string
	rows      []*row // by Bundle UID
	pods      int64  // that those of them ask for that are to stay
}

type rowsChanged struct {
	bundle            string
	clusters, ordered []string
}

func newRows(c client.Client) *Rows {
	return &Rows{
		client:   c,
		pages:    map[string]*page{},
		byBundle: map[string]*bundleRows{}, byNamespace: map[string]map[string]*bundleRows{},
		byMember: map[string]*memberRows{},
	}
}

// OfBundle lists the Bundle's rows by cluster name.
func (t *Rows) OfBundle(uid string) []Row {
	t.mu.RLock()
	b := t.byBundle[uid]
	if b == nil || len(b.rows) == 0 {
		t.mu.RUnlock()
		return nil
	}
	found, pages := make([]view, 0, len(b.rows)), len(b.pages)
	for _, p := range b.pages {
		for _, r := range p.rows {
			if pages == 1 || b.rows[r.cluster] == r {
				found = append(found, r.view())
			}
		}
	}
	t.mu.RUnlock()
	order := make([]int32, len(found))
	for i := range order {
		order[i] = int32(i)
	}
	if pages > 1 {
		slices.SortFunc(order, func(i, j int32) int { return strings.Compare(found[i].of.cluster, found[j].of.cluster) })
	}
	out := make([]Row, len(found))
	for i, at := range order {
		found[at].decode(&out[i])
	}
	return out
}

// OfCluster lists the rows of the cluster with that UID by Bundle UID.
func (t *Rows) OfCluster(uid string) []Row {
	t.mu.RLock()
	m := t.byMember[uid]
	if m == nil {
		t.mu.RUnlock()
		return nil
	}
	found := make([]view, 0, len(m.rows))
	for _, r := range m.rows {
		found = append(found, r.view())
	}
	t.mu.RUnlock()
	out := make([]Row, len(found))
	for i := range found {
		found[i].decode(&out[i])
		t.hash(&out[i], &found[i])
	}
	return out
}

// PodsOf gives how many pods the rows of the cluster with that UID ask for, of each row that
// is to stay 1 at least.
func (t *Rows) PodsOf(uid string) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if m := t.byMember[uid]; m != nil {
		return m.pods
	}
	return 0
}

// Get one row.
func (t *Rows) Get(bundleUID, cluster string) (out Row, ok bool) {
	t.mu.RLock()
	r := t.find(bundleUID, cluster)
	if r == nil {
		t.mu.RUnlock()
		return out, false
	}
	v := r.view()
	t.mu.RUnlock()
	v.decode(&out)
	t.hash(&out, &v)
	return out, true
}

// hash tells the hash of the row's status, and keeps it with the row while that says
// the same.
func (t *Rows) hash(out *Row, v *view) {
	if out.Status == nil || v.hash != "" {
		out.StatusHash = v.hash
		return
	}
	out.StatusHash = session.StatusHash(*out.Status)
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := v.of; r.status == v.status && r.page.dict == v.dict {
		r.hash = out.StatusHash
	}
}

// Bundles that have rows, by UID; those that are deleted included.
func (t *Rows) Bundles() []string {
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

// Revision of the store in which the table's newest slice was written. It only
// grows while the store is not set back.
func (t *Rows) Revision() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision
}

// Placed gives the clusters that have rows of Bundles in a namespace, or in any where it is
// empty, and in which namespaces, in no order. It costs the rows of those namespaces.
func (t *Rows) Placed(namespace string) map[string][]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[string][]string{}
	if namespace != "" {
		place(out, namespace, t.byNamespace[namespace])
		return out
	}
	for of, bundles := range t.byNamespace {
		place(out, of, bundles)
	}
	return out
}

// place notes the clusters of a namespace's Bundles.
func place(out map[string][]string, namespace string, bundles map[string]*bundleRows) {
	for _, b := range bundles {
		for cluster := range b.rows {
			if in := out[cluster]; len(in) == 0 || in[len(in)-1] != namespace {
				out[cluster] = append(in, namespace)
			}
		}
	}
}

// PlacedAt tells whether a cluster has rows of Bundles in a namespace. It costs no more than
// the Bundles of the namespace.
func (t *Rows) PlacedAt(namespace, cluster string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, b := range t.byNamespace[namespace] {
		if b.rows[cluster] != nil {
			return true
		}
	}
	return false
}

// EmptySlices of a Bundle by number, for who collects them, and how many slices it has
// in all.
func (t *Rows) EmptySlices(bundleUID string) (empty []*enginev1.TargetSlice, all int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b := t.byBundle[bundleUID]
	if b == nil {
		return nil, 0
	}
	for _, p := range b.pages {
		if len(p.rows)+len(p.odd) == 0 {
			empty = append(empty, p.slice())
		}
	}
	return empty, len(b.pages)
}

// Subscribe to changes: a Bundle's UID and the names of the clusters whose rows
// changed, came or went.
func (t *Rows) Subscribe(fn func(bundleUID string, clusters []string)) {
	t.subscribe(func(c rowsChanged) { fn(c.bundle, c.clusters) })
}

// SubscribeOrders to the same, and to which of those rows are ordered anew, came or went:
// of the others only the status changed.
func (t *Rows) SubscribeOrders(fn func(bundleUID string, clusters, ordered []string)) {
	t.subscribe(func(c rowsChanged) { fn(c.bundle, c.clusters, c.ordered) })
}

func (t *Rows) put(obj client.Object) {
	s := obj.(*enginev1.TargetSlice)
	p := t.lockPage(s.Name, &s.Spec.Bundle)
	// What is known already is filled again, so that table and informer have one text.
	if p.meta.UID == s.UID && older(s.ResourceVersion, p.meta.ResourceVersion) {
		p.filling.Unlock()
		return
	}
	f := p.fill(s)
	t.mu.Lock()
	t.revision = max(t.revision, number(s.ResourceVersion))
	t.settle(f)
	t.mu.Unlock()
	p.filling.Unlock()
	t.tell(p.bundle.UID, f)
}

func (t *Rows) drop(obj client.Object) {
	p := t.lockPage(obj.GetName(), nil)
	if p == nil {
		return
	}
	if p.meta.UID != obj.GetUID() {
		p.filling.Unlock()
		return
	}
	f := p.fill(&enginev1.TargetSlice{})
	t.mu.Lock()
	p.gone = true
	delete(t.pages, p.name)
	t.settle(f)
	b := t.byBundle[p.bundle.UID]
	if b.pages = slices.DeleteFunc(b.pages, func(o *page) bool { return o == p }); len(b.pages) == 0 {
		delete(t.byBundle, p.bundle.UID)
		in := t.byNamespace[p.bundle.Namespace]
		if delete(in, p.bundle.UID); len(in) == 0 {
			delete(t.byNamespace, p.bundle.Namespace)
		}
	}
	t.mu.Unlock()
	p.filling.Unlock()
	t.tell(p.bundle.UID, f)
}

// lockPage gives the page of that name, to be filled; a new one of the Bundle, where
// there is none. Without a Bundle that is nil.
func (t *Rows) lockPage(name string, bundle *enginev1.BundleRef) *page {
	for {
		t.mu.Lock()
		p := t.pages[name]
		if p == nil && bundle == nil {
			t.mu.Unlock()
			return nil
		}
		if p == nil {
			p = &page{name: strings.Clone(name), number: numberOf(name), bundle: *bundle, dict: &dict{}}
			t.pages[p.name] = p
		}
		t.mu.Unlock()
		p.filling.Lock()
		if !p.gone {
			return p
		}
		p.filling.Unlock() // it was dropped meanwhile
	}
}

func (t *Rows) tell(bundle string, f *filling) {
	if len(f.changed) > 0 {
		t.notify(rowsChanged{bundle, f.changed, f.ordered})
	}
}

// addPage to its Bundle. The caller holds the lock.
func (t *Rows) addPage(p *page) {
	p.listed = true
	b := t.byBundle[p.bundle.UID]
	if b == nil {
		b = &bundleRows{rows: map[string]*row{}}
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
	i, _ := slices.BinarySearchFunc(b.pages, p.number, func(o *page, n int) int { return o.number - n })
	b.pages = slices.Insert(b.pages, i, p)
}
