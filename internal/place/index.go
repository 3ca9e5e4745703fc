package place

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
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
	// known clusters by name, as last compared. Steps decide on these and on nothing
	// newer: a change that is not compared yet would be taken for none when it is
	// undone before it is. stepping are the Bundles that a step is under way for.
	known    map[string]schedule.Cluster
	stepping map[string]bool
	roster   roster
	items    *lru.Cache // revision → []schedule.Workload
	pods     *lru.Cache // revision → int64, schedule.FixedPods
	// reserved counts, by cluster name, the pods of rows that steps under way are about to
	// write there and that no table shows yet, less those of rows that they take out.
	reserved map[string]int64
	movable  movables
	kinds    *lru.Cache // revision → []string, the kinds that it asks clusters for
	filters  *lru.Cache // hash of terms → compiled
	demands  *lru.Cache // revision → *schedule.Demand
	// failing Bundles are to go back to an earlier group; well are the clusters in touch,
	// as last compared.
	failing map[string]struct{}
	well    map[string]bool
}

type entry struct {
	uid       string
	terms     schedule.Terms
	whenUnfit v1alpha1.WhenUnfit
	filter    *schedule.Filter
	shared    *compiled
	hash      string // of the placement
	// complete: every cluster that fits has a row, but for those touched since. Never
	// where the placement chooses among them: then each step looks at all that fit, and
	// hungry tells whether one more that comes to fit could be chosen.
	complete bool
	hungry   bool
	// reserve of the last decision over all of the fleet, if it chose all it wanted.
	reserve   []string
	reserveAt time.Time
	// touched clusters, by the change that touched them last. change counts up, so
	// that a step knows what came after it began.
	touched map[string]uint64
	change  uint64
	// whole: the next step has to look at all rows; otherwise at those touched.
	// asked counts up with everything that asks for that, and due is when time does.
	whole bool
	asked uint64
	due   time.Time
	// placed is how many clusters fit and hold a row, at least.
	placed int
	// awaited clusters: something waits for their rows. During a step over all rows
	// anything may become awaited: stirred are the clusters whose rows change then.
	awaited  map[string]bool
	stirred  map[string]bool
	busy     bool
	rows     int
	plan     string
	recall   string
	intent   *intent
	failback failback
}

// intent is what a Bundle's table entry says to place.
type intent struct {
	spec     v1alpha1.BundleSpec
	confirm  string
	keep     string
	asked    string // to rebalance
	deleting bool
}

// view of an entry at the begin of a step.
type view struct {
	uid       string
	filter    *schedule.Filter
	placement string // hash
	complete  bool
	touched   map[string]bool
	change    uint64
	asked     uint64
	// part: only the rows of touched clusters have to be looked at. elsewhere is how
	// many others fit and hold a row, at least.
	part      bool
	elsewhere int
	// fleet in order, if all of it has to be looked at, and what Bundles of the same terms
	// know of it.
	fleet   []schedule.Cluster
	version uint64
	shared  *compiled
	// reserve, with the rows and what was touched, is all that has to be looked at for one
	// that chooses: as long as that comes to as many as are wanted.
	reserve  []string
	failback failback
	// explain: a verdict on every cluster is asked for.
	explain bool
}

func newIndex() *index {
	return &index{
		entries: map[string]*entry{}, known: map[string]schedule.Cluster{}, stepping: map[string]bool{},
		items: lru.New(1024), pods: lru.New(4096), kinds: lru.New(4096), filters: lru.New(1024), demands: lru.New(4096), reserved: map[string]int64{}, movable: newMovables(),
		failing: map[string]struct{}{}, well: map[string]bool{},
	}
}

// view of a Bundle. Terms that are not those that are remembered have to be compared
// with all of the fleet.
func (x *index) view(b state.Bundle, terms schedule.Terms, now time.Time) view {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entry(b.Ref.UID)
	if first := e.filter == nil; first || e.whenUnfit != b.Spec.WhenUnfit || !sameTerms(e.terms, terms) {
		x.mu.Unlock()
		c := x.compile(terms)
		x.mu.Lock()
		e = x.entry(b.Ref.UID)
		e.terms, e.whenUnfit, e.hash = terms, b.Spec.WhenUnfit, c.placement
		e.filter, e.shared, e.complete, e.whole, e.reserve = c.filter, c, false, true, nil
		is := failback{}
		if first {
			is = restored(b)
		}
		x.noteFailback(e, is)
	}
	v := view{
		uid: b.Ref.UID, filter: e.filter, placement: e.hash, complete: e.complete, failback: e.failback,
		touched: make(map[string]bool, len(e.touched)), change: e.change, asked: e.asked,
		part: e.complete && !e.whole && (e.due.IsZero() || now.Before(e.due)),
	}
	for c := range e.touched {
		v.touched[c] = true
	}
	if v.part {
		v.elsewhere = max(e.placed-len(v.touched), 0)
		return v
	}
	e.busy, e.whole, e.stirred = true, true, nil
	if len(e.reserve) > 0 && now.Sub(e.reserveAt) < reserveAge {
		v.reserve = e.reserve
	} else if !v.complete && v.filter.Names() == nil {
		v.fleet, v.shared = x.roster.all(x.known), e.shared
		v.version = x.roster.version
	}
	return v
}

// whole asks for a step that looks at all rows of a Bundle.
func (x *index) whole(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		e.ask()
	}
}

// incomplete: clusters of which nothing was heard may have a part in the Bundle now.
func (x *index) incomplete(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		e.complete = false
		e.ask()
	}
}

func (e *entry) ask() {
	e.whole = true
	e.asked++
}

func (x *index) entry(uid string) *entry {
	e := x.entries[uid]
	if e == nil {
		e = &entry{uid: uid, touched: map[string]uint64{}, whole: true}
		x.entries[uid] = e
	}
	return e
}

// begin a step of a Bundle; it ends when what it wrote can be read.
func (x *index) begin(uid string) (end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stepping[uid] = true
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.stepping, uid)
	}
}

// underWay lists the Bundles of which a step may have read a cluster as it was before
// the last change that was seen. Whether one makes a difference to them cannot be told
// from their rows, which that step may be about to write.
func (x *index) underWay() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.stepping))
}

// clusters of these names as last compared, in the order of the names.
func (x *index) clusters(names []string) []schedule.Cluster {
	out := make([]schedule.Cluster, 0, len(names))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		if c, ok := x.known[name]; ok {
			out = append(out, c)
		}
	}
	return out
}

// edited notes what the Bundle says and tells whether that is new.
func (x *index) edited(b state.Bundle) bool {
	notes := b.Meta.Annotations
	is := &intent{b.Spec, notes[atoll.AnnotationConfirm], notes[atoll.AnnotationKeep], notes[atoll.AnnotationRebalance], b.Meta.DeletionTimestamp != nil}
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entry(b.Ref.UID)
	was := e.intent
	e.intent = is
	return was == nil || !reflect.DeepEqual(was, is)
}

// written is what a step came to.
type written struct {
	out rollout.Output
	// rows that there are now, and clusters of them that fit: of all, or of a step in
	// part only of those that were touched.
	rows, placed int
	// could: it could place, so that all that fit have a row now.
	could bool
	// hungry: of clusters that come to fit, one may be chosen.
	hungry   bool
	standing *schedule.Standing
	bundle   state.Bundle
	reserve  []string
	failback failback
}

// done notes that a step over all rows was written. again: a row changed meanwhile
// for which something waits now, and the next step may be put off for more such news.
func (x *index) done(v view, w written) (after time.Duration, again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[v.uid]
	if e == nil || e.filter != v.filter {
		return 0, false
	}
	e.busy, e.rows, e.placed, e.awaited = false, w.rows, w.placed, map[string]bool{}
	for _, c := range w.out.Awaited {
		e.awaited[c] = true
		again = again || e.stirred[c]
	}
	if e.stirred = nil; w.out.Plan == nil {
		e.plan = ""
	}
	e.due, e.complete, e.hungry = w.out.RequeueAt, w.could && !e.filter.Chooses() && !e.filter.Grouped(), w.hungry
	x.stands(e, w)
	if v.reserve == nil && !e.filter.Grouped() {
		e.reserve, e.reserveAt = w.reserve, time.Now()
	}
	x.noteFailback(e, w.failback)
	if e.whole = e.asked != v.asked || !w.could || !w.out.Quiet; w.could {
		e.forgetTouches(v)
	}
	return e.patience(awaitRow), again
}

// doneInPart notes that a step over the touched rows was written.
func (x *index) doneInPart(v view, w written) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[v.uid]
	if e == nil || e.filter != v.filter {
		return
	}
	e.rows, e.placed = e.rows+w.rows, v.elsewhere+w.placed
	if at := w.out.RequeueAt; !at.IsZero() && (e.due.IsZero() || at.Before(e.due)) {
		e.due = at
	}
	e.forgetTouches(v)
}

// forgetTouches that the step has seen.
func (e *entry) forgetTouches(v view) {
	maps.DeleteFunc(e.touched, func(_ string, change uint64) bool { return change <= v.change })
}

// touch a cluster: its part in the Bundle may have changed. after is how long the look
// at it may be put off for more of them to come.
func (x *index) touch(uid, cluster string) (after time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return 0
	}
	e.change++
	if e.touched[cluster] = e.change; e.whole {
		return e.patience(awaitRow)
	}
	return min(e.patience(touchRow), touchMost)
}

// The patience with Bundles of many rows: so much per row, from patientRows on.
const (
	patientRows = 200
	// awaitRow: a step looks at all rows, so that many news about a large Bundle are
	// better looked at together.
	awaitRow = 50 * time.Microsecond
	// touchRow: a step costs what is touched, and writes whole slices; at most
	// touchMost in all.
	touchRow  = 100 * time.Microsecond
	touchMost = time.Second
)

func (e *entry) patience(row time.Duration) time.Duration {
	if e.rows <= patientRows {
		return 0
	}
	return time.Duration(e.rows) * row
}

// awaits tells whether something in the Bundle waits for one of the clusters, and how
// long a step may be put off for more such news to come.
func (x *index) awaits(uid string, clusters ...string) (after time.Duration, yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return 0, true
	}
	if e.busy {
		if e.stirred == nil {
			e.stirred = map[string]bool{}
		}
		for _, c := range clusters {
			e.stirred[c] = true
		}
	}
	yes = slices.ContainsFunc(clusters, func(c string) bool { return e.awaited[c] })
	if yes {
		e.ask()
	}
	return e.patience(awaitRow), yes
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
	x.movable.forget(uid)
	delete(x.failing, uid)
}

// seen notes a cluster as it is and gives what it was.
func (x *index) seen(c schedule.Cluster) (was schedule.Cluster, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known = x.known[c.Name]
	x.known[c.Name] = c
	x.roster.changed(c.Name)
	return was, known
}

func (x *index) gone(name string) (was schedule.Cluster, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known = x.known[name]
	delete(x.known, name)
	x.roster.changed(name)
	return was, known
}

// fixedPods of a revision, counted once.
func (x *index) fixedPods(revision string, content *atoll.Content) int64 {
	if content == nil {
		return 0
	}
	if n, ok := x.pods.Get(revision); ok {
		return n.(int64)
	}
	n := schedule.FixedPods(content)
	x.pods.Add(revision, n)
	return n
}

// workloads of a revision, read once.
func (x *index) workloads(revision string, content *atoll.Content) ([]schedule.Workload, error) {
	if content == nil {
		return nil, nil
	}
	if w, ok := x.items.Get(revision); ok {
		return w.([]schedule.Workload), nil
	}
	w, err := schedule.WorkloadsOf(content)
	if err == nil {
		x.items.Add(revision, w)
	}
	return w, err
}
