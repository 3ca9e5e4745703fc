package bundlestatus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	List() []state.Bundle
	InNamespace(ns string) []state.Bundle
	Put(obj client.Object)
	Subscribe(fn func(uid string))
}

// Rows is the table of rows.
type Rows interface {
	BundlesWithRows() []string
	Get(bundleUID, cluster string) (state.Row, bool)
	ListOfBundle(uid string) []state.Row
	ListOfCluster(clusterUID string) []state.Row
	Subscribe(fn func(bundleUID string, clusters []string))
}

// RowSlices are the objects that store rows.
type RowSlices interface {
	EmptySlices(bundleUID string) (empty []*enginev1.TargetSlice, all int)
	WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	GetByUID(uid string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	IsOnline(uid string) bool
	Subscribe(fn func(name string))
}

// Revisions is the table of Revisions, and how old ones are deleted.
type Revisions interface {
	OfBundle(uid string) []*enginev1.Revision
	GetContent(ctx context.Context, name string) (*atoll.Content, error)
	DropRevisions(ctx context.Context, revisions []*enginev1.Revision) error
	DropAll(ctx context.Context, bundleUID string) error
	Subscribe(fn func(bundleUID string))
}

// Templates is the table of templates.
type Templates interface {
	Get(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	ResourceOfKey(key atoll.ItemKey) (schema.GroupVersionResource, bool)
	Subscribe(fn func(key atoll.ItemKey))
}

// Namespaces is the table of namespaces.
type Namespaces interface {
	Get(name string) (*corev1.Namespace, bool)
	Subscribe(fn func(name string))
}

// Hub reports whether the hub holds.
type Hub interface {
	HoldReason() (reason string, holding bool)
	GenerationFloor() int64
	Subscribe(fn func())
}

// Intent answers what users state; bind's own way to prune answers it.
type Intent interface {
	// StatesItem reports whether the template, as it is here, states exactly the item's
	// content.
	StatesItem(template *unstructured.Unstructured, item *atoll.Item) bool
}

// Config of a Reconciler. All but Quarantines, OnShown, StatusWrites, Workers and Log must be set.
type Config struct {
	Bundles    Bundles
	Rows       Rows
	RowSlices  RowSlices
	Clusters   Clusters
	Revisions  Revisions
	Templates  Templates
	Namespaces Namespaces
	Hub        Hub
	Intent     Intent
	Writer     Writer
	Events     Events
	// Quarantines; nil: no Revision is set aside.
	Quarantines Quarantines
	// OnShown is called after the statuses of a Bundle and of its templates are up to date; nil: it
	// is not called.
	OnShown func(bundleUID string)
	// StatusWrites counts written statuses by object and cause; nil: they are not counted.
	StatusWrites *prometheus.CounterVec
	// Log; nil: slog's default.
	Log *slog.Logger
	// Traces of changes; nil: none are recorded.
	Traces *tracing.Tracer
	// Workers that look at Bundles at the same time; default 24: they
	// mostly wait for the store.
	Workers int
}

// Reconciler of all Bundles' statuses and leftovers.
type Reconciler struct {
	Config
	index *index
	loop  *reconcile.Loop[work]

	mu      sync.Mutex
	early   []atoll.ItemKey   // templates that changed before Run
	memos   map[string]*memo  // by Bundle UID
	cluster map[string]string // Cluster UID by name
	started time.Time         // of Run; zero before

	// aggregate is script.Interpreters.AggregateStatus; tests count what it is asked.
	aggregate func(known script.Interpreters, template *unstructured.Unstructured, divided bool, rows []kinds.RowItem, observed, notAfter int64) (map[string]any, bool, error)

	upkeep *pace.Limiter
	// unplacedEvents limits Events about what has no place.
	unplacedEvents *pace.Limiter

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

// New makes a Reconciler and subscribes it to the tables.
func New(cfg Config) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.OnShown == nil {
		cfg.OnShown = func(string) {}
	}
	if cfg.StatusWrites == nil {
		cfg.StatusWrites = metrictable.StatusWrites.NewCounterVec()
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 24
	}
	r := &Reconciler{
		Config: cfg, index: newIndex(),
		memos: map[string]*memo{}, cluster: map[string]string{}, rolls: map[string]*roll{},
		aggregate: script.Interpreters.AggregateStatus, upkeep: pace.StatusWrites.NewLimiter(), unplacedEvents: pace.UnplacedEvents.NewLimiter(),
	}
	r.loop = reconcile.New(reconcile.Options[work]{
		Name: "bundlestatus", Reconcile: r.processWork, Failed: r.logFailure, Panicked: r.warnPanicked, Workers: cfg.Workers,
		Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[work](50*time.Millisecond, time.Minute),
	})
	cfg.Bundles.Subscribe(r.bundleChanged)
	cfg.Rows.Subscribe(r.rowsChanged)
	cfg.Revisions.Subscribe(r.enqueueDebounced)
	cfg.Clusters.Subscribe(r.clusterChanged)
	cfg.Templates.Subscribe(r.templateChanged)
	cfg.Namespaces.Subscribe(r.namespaceChanged)
	cfg.Hub.Subscribe(r.enqueueAll)
	if cfg.Quarantines != nil {
		cfg.Quarantines.Subscribe(func(b enginev1.BundleRef, _ quarantine.Quarantine) { r.enqueueDebounced(b.UID) })
	}
	return r
}

// Run works until ctx ends. It is called once, when the typed tables are synced.
func (r *Reconciler) Run(ctx context.Context) error {
	r.start()
	r.loop.Run(ctx, r.enqueueAll)
	return nil
}

// start accepts keys, and notes the clusters that there are.
func (r *Reconciler) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = time.Now()
	r.loop.AcceptKeys()
	for _, key := range r.early {
		r.loop.EnqueueNow(work{template: key})
	}
	r.early = nil
	r.index.resetExpected()
	for _, c := range r.Clusters.List() {
		uid := string(c.UID)
		r.cluster[c.Name] = uid
		r.index.hasLinkChanged(uid, r.clusterLinks)
	}
}

// enqueueAll enqueues everything, behind changes that come in between.
func (r *Reconciler) enqueueAll() {
	for _, b := range r.Bundles.List() {
		r.index.expectLook(b.Ref.UID)
		r.loop.EnqueueRecheck(work{bundle: b.Ref.UID}, 0)
	}
	for _, uid := range r.Rows.BundlesWithRows() {
		r.index.expectLook(uid)
		r.loop.EnqueueRecheck(work{bundle: uid}, 0)
	}
}

// enqueueDebounced looks at a Bundle when further changes have had time to join this one. Run goes
// through all Bundles by itself, so that changes before it are dropped.
func (r *Reconciler) enqueueDebounced(uid string) {
	r.loop.EnqueueAfter(work{bundle: uid}, min(settle+time.Duration(r.index.rowCount(uid))*settleRow, settleMost))
}

// enqueueTemplate looks at a template that no Bundle holds.
func (r *Reconciler) enqueueTemplate(key atoll.ItemKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started.IsZero() {
		r.early = append(r.early, key)
		return
	}
	r.loop.EnqueueAfter(work{template: key}, settle)
}

func (r *Reconciler) rowsChanged(uid string, clusters []string) {
	r.index.expectLook(uid)
	r.markRowsChanged(uid, clusters...)
	if r.isComplete(uid) {
		r.loop.EnqueueNow(work{bundle: uid})
	} else {
		r.enqueueDebounced(uid)
	}
}

// isComplete reports whether each row of a small Bundle is Ready: nothing more is to join its status.
func (r *Reconciler) isComplete(uid string) bool {
	if n := r.index.rowCount(uid); n == 0 || n > state.SmallBundle { // as of the last look
		return false
	}
	return state.AllReady(r.Rows.ListOfBundle(uid))
}

// bundleChanged looks at a Bundle unless only its status changed.
func (r *Reconciler) bundleChanged(uid string) {
	b, ok := r.Bundles.Get(uid)
	if ok {
		r.index.expectLook(uid)
	}
	if !ok || r.index.hasBundleChanged(b) {
		r.enqueueDebounced(uid)
	}
}

// clusterChanged looks at the Bundles of a cluster that came, went, or can be
// reached or not any more; if only its stream came or went, at those of them where
// a removal waits.
func (r *Reconciler) clusterChanged(name string) {
	r.mu.Lock()
	// Under the lock, so that of two calls the later one notes what is newer.
	c, ok := r.Clusters.Get(name)
	running := !r.started.IsZero()
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
		if reachable, stream := r.index.hasLinkChanged(now, r.clusterLinks); reachable || stream || was != now {
			r.lookAt(now, !reachable && was == now)
		}
	}
}

// lookAt enqueues the Bundles of a cluster, or those of them where a removal waits; the others
// see it at their next look.
func (r *Reconciler) lookAt(clusterUID string, waiting bool) {
	for _, row := range r.Rows.ListOfCluster(clusterUID) {
		r.markRowsChanged(row.Bundle.UID, row.Cluster)
		if !waiting || r.index.hasWaitingRemoval(row.Bundle.UID) {
			r.enqueueDebounced(row.Bundle.UID)
		}
	}
}

// templateChanged looks at the Bundles that hold a template when more than its
// status changed, and at a template that is being deleted though no Bundle holds it.
func (r *Reconciler) templateChanged(key atoll.ItemKey) {
	t, ok := r.Templates.Get(key)
	if ok && !r.index.hasTemplateChanged(key, t) {
		return
	}
	holders := r.index.templateHolders(key)
	for _, uid := range holders {
		r.enqueueDebounced(uid)
	}
	if len(holders) == 0 && ok && isTemplateLeaving(t) {
		r.enqueueTemplate(key)
	}
}

// namespaceChanged looks at the Bundles of a namespace that is being deleted, and at
// where namespaces of that name stay.
func (r *Reconciler) namespaceChanged(name string) {
	for _, uid := range r.index.vacantNamespaces(name) {
		if ns, ok := r.Namespaces.Get(name); !ok || string(ns.UID) != uid || ns.DeletionTimestamp != nil {
			r.enqueueDebounced(uid)
		}
	}
	if !r.isNamespaceDoomed(name) {
		return
	}
	for _, b := range r.Bundles.InNamespace(name) {
		r.enqueueDebounced(b.Ref.UID)
	}
}

func (r *Reconciler) isNamespaceDoomed(namespace string) bool {
	ns, ok := r.Namespaces.Get(namespace)
	return ok && ns.DeletionTimestamp != nil
}

func (r *Reconciler) logFailure(w work, err error) {
	if !errors.Is(err, state.ErrRowsMoved) && !apierrors.IsConflict(err) {
		r.Log.Warn("a status or a leftover could not be brought up to date, trying again", "bundle", w.bundle, "template", w.template.String(), "err", err)
	}
}

// warnPanicked sends an Event about a Bundle whose status could not be computed. The groups of
// its rows are dropped, because the panic may have changed a part of them.
func (r *Reconciler) warnPanicked(_ context.Context, w work, p *reconcile.Panic) {
	if w.bundle == "" {
		return
	}
	r.forgetRoll(w.bundle)
	if b, ok := r.Bundles.Get(w.bundle); ok && !p.IsRepeated {
		r.Events.Warn(b.Ref, atoll.ReasonReconcilePanicked, "its status cannot be computed by a defect of Atoll: the status is old, and the hub tries again; its log has the place")
	}
}

// forgetRoll drops the groups of a Bundle's rows. They are made again of the table.
func (r *Reconciler) forgetRoll(uid string) {
	r.rollsMu.Lock()
	defer r.rollsMu.Unlock()
	delete(r.rolls, uid)
}

// processWork looks at one thing; again is when to look next, 0: when something changes.
func (r *Reconciler) processWork(ctx context.Context, w work) (again time.Duration, err error) {
	if w.bundle == "" {
		return r.releaseUnheld(ctx, w.template)
	}
	return r.reconcileBundle(ctx, w.bundle)
}

// reconcileBundle reconciles one Bundle. A panic while a status is computed does not stop the
// release of what members have confirmed, so that people can delete the Bundle.
func (r *Reconciler) reconcileBundle(ctx context.Context, uid string) (again time.Duration, err error) {
	s, err := r.gatherSnapshot(ctx, uid)
	if err != nil {
		return 0, err
	}
	if s.isEmpty() {
		r.forgetBundle(uid)
		return 0, nil
	}
	m := r.memoOf(uid)
	m.again = 0
	errs := []error{
		reconcile.Contain(func() error { return r.writeBundle(ctx, s, m) }),
		reconcile.Contain(func() error { return r.writeTemplates(ctx, s, m) }),
	}
	if errors.Join(errs...) == nil {
		r.OnShown(uid)
	}
	errs = append(errs, reconcile.Contain(func() error { r.recordRefusals(s, m); return nil }))
	if _, holding := r.Hub.HoldReason(); !holding {
		errs = append(errs, r.release(ctx, s, m), r.collectGarbage(ctx, s, m))
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
	// unplaced records the Events about missing places.
	unplaced untold
	// quarantinedUntil is the end of the quarantine about which the last Event was.
	quarantinedUntil time.Time
	// collecting: since when rows wait to be collected.
	collecting time.Time
	// again is when to look next, of all that wait.
	again time.Duration
}

// wake requests another look after d.
func (m *memo) wake(d time.Duration) {
	if m.again == 0 || d < m.again {
		m.again = max(d, time.Millisecond)
	}
}

func (r *Reconciler) memoOf(uid string) *memo {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memos[uid]
	if m == nil {
		m = &memo{templates: map[string]*templateMemo{}, refused: map[refusal]time.Time{}}
		r.memos[uid] = m
	}
	return m
}

func (r *Reconciler) forgetBundle(uid string) {
	r.lookAtUnheld(r.index.forgetBundle(uid))
	r.forgetRoll(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memos, uid)
}
