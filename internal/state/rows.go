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
type Rows struct {
	client client.Client

	mu       sync.RWMutex
	pages    map[string]*page       // by slice name
	byBundle map[string]*bundleRows // by Bundle UID
	byMember map[string]*memberRows // by cluster UID
	revision int64                  // highest resource version seen
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
}

type rowsChanged struct {
	bundle   string
	clusters []string
}

func newRows(c client.Client) *Rows {
	return &Rows{
		client:   c,
		pages:    map[string]*page{},
		byBundle: map[string]*bundleRows{},
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

// hash tells the hash of the row's status, and keeps it with the row: one whose status
// changes is another row.
func (t *Rows) hash(out *Row, v *view) {
	if out.Status == nil || v.hash != "" {
		out.StatusHash = v.hash
		return
	}
	out.StatusHash = session.StatusHash(*out.Status)
	t.mu.Lock()
	defer t.mu.Unlock()
	v.of.hash = out.StatusHash
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

// Slices of a Bundle by number, for who collects empty ones.
func (t *Rows) Slices(bundleUID string) []*enginev1.TargetSlice {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b := t.byBundle[bundleUID]
	if b == nil {
		return nil
	}
	out := make([]*enginev1.TargetSlice, 0, len(b.pages))
	for _, p := range b.pages {
		s := p.slice()
		s.Spec.Words, s.Spec.Rows = p.dict.spec, p.specs(nil)
		s.Status.Words, s.Status.Rows = p.dict.status, p.statuses(nil)
		out = append(out, s)
	}
	return out
}

// Subscribe to changes: a Bundle's UID and the names of the clusters whose rows
// changed, came or went.
func (t *Rows) Subscribe(fn func(bundleUID string, clusters []string)) {
	t.subscribe(func(c rowsChanged) { fn(c.bundle, c.clusters) })
}

func (t *Rows) put(obj client.Object) {
	s := obj.(*enginev1.TargetSlice)
	t.mu.Lock()
	p := t.pages[s.Name]
	// What is known already is filled again, so that table and informer have one text.
	if p != nil && p.meta.UID == s.UID && older(s.ResourceVersion, p.meta.ResourceVersion) {
		t.mu.Unlock()
		return
	}
	if p == nil {
		p = &page{name: strings.Clone(s.Name), number: numberOf(s.Name), bundle: s.Spec.Bundle}
		t.pages[s.Name] = p
		t.addPage(p)
	}
	t.revision = max(t.revision, number(s.ResourceVersion))
	changed := t.fill(p, s)
	t.mu.Unlock()
	t.tell(p.bundle.UID, changed)
}

func (t *Rows) drop(obj client.Object) {
	t.mu.Lock()
	p := t.pages[obj.GetName()]
	if p == nil || p.meta.UID != obj.GetUID() {
		t.mu.Unlock()
		return
	}
	delete(t.pages, p.meta.Name)
	changed := t.fill(p, &enginev1.TargetSlice{})
	b := t.byBundle[p.bundle.UID]
	if b.pages = slices.DeleteFunc(b.pages, func(o *page) bool { return o == p }); len(b.pages) == 0 {
		delete(t.byBundle, p.bundle.UID)
	}
	t.mu.Unlock()
	t.tell(p.bundle.UID, changed)
}

func (t *Rows) tell(bundle string, clusters []string) {
	if len(clusters) > 0 {
		t.notify(rowsChanged{bundle, clusters})
	}
}

func (t *Rows) addPage(p *page) {
	b := t.byBundle[p.bundle.UID]
	if b == nil {
		b = &bundleRows{rows: map[string]*row{}}
		t.byBundle[p.bundle.UID] = b
	} else {
		p.bundle = b.pages[0].bundle
	}
	i, _ := slices.BinarySearchFunc(b.pages, p.number, func(o *page, n int) int { return o.number - n })
	b.pages = slices.Insert(b.pages, i, p)
}
