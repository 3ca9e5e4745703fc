package place

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// index remembers, between steps, what of the fleet has a part in which Bundle, so
// that one cluster's change costs one question per Bundle, and one Bundle's change
// costs its rows. It holds nothing that cannot be forgotten: who is not complete is
// looked at in full.
type index struct {
	mu      sync.Mutex
	entries map[string]*entry
	known   map[string]schedule.Cluster // by name, as last compared
	items   *lru.Cache                  // revision → []schedule.Workload
}

type entry struct {
	uid       string
	placement v1alpha1.Placement
	whenUnfit v1alpha1.WhenUnfit
	filter    *schedule.Filter
	// complete: every cluster that fits has a row, but for those touched since.
	complete bool
	touched  map[string]bool
	// change counts up with every touch, so that a step knows what came after it
	// began.
	change uint64
	// awaited clusters: something waits for their rows. During a step anything may
	// become awaited, so all changes count then.
	awaited map[string]bool
	busy    bool
	rows    int
	plan    string
	recall  string
	intent  *intent
}

// intent is what a Bundle's table entry says to place.
type intent struct {
	spec     v1alpha1.BundleSpec
	confirm  string
	keep     string
	deleting bool
}

// view of an entry at the begin of a step.
type view struct {
	uid      string
	filter   *schedule.Filter
	complete bool
	touched  map[string]bool
	change   uint64
}

func newIndex() *index {
	return &index{entries: map[string]*entry{}, known: map[string]schedule.Cluster{}, items: lru.New(1024)}
}

// view of a Bundle. A placement that is not the one that is remembered has to be
// compared with all of the fleet.
func (x *index) view(b state.Bundle) view {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entry(b.Ref.UID)
	e.busy = true
	if e.filter == nil || e.whenUnfit != b.Spec.WhenUnfit || !reflect.DeepEqual(e.placement, b.Spec.Placement) {
		e.placement, e.whenUnfit = b.Spec.Placement, b.Spec.WhenUnfit
		e.filter, e.complete = schedule.Compile(b.Spec.Placement), false
	}
	return view{uid: b.Ref.UID, filter: e.filter, complete: e.complete, touched: maps.Clone(e.touched), change: e.change}
}

func (x *index) entry(uid string) *entry {
	e := x.entries[uid]
	if e == nil {
		e = &entry{uid: uid, touched: map[string]bool{}}
		x.entries[uid] = e
	}
	return e
}

// edited notes what the Bundle says and tells whether that is new.
func (x *index) edited(b state.Bundle) bool {
	is := &intent{b.Spec, b.Meta.Annotations[atoll.AnnotationConfirm], b.Meta.Annotations[atoll.AnnotationKeep], b.Meta.DeletionTimestamp != nil}
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entry(b.Ref.UID)
	was := e.intent
	e.intent = is
	return was == nil || !reflect.DeepEqual(was, is)
}

// done notes that a step was written. placed: it could place, so that all that fit
// have a row now.
func (x *index) done(v view, out rollout.Output, rows int, placed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[v.uid]
	if e == nil || e.filter != v.filter {
		return
	}
	e.busy, e.rows, e.awaited = false, rows, map[string]bool{}
	for _, c := range out.Awaited {
		e.awaited[c] = true
	}
	if out.Plan == nil {
		e.plan = ""
	}
	if e.complete = placed; e.change == v.change && placed {
		clear(e.touched)
	}
}

// touch a cluster: its part in the Bundle may have changed.
func (x *index) touch(uid, cluster string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		e.touched[cluster] = true
		e.change++
	}
}

// patientRows is from how many rows on a Bundle's steps are put off for more news.
const patientRows = 200

// awaits tells whether something in the Bundle waits for one of the clusters, and
// how long a step may be put off for more such news to come: a step looks at all
// rows, so that many news about a large Bundle are better looked at together.
func (x *index) awaits(uid string, clusters ...string) (after time.Duration, yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return 0, true
	}
	yes = e.busy || slices.ContainsFunc(clusters, func(c string) bool { return e.awaited[c] })
	if e.rows > patientRows {
		after = time.Duration(e.rows) * 50 * time.Microsecond
	}
	return after, yes
}

// newPlan tells whether the plan differs from the last one of the Bundle.
func (x *index) newPlan(uid, hash string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || e.plan == hash {
		return false
	}
	e.plan = hash
	return true
}

// newRecall does the same for the plan of recalled deletions.
func (x *index) newRecall(uid, hash string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || e.recall == hash {
		return false
	}
	e.recall = hash
	return true
}

func (x *index) forget(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.entries, uid)
}

// seen notes a cluster as it is and gives what it was.
func (x *index) seen(c *v1alpha1.Cluster) (was schedule.Cluster, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known = x.known[c.Name]
	x.known[c.Name] = schedule.ClusterOf(c)
	return was, known
}

func (x *index) gone(name string) (was schedule.Cluster, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known = x.known[name]
	delete(x.known, name)
	return was, known
}

// workloads of a revision, read once.
func (x *index) workloads(revision string, content *atoll.Content) ([]schedule.Workload, error) {
	if content == nil {
		return nil, nil
	}
	if w, ok := x.items.Get(revision); ok {
		return w.([]schedule.Workload), nil
	}
	w, err := workloadsOf(content)
	if err == nil {
		x.items.Add(revision, w)
	}
	return w, err
}

func (r *Reconciler) workClusters(ctx context.Context, q workqueue.TypedInterface[string]) {
	for {
		name, shutdown := q.Get()
		if shutdown {
			return
		}
		r.compare(ctx, name)
		q.Done(name)
	}
}

// compare a cluster with what it was, and look at the Bundles in which that makes
// a difference.
func (r *Reconciler) compare(ctx context.Context, name string) {
	c, ok := r.Clusters.Get(name)
	if !ok {
		if was, known := r.index.gone(name); known {
			r.touchRows(was.UID, name)
		}
		return
	}
	was, known := r.index.seen(c)
	is := schedule.ClusterOf(c)
	if !known {
		was = schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}}
	}
	if known && was.UID != is.UID {
		r.touchRows(was.UID, name)
	}
	if known && reflect.DeepEqual(was, is) {
		r.reachable(is)
		return
	}
	for _, uid := range r.differs(was, is) {
		r.index.touch(uid, name)
		r.now(uid)
	}
	if known && !reflect.DeepEqual(was.ClusterView, is.ClusterView) {
		r.revary(ctx, is)
	}
}

func (r *Reconciler) touchRows(clusterUID, name string) {
	for _, row := range r.Rows.OfCluster(clusterUID) {
		r.index.touch(row.Bundle.UID, name)
		r.now(row.Bundle.UID)
	}
}

// reachable: a stream came or went; that matters where something waits.
func (r *Reconciler) reachable(c schedule.Cluster) {
	for _, row := range r.Rows.OfCluster(c.UID) {
		if after, yes := r.index.awaits(row.Bundle.UID, row.Cluster); yes {
			r.add(row.Bundle.UID, priorityUser, after)
		}
	}
}

// differs lists the Bundles whose verdict on the cluster is not what it was.
func (r *Reconciler) differs(was, is schedule.Cluster) (uids []string) {
	r.index.mu.Lock()
	entries := make([]entry, 0, len(r.index.entries))
	for _, e := range r.index.entries {
		entries = append(entries, *e)
	}
	r.index.mu.Unlock()
	for _, e := range entries {
		if e.filter == nil {
			continue
		}
		var row *atoll.RowSpec
		if s, ok := r.Rows.Get(e.uid, is.Name); ok {
			row = &s.Spec
		}
		before, after := e.verdict(was, row), e.verdict(is, row)
		if row == nil && after.Outcome == schedule.Placed || row != nil && before != after {
			uids = append(uids, e.uid)
		}
	}
	return uids
}

// verdict on one cluster alone; comparable.
func (e entry) verdict(c schedule.Cluster, row *atoll.RowSpec) schedule.Verdict {
	in := schedule.Input{
		Bundle: e.uid, Placement: e.placement, Filter: e.filter, WhenUnfit: e.whenUnfit,
		Clusters: []schedule.Cluster{c},
	}
	if row != nil {
		in.Rows = map[string]atoll.RowSpec{c.Name: *row}
	}
	v, _ := schedule.Schedule(in).Verdict(c.Name)
	return v
}

// revary: other override rules may target the cluster now, which only matters to
// Bundles that have rows there.
func (r *Reconciler) revary(ctx context.Context, c schedule.Cluster) {
	for _, row := range r.Rows.OfCluster(c.UID) {
		target, ok := r.Revisions.Latest(row.Bundle.UID)
		if !ok {
			continue
		}
		// A content that cannot be read is the step's to complain about.
		if content, err := r.Revisions.Content(ctx, target.Name); err == nil && row.Spec.Revision == target.Name {
			if _, variant := render.Rules(content, c.ClusterView); variant == row.Spec.Variant {
				continue
			}
		}
		r.index.touch(row.Bundle.UID, c.Name)
		r.now(row.Bundle.UID)
	}
}
