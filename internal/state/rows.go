package state

import (
	"maps"
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
	// StatusHash is session.StatusHash of Status, worked out when it changes; empty
	// without one.
	StatusHash string
}

// Rows is the table of all rows of all TargetSlices.
type Rows struct {
	client client.Client

	mu        sync.RWMutex
	slices    map[string]*enginev1.TargetSlice
	slicesBy  map[string]map[string]struct{} // bundle UID → slice names
	byBundle  map[string]map[string]Row      // bundle UID → cluster name
	byCluster map[string]map[string]string   // cluster UID → bundle UID → cluster name
	revision  int64                          // highest resource version seen
	notifier[rowsChanged]
}

type rowsChanged struct {
	bundle   string
	clusters []string
}

func newRows(c client.Client) *Rows {
	return &Rows{
		client:    c,
		slices:    map[string]*enginev1.TargetSlice{},
		slicesBy:  map[string]map[string]struct{}{},
		byBundle:  map[string]map[string]Row{},
		byCluster: map[string]map[string]string{},
	}
}

// OfBundle lists the Bundle's rows by cluster name.
func (t *Rows) OfBundle(uid string) []Row {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := slices.Collect(maps.Values(t.byBundle[uid]))
	slices.SortFunc(out, func(a, b Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// OfCluster lists the rows of the cluster with that UID by Bundle UID.
func (t *Rows) OfCluster(uid string) []Row {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []Row
	for bundle, cluster := range t.byCluster[uid] {
		out = append(out, t.byBundle[bundle][cluster])
	}
	slices.SortFunc(out, func(a, b Row) int { return strings.Compare(a.Bundle.UID, b.Bundle.UID) })
	return out
}

// Get one row.
func (t *Rows) Get(bundleUID, cluster string) (Row, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.byBundle[bundleUID][cluster]
	return r, ok
}

// Bundles that have rows, by UID; those that are deleted included.
func (t *Rows) Bundles() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.byBundle))
}

// Revision of the store in which the table's newest slice was written. It only
// grows while the store is not set back.
func (t *Rows) Revision() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision
}

// Slices of a Bundle by name, for who collects empty ones.
func (t *Rows) Slices(bundleUID string) []*enginev1.TargetSlice {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.slicesOf(bundleUID)
}

// Subscribe to changes: a Bundle's UID and the names of the clusters whose rows
// changed, came or went.
func (t *Rows) Subscribe(fn func(bundleUID string, clusters []string)) {
	t.subscribe(func(c rowsChanged) { fn(c.bundle, c.clusters) })
}

func (t *Rows) put(obj client.Object) {
	s := obj.(*enginev1.TargetSlice)
	t.mu.Lock()
	old := t.slices[s.Name]
	if old != nil && old.UID == s.UID && !older(old.ResourceVersion, s.ResourceVersion) {
		t.mu.Unlock()
		return
	}
	t.slices[s.Name] = s
	t.revision = max(t.revision, number(s.ResourceVersion))
	if t.slicesBy[s.Spec.Bundle.UID] == nil {
		t.slicesBy[s.Spec.Bundle.UID] = map[string]struct{}{}
	}
	t.slicesBy[s.Spec.Bundle.UID][s.Name] = struct{}{}
	changed := t.replace(old, s)
	t.mu.Unlock()
	t.tell(s.Spec.Bundle.UID, changed)
}

func (t *Rows) drop(obj client.Object) {
	t.mu.Lock()
	old := t.slices[obj.GetName()]
	if old == nil || old.UID != obj.GetUID() {
		t.mu.Unlock()
		return
	}
	delete(t.slices, old.Name)
	if by := t.slicesBy[old.Spec.Bundle.UID]; len(by) > 1 {
		delete(by, old.Name)
	} else {
		delete(t.slicesBy, old.Spec.Bundle.UID)
	}
	changed := t.replace(old, nil)
	t.mu.Unlock()
	t.tell(old.Spec.Bundle.UID, changed)
}

func (t *Rows) tell(bundle string, clusters []string) {
	if len(clusters) > 0 {
		t.notify(rowsChanged{bundle, clusters})
	}
}

// replace the rows of slice a by those of slice b (either may be nil) and name the
// clusters whose lines differ. Unchanged lines are not decoded again.
func (t *Rows) replace(a, b *enginev1.TargetSlice) []string {
	var changed []string
	if a != nil {
		for cluster := range a.Spec.Rows {
			if b == nil || b.Spec.Rows[cluster] == "" {
				t.remove(a.Spec.Bundle.UID, cluster)
				changed = append(changed, cluster)
			}
		}
	}
	if b == nil {
		return changed
	}
	for cluster, line := range b.Spec.Rows {
		status := b.Status.Rows[cluster]
		if a != nil && a.Spec.Rows[cluster] == line && a.Status.Rows[cluster] == status {
			continue
		}
		if r, ok := decode(b, cluster, line, status); ok {
			t.remove(b.Spec.Bundle.UID, cluster)
			t.add(r)
			changed = append(changed, cluster)
		}
	}
	slices.Sort(changed)
	return changed
}

func (t *Rows) add(r Row) {
	rows := t.byBundle[r.Bundle.UID]
	if rows == nil {
		rows = map[string]Row{}
		t.byBundle[r.Bundle.UID] = rows
	}
	rows[r.Cluster] = r
	bundles := t.byCluster[r.Spec.UID]
	if bundles == nil {
		bundles = map[string]string{}
		t.byCluster[r.Spec.UID] = bundles
	}
	bundles[r.Bundle.UID] = r.Cluster
}

func (t *Rows) remove(bundle, cluster string) {
	r, ok := t.byBundle[bundle][cluster]
	if !ok {
		return
	}
	if delete(t.byBundle[bundle], cluster); len(t.byBundle[bundle]) == 0 {
		delete(t.byBundle, bundle)
	}
	if delete(t.byCluster[r.Spec.UID], bundle); len(t.byCluster[r.Spec.UID]) == 0 {
		delete(t.byCluster, r.Spec.UID)
	}
}

// decode a row. A line that cannot be read is left out: who wrote it was newer in
// a way that this hub cannot know, and an absent row orders nothing.
func decode(s *enginev1.TargetSlice, cluster, line, status string) (Row, bool) {
	spec, err := atoll.ParseRowSpec(line)
	if err != nil {
		return Row{}, false
	}
	r := Row{Bundle: s.Spec.Bundle, Cluster: cluster, Slice: s.Name, Spec: spec}
	if status != "" {
		if st, err := atoll.ParseRowStatus(status); err == nil && st.UID == spec.UID {
			r.Status, r.StatusHash = &st, session.StatusHash(st)
		}
	}
	return r, true
}
