package summarise

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	limit "golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/state"
)

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	List() []state.Bundle
	InNamespace(ns string) []state.Bundle
	Put(obj client.Object)
	Subscribe(fn func(uid string))
}

// Rows is the table of rows, and how they are taken away.
type Rows interface {
	Bundles() []string
	Get(bundleUID, cluster string) (state.Row, bool)
	OfBundle(uid string) []state.Row
	OfCluster(clusterUID string) []state.Row
	EmptySlices(bundleUID string) (empty []*enginev1.TargetSlice, all int)
	WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error
	Subscribe(fn func(bundleUID string, clusters []string))
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	ByUID(uid string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Online(uid string) bool
	Subscribe(fn func(name string))
}

// Revisions is the table of Revisions, and how old ones are deleted.
type Revisions interface {
	OfBundle(uid string) []*enginev1.Revision
	Content(ctx context.Context, name string) (*atoll.Content, error)
	Drop(ctx context.Context, revisions []*enginev1.Revision) error
	DropAll(ctx context.Context, bundleUID string) error
	Subscribe(fn func(bundleUID string))
}

// Templates is the table of templates.
type Templates interface {
	Get(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	Resource(key atoll.ItemKey) (schema.GroupVersionResource, bool)
	Subscribe(fn func(key atoll.ItemKey))
}

// Namespaces is the table of namespaces.
type Namespaces interface {
	Get(name string) (*corev1.Namespace, bool)
	Subscribe(fn func(name string))
}

// Hub says whether the hub holds.
type Hub interface {
	Holding() (reason string, holding bool)
	GenerationFloor() int64
	Subscribe(fn func())
}

// Intent answers what users state; bind's own way to prune answers it.
type Intent interface {
	// States tells whether the template, as it is here, states exactly the item's
	// content.
	States(template *unstructured.Unstructured, item *atoll.Item) bool
}

// Config of a Reconciler. All but Workers and Log must be set.
type Config struct {
	Bundles    Bundles
	Rows       Rows
	Clusters   Clusters
	Revisions  Revisions
	Templates  Templates
	Namespaces Namespaces
	Hub        Hub
	Intent     Intent
	Writer     Writer
	Events     Events
	// Log; nil: slog's default.
	Log *slog.Logger
	// Workers that look at Bundles at the same time; default 24: they
	// mostly wait for the store.
	Workers int
}

// Reconciler of all Bundles' statuses and leftovers.
type Reconciler struct {
	Config
	index *index

	mu      sync.Mutex
	queue   priorityqueue.PriorityQueue[work] // nil before Run
	early   map[work]struct{}                 // templates that came before Run
	memos   map[string]*memo                  // by Bundle UID
	cluster map[string]string                 // Cluster UID by name
	started time.Time

	// aggregate is script.Interpreters.Aggregate; tests count what it is asked.
	aggregate func(known script.Interpreters, template *unstructured.Unstructured, divided bool, rows []interpret.RowItem, observed int64) (map[string]any, bool, error)

	upkeep *limit.Limiter
	// unplacedPace is that of Events about what has no place.
	unplacedPace *limit.Limiter

	rollsMu sync.Mutex
	rolls   map[string]*roll // by Bundle UID
}

// work is one thing to look at: a Bundle, or a template that no Bundle holds.
type work struct {
	bundle   string
	template atoll.ItemKey
}

// The paces.
const (
	// settle is how long further changes may join one.
	settle = 150 * time.Millisecond
	// settleRow is added per row of the Bundle, up to settleMost.
	settleRow  = 100 * time.Microsecond
	settleMost = 2 * time.Second
	// graceAtStart is how long a cluster that was Ready when the hub started counts
	// as reachable without a stream.
	graceAtStart = 40 * time.Second
)

const (
	priorityUser = 0
	priorityAll  = -100
)

// New makes a Reconciler and subscribes it to the tables.
func New(cfg Config) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 24
	}
	r := &Reconciler{
		Config: cfg, index: newIndex(), early: map[work]struct{}{},
		memos: map[string]*memo{}, cluster: map[string]string{}, rolls: map[string]*roll{},
		aggregate: script.Interpreters.Aggregate, upkeep: newUpkeep(), unplacedPace: newUnplacedPace(),
	}
	cfg.Bundles.Subscribe(r.bundleChanged)
	cfg.Rows.Subscribe(r.rowsChanged)
	cfg.Revisions.Subscribe(r.soon)
	cfg.Clusters.Subscribe(r.clusterChanged)
	cfg.Templates.Subscribe(r.templateChanged)
	cfg.Namespaces.Subscribe(r.namespaceChanged)
	cfg.Hub.Subscribe(func() { r.all() })
	return r
}

// Run until ctx ends. It is called once, when the typed tables are synced.
func (r *Reconciler) Run(ctx context.Context) error {
	queue := r.open()
	r.all()
	var done sync.WaitGroup
	for range r.Workers {
		done.Go(func() { r.work(ctx, queue) })
	}
	<-ctx.Done()
	queue.ShutDown()
	done.Wait()
	return nil
}

func (r *Reconciler) open() priorityqueue.PriorityQueue[work] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = time.Now()
	r.queue = priorityqueue.New("summarise", func(o *priorityqueue.Opts[work]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[work](50*time.Millisecond, time.Minute)
	})
	for w := range r.early {
		r.queue.Add(w)
	}
	r.early = nil
	r.index.begin()
	for _, c := range r.Clusters.List() {
		uid := string(c.UID)
		r.cluster[c.Name] = uid
		r.index.turned(uid, r.looks)
	}
	return r.queue
}

// all goes through everything that there is, behind what changes meanwhile.
func (r *Reconciler) all() {
	for _, b := range r.Bundles.List() {
		r.index.expect(b.Ref.UID)
		r.add(work{bundle: b.Ref.UID}, priorityAll, 0)
	}
	for _, uid := range r.Rows.Bundles() {
		r.index.expect(uid)
		r.add(work{bundle: uid}, priorityAll, 0)
	}
}

func (r *Reconciler) add(w work, priority int, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue == nil {
		if w.bundle == "" { // Run goes through all Bundles by itself
			r.early[w] = struct{}{}
		}
		return
	}
	r.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, w)
}

// soon looks at a Bundle when further changes have had time to join this one.
func (r *Reconciler) soon(uid string) {
	after := min(settle+time.Duration(r.index.rows(uid))*settleRow, settleMost)
	r.add(work{bundle: uid}, priorityUser, after)
}

func (r *Reconciler) rowsChanged(uid string, clusters []string) {
	r.index.expect(uid)
	r.note(uid, clusters...)
	r.soon(uid)
}

// bundleChanged looks at a Bundle unless only its status changed.
func (r *Reconciler) bundleChanged(uid string) {
	b, ok := r.Bundles.Get(uid)
	if ok {
		r.index.expect(uid)
	}
	if !ok || r.index.edited(b) {
		r.soon(uid)
	}
}

// clusterChanged looks at the Bundles of a cluster that came, went, or can be
// reached or not any more; if only its stream came or went, at those of them where
// a removal waits.
func (r *Reconciler) clusterChanged(name string) {
	r.mu.Lock()
	// Under the lock, so that of two calls the later one notes what is newer.
	c, ok := r.Clusters.Get(name)
	running := r.queue != nil
	was := r.cluster[name]
	if delete(r.cluster, name); ok {
		r.cluster[name] = string(c.UID)
	}
	now := r.cluster[name]
	r.mu.Unlock()
	if !running {
		return
	}
	if was != "" && was != now {
		r.lookAt(was, false)
	}
	if now != "" {
		if reachable, stream := r.index.turned(now, r.looks); reachable || stream || was != now {
			r.lookAt(now, !reachable && was == now)
		}
	}
}

// lookAt the Bundles of a cluster, or those of them where a removal waits; the others
// see it at their next look.
func (r *Reconciler) lookAt(clusterUID string, waiting bool) {
	for _, row := range r.Rows.OfCluster(clusterUID) {
		r.note(row.Bundle.UID, row.Cluster)
		if !waiting || r.index.waiting(row.Bundle.UID) {
			r.soon(row.Bundle.UID)
		}
	}
}

// templateChanged looks at the Bundles that hold a template when more than its
// status changed, and at a template that is being deleted though no Bundle holds it.
func (r *Reconciler) templateChanged(key atoll.ItemKey) {
	t, ok := r.Templates.Get(key)
	if ok && !r.index.moved(key, t) {
		return
	}
	holders := r.index.holders(key)
	for _, uid := range holders {
		r.soon(uid)
	}
	if len(holders) == 0 && ok && leaving(t) {
		r.add(work{template: key}, priorityUser, settle)
	}
}

// namespaceChanged looks at the Bundles of a namespace that is being deleted, and at
// where namespaces of that name stay.
func (r *Reconciler) namespaceChanged(name string) {
	for _, uid := range r.index.vacant(name) {
		if ns, ok := r.Namespaces.Get(name); !ok || string(ns.UID) != uid || ns.DeletionTimestamp != nil {
			r.soon(uid)
		}
	}
	if !r.doomed(name) {
		return
	}
	for _, b := range r.Bundles.InNamespace(name) {
		r.soon(b.Ref.UID)
	}
}

func (r *Reconciler) doomed(namespace string) bool {
	ns, ok := r.Namespaces.Get(namespace)
	return ok && ns.DeletionTimestamp != nil
}

func (r *Reconciler) work(ctx context.Context, queue priorityqueue.PriorityQueue[work]) {
	for {
		w, priority, shutdown := queue.GetWithPriority()
		if shutdown {
			return
		}
		again, err := r.do(ctx, w)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !errors.Is(err, state.ErrRowsMoved) && !apierrors.IsConflict(err) {
				r.Log.Warn("a status or a leftover could not be brought up to date, trying again", "bundle", w.bundle, "template", w.template.String(), "err", err)
			}
			queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, RateLimited: true}, w)
		default:
			queue.Forget(w)
			if again > 0 {
				queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: again}, w)
			}
		}
		queue.Done(w)
	}
}

// do looks at one thing; again is when to look next, 0: when something changes.
func (r *Reconciler) do(ctx context.Context, w work) (again time.Duration, err error) {
	if w.bundle == "" {
		return r.releaseUnheld(ctx, w.template)
	}
	return r.reconcile(ctx, w.bundle)
}

// reconcile one Bundle.
func (r *Reconciler) reconcile(ctx context.Context, uid string) (again time.Duration, err error) {
	s, err := r.gather(ctx, uid)
	if err != nil {
		return 0, err
	}
	if s.empty() {
		r.forget(uid)
		return 0, nil
	}
	m := r.memo(uid)
	m.again = 0
	errs := []error{r.writeBundle(ctx, s, m), r.writeTemplates(ctx, s, m)}
	r.warn(s, m)
	if _, holding := r.Hub.Holding(); !holding {
		errs = append(errs, r.release(ctx, s, m), r.collect(ctx, s, m))
	}
	return m.again, errors.Join(errs...)
}

// memo is what is remembered of a Bundle between two looks. One worker at a time
// has it.
type memo struct {
	// due is when the Bundle's status may be written.
	due due
	// templates by UID.
	templates map[string]*templateMemo
	// refused: since when a refusal is known.
	refused map[refusal]time.Time
	// failures of scripts that join, by the template's UID; the Reconciler's lock is over them.
	failures map[string]failure
	// unplaced: which Events told that something has no place.
	unplaced untold
	// collecting: since when rows wait to be collected.
	collecting time.Time
	// again is when to look next, of all that wait.
	again time.Duration
}

// wake asks for another look after d.
func (m *memo) wake(d time.Duration) {
	if m.again == 0 || d < m.again {
		m.again = max(d, time.Millisecond)
	}
}

func (r *Reconciler) memo(uid string) *memo {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memos[uid]
	if m == nil {
		m = &memo{templates: map[string]*templateMemo{}, refused: map[refusal]time.Time{}}
		r.memos[uid] = m
	}
	return m
}

func (r *Reconciler) forget(uid string) {
	r.lookAtUnheld(r.index.forget(uid))
	r.rollsMu.Lock()
	delete(r.rolls, uid)
	r.rollsMu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memos, uid)
}
