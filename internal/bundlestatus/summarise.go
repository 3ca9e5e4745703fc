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
	"atoll.dev/atoll/internal/schedule"
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

// Settings are the hub's settings.
type Settings interface {
	// Freeze returns the freeze of all changes, which may have ended; nil: there is none.
	Freeze() *v1alpha1.ChangeFreeze
	Subscribe(fn func(name string))
}

// ItemMatcher answers what users state; bind's own way to prune answers it.
type ItemMatcher interface {
	// StatesItem reports whether the template, as it is here, states exactly the item's
	// content.
	StatesItem(template *unstructured.Unstructured, item *atoll.Item) bool
}

// Config of a Reconciler. All but Settings, Quarantines, OnShown, StatusWrites, Workers and Log must be set.
type Config struct {
	Bundles    Bundles
	Rows       Rows
	RowSlices  RowSlices
	Clusters   Clusters
	Revisions  Revisions
	Templates  Templates
	Namespaces Namespaces
	Hub        Hub
	// Settings with a freeze of all changes; nil: there is none.
	Settings Settings
	Intent   ItemMatcher
	Writer   Writer
	Events   Events
	// Quarantines; nil: no Revision is set aside.
	Quarantines Quarantines
	// OnShown is called after the statuses of a Bundle and of its templates are up to date; nil: it
	// is not called.
	OnShown func(bundleUID string)
	// ExplainShortage returns in words when one more replica of a workload fits in a cluster of the Bundle's rows; empty:
	// it is not known. nil: it never is.
	ExplainShortage func(bundleUID string, w *schedule.Workload) string
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

// BundleReconciler reconciles all Bundles' statuses and leftovers.
type BundleReconciler struct {
	Config
	index *bundleIndex
	loop  *reconcile.Loop[workItem]

	mu      sync.Mutex
	early   []atoll.ItemKey        // templates that changed before Run
	memos   map[string]*bundleMemo // by Bundle UID
	cluster map[string]string      // Cluster UID by name
	started time.Time              // of Run; zero before

	// aggregate is script.Interpreters.AggregateStatus; tests count its calls.
	aggregate func(known script.Interpreters, template *unstructured.Unstructured, divided bool, rows []kinds.RowItem, observed, notAfter int64) (map[string]any, bool, error)

	upkeep *pace.Limiter
	// unplacedEvents limits Events about what has no place.
	unplacedEvents *pace.Limiter

	rollsMu sync.Mutex
	rolls   map[string]*rowGroups // by Bundle UID
}

// workItem is one thing to look at: a Bundle, or a template that no Bundle holds.
type workItem struct {
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
func New(cfg Config) *BundleReconciler {
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
	r := &BundleReconciler{
		Config: cfg, index: newBundleIndex(),
		memos: map[string]*bundleMemo{}, cluster: map[string]string{}, rolls: map[string]*rowGroups{},
		aggregate: script.Interpreters.AggregateStatus, upkeep: pace.StatusWrites.NewLimiter(), unplacedEvents: pace.UnplacedEvents.NewLimiter(),
	}
	r.loop = reconcile.New(reconcile.Options[workItem]{
		Name: "bundlestatus", Reconcile: r.processWork, Failed: r.logFailure, Panicked: r.handleReconcilePanic, Workers: cfg.Workers,
		Backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[workItem](50*time.Millisecond, time.Minute),
	})
	cfg.Bundles.Subscribe(r.bundleChanged)
	cfg.Rows.Subscribe(r.rowsChanged)
	cfg.Revisions.Subscribe(r.enqueueDebounced)
	cfg.Clusters.Subscribe(r.clusterChanged)
	cfg.Templates.Subscribe(r.templateChanged)
	cfg.Namespaces.Subscribe(r.namespaceChanged)
	cfg.Hub.Subscribe(r.enqueueAllBundles)
	if cfg.Settings != nil {
		cfg.Settings.Subscribe(r.freezeChanged)
	}
	if cfg.Quarantines != nil {
		cfg.Quarantines.Subscribe(func(b enginev1.BundleRef, _ quarantine.Quarantine) { r.enqueueDebounced(b.UID) })
	}
	return r
}

// Run works until ctx ends. It is called once, when the typed tables are synced.
func (r *BundleReconciler) Run(ctx context.Context) error {
	r.startAcceptingKeys()
	r.loop.Run(ctx, r.enqueueAllBundles)
	return nil
}

// startAcceptingKeys accepts keys, and notes the clusters that there are.
func (r *BundleReconciler) startAcceptingKeys() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = time.Now()
	r.loop.AcceptKeys()
	for _, key := range r.early {
		r.loop.EnqueueNow(workItem{template: key})
	}
	r.early = nil
	r.index.clearUnreconciled()
	for _, c := range r.Clusters.List() {
		uid := string(c.UID)
		r.cluster[c.Name] = uid
		r.index.recordLinkChange(uid, r.clusterLinks)
	}
}

// enqueueAllBundles enqueues everything, behind changes that come in between.
func (r *BundleReconciler) enqueueAllBundles() {
	for _, b := range r.Bundles.List() {
		r.index.markUnreconciled(b.Ref.UID)
		r.loop.EnqueueRecheck(workItem{bundle: b.Ref.UID}, 0)
	}
	for _, uid := range r.Rows.BundlesWithRows() {
		r.index.markUnreconciled(uid)
		r.loop.EnqueueRecheck(workItem{bundle: uid}, 0)
	}
}

// enqueueDebounced looks at a Bundle when further changes have had time to join this one. Run goes
// through all Bundles by itself, so that changes before it are dropped.
func (r *BundleReconciler) enqueueDebounced(uid string) {
	r.loop.EnqueueAfter(workItem{bundle: uid}, min(settle+time.Duration(r.index.rowCount(uid))*settleRow, settleMost))
}

// enqueueTemplate looks at a template that no Bundle holds.
func (r *BundleReconciler) enqueueTemplate(key atoll.ItemKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started.IsZero() {
		r.early = append(r.early, key)
		return
	}
	r.loop.EnqueueAfter(workItem{template: key}, settle)
}

func (r *BundleReconciler) rowsChanged(uid string, clusters []string) {
	r.index.markUnreconciled(uid)
	r.markRowsChanged(uid, clusters...)
	if r.areSmallBundleRowsReady(uid) {
		r.loop.EnqueueNow(workItem{bundle: uid})
	} else {
		r.enqueueDebounced(uid)
	}
}

// areSmallBundleRowsReady reports whether each row of a small Bundle is Ready: nothing more is to join its status.
func (r *BundleReconciler) areSmallBundleRowsReady(uid string) bool {
	if n := r.index.rowCount(uid); n == 0 || n > state.SmallBundle { // as of the last look
		return false
	}
	return state.AllReady(r.Rows.ListOfBundle(uid))
}

// bundleChanged looks at a Bundle unless only its status changed.
func (r *BundleReconciler) bundleChanged(uid string) {
	b, ok := r.Bundles.Get(uid)
	if ok {
		r.index.markUnreconciled(uid)
	}
	if !ok || r.index.recordBundleChange(b) {
		r.enqueueDebounced(uid)
	}
}

// clusterChanged looks at the Bundles of a cluster that came, went, or can be
// reached or not any more; if only its stream came or went, at those of them where
// a removal waits.
func (r *BundleReconciler) clusterChanged(name string) {
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
		r.enqueueBundlesOfCluster(was, false)
	}
	if now != "" {
		reachable, stream, relabelled := r.index.recordLinkChange(now, r.clusterLinks)
		if reachable || stream || was != now {
			r.enqueueBundlesOfCluster(now, !reachable && was == now)
		}
		if relabelled {
			r.enqueueStagedBundlesOfCluster(now)
		}
	}
}

// enqueueBundlesOfCluster enqueues the Bundles of a cluster, or those of them where a removal waits; the others
// see it at their next look.
func (r *BundleReconciler) enqueueBundlesOfCluster(clusterUID string, waiting bool) {
	for _, row := range r.Rows.ListOfCluster(clusterUID) {
		r.markRowsChanged(row.Bundle.UID, row.Cluster)
		if !waiting || r.index.hasWaitingRemoval(row.Bundle.UID) {
			r.enqueueDebounced(row.Bundle.UID)
		}
	}
}

// templateChanged looks at the Bundles that hold a template when more than its
// status changed, and at a template that is being deleted though no Bundle holds it.
func (r *BundleReconciler) templateChanged(key atoll.ItemKey) {
	t, ok := r.Templates.Get(key)
	if ok && !r.index.recordTemplateChange(key, t) {
		return
	}
	holders := r.index.templateHolders(key)
	for _, uid := range holders {
		r.enqueueDebounced(uid)
	}
	if len(holders) == 0 && ok && isDeletionHeldByAtoll(t) {
		r.enqueueTemplate(key)
	}
}

// namespaceChanged looks at the Bundles of a namespace that is being deleted, and at
// where namespaces of that name stay.
func (r *BundleReconciler) namespaceChanged(name string) {
	for _, uid := range r.index.vacantNamespaceUIDs(name) {
		if ns, ok := r.Namespaces.Get(name); !ok || string(ns.UID) != uid || ns.DeletionTimestamp != nil {
			r.enqueueDebounced(uid)
		}
	}
	if !r.isNamespaceDeleting(name) {
		return
	}
	for _, b := range r.Bundles.InNamespace(name) {
		r.enqueueDebounced(b.Ref.UID)
	}
}

func (r *BundleReconciler) isNamespaceDeleting(namespace string) bool {
	ns, ok := r.Namespaces.Get(namespace)
	return ok && ns.DeletionTimestamp != nil
}

func (r *BundleReconciler) logFailure(w workItem, err error) {
	if !errors.Is(err, state.ErrRowsMoved) && !apierrors.IsConflict(err) {
		r.Log.Warn("a status or a leftover could not be brought up to date, trying again", "bundle", w.bundle, "template", w.template.String(), "err", err)
	}
}

// handleReconcilePanic sends an Event about a Bundle whose status could not be computed. The groups of
// its rows are dropped, because the panic may have changed a part of them.
func (r *BundleReconciler) handleReconcilePanic(_ context.Context, w workItem, p *reconcile.Panic) {
	if w.bundle == "" {
		return
	}
	r.dropRowGroups(w.bundle)
	if b, ok := r.Bundles.Get(w.bundle); ok && !p.IsRepeated {
		r.Events.Warn(b.Ref, atoll.ReasonReconcilePanicked, "its status cannot be computed by a defect of Atoll: the status is old, and the hub tries again; its log has the place")
	}
}

// dropRowGroups drops the groups of a Bundle's rows. They are made again of the table.
func (r *BundleReconciler) dropRowGroups(uid string) {
	r.rollsMu.Lock()
	defer r.rollsMu.Unlock()
	delete(r.rolls, uid)
}

// processWork looks at one thing; again is when to look next, 0: when something changes.
func (r *BundleReconciler) processWork(ctx context.Context, w workItem) (again time.Duration, err error) {
	if w.bundle == "" {
		return r.releaseUnheldTemplate(ctx, w.template)
	}
	return r.reconcileBundle(ctx, w.bundle)
}

// reconcileBundle reconciles one Bundle. A panic while a status is computed does not stop the
// release of what members have confirmed, so that people can delete the Bundle.
func (r *BundleReconciler) reconcileBundle(ctx context.Context, uid string) (again time.Duration, err error) {
	s, err := r.gatherSnapshot(ctx, uid)
	if err != nil {
		return 0, err
	}
	if s.isFullyDeleted() {
		r.dropBundleMemo(uid)
		return 0, nil
	}
	m := r.bundleMemoOf(uid)
	m.again = 0
	errs := []error{
		reconcile.ContainPanic(func() error { return r.writeBundleStatus(ctx, s, m) }),
		reconcile.ContainPanic(func() error { return r.writeTemplateStatuses(ctx, s, m) }),
	}
	if errors.Join(errs...) == nil {
		r.OnShown(uid)
	}
	errs = append(errs, reconcile.ContainPanic(func() error { r.recordRefusals(s, m); return nil }))
	if _, holding := r.Hub.HoldReason(); !holding {
		errs = append(errs, r.releaseFinalizers(ctx, s, m), r.collectGarbage(ctx, s, m))
	}
	return m.again, errors.Join(errs...)
}

// bundleMemo is what is remembered of a Bundle between two looks. One worker at a time
// has it.
type bundleMemo struct {
	// rolloutUnderway: the Events of its rollout have begun, and not ended.
	rolloutUnderway bool
	// due is when the Bundle's status may be written.
	due writeSchedule
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

// wakeAfter requests another look after d.
func (m *bundleMemo) wakeAfter(d time.Duration) {
	if m.again == 0 || d < m.again {
		m.again = max(d, time.Millisecond)
	}
}

func (r *BundleReconciler) bundleMemoOf(uid string) *bundleMemo {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memos[uid]
	if m == nil {
		m = &bundleMemo{templates: map[string]*templateMemo{}, refused: map[refusal]time.Time{}}
		r.memos[uid] = m
	}
	return m
}

func (r *BundleReconciler) dropBundleMemo(uid string) {
	r.enqueueUnheldTemplates(r.index.dropBundleMemo(uid))
	r.dropRowGroups(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memos, uid)
}
