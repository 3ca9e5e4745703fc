// Package placer places every Bundle on its clusters. It reads a snapshot, calls the cores
// schedule and rollout, and writes the rows that change.
//
// Contract: one Reconciler per hub writes row specs, while its hub leads, and each write is
// fenced by the rows that it was computed from. The tables are synced before Run, so that a
// missing object is absent.
//
// Work is proportional to the change. A Bundle is reconciled when its intent, a Revision or its
// namespace changes, and when a cluster's part in it changes. An awaited row, and times that
// the Bundle sets, start it too. When no row waits and nothing is divided, a cluster's change costs one
// row. Many such changes share a write after up to a second. Rechecks after a start go behind
// changes.
//
// PreviewBundle calls the same functions and writes nothing. All methods may be called
// concurrently.
package placer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	List() []state.Bundle
	InNamespace(ns string) []state.Bundle
	Subscribe(fn func(uid string))
}

// Rows is the table of rows.
type Rows interface {
	Get(bundleUID, cluster string) (state.Row, bool)
	ListOfBundle(uid string) []state.Row
	ListOfCluster(clusterUID string) []state.Row
	// RequestedPodsOf counts the pods of the rows that stay in a cluster.
	RequestedPodsOf(clusterUID string) int64
	// SubscribeWithChangedOrders reports the rows that changed. ordered names those whose order changed,
	// and those that came or went.
	SubscribeWithChangedOrders(fn func(bundleUID string, clusters, ordered []string))
}

// RowWriter writes the specs of rows.
type RowWriter interface {
	WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	IsOnline(uid string) bool
	Subscribe(fn func(name string))
}

// Revisions is the table of Revisions.
type Revisions interface {
	LatestOfBundle(bundleUID string) (*enginev1.Revision, bool)
	GetContent(ctx context.Context, name string) (*atoll.Content, error)
	Subscribe(fn func(bundleUID string))
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

// Events records Events about a Bundle. reason is one CamelCase word.
type Events interface {
	Warn(bundle enginev1.BundleRef, reason atoll.Reason, message string)
	// Inform records what is as it should be.
	Inform(bundle enginev1.BundleRef, reason atoll.Reason, message string)
}

// Settings are the hub's settings.
type Settings interface {
	// Freeze returns the freeze of all changes, which may have ended; nil: there is none.
	Freeze() *v1alpha1.ChangeFreeze
	Subscribe(fn func(name string))
}

// Config of a Reconciler. All but Sets, Views, Settings, Scores, SetCondition, SetRollout, SetFailover, Measurements, Workers, Events, Metrics and Log must be set.
type Config struct {
	Bundles    Bundles
	Rows       Rows
	RowWriter  RowWriter
	Clusters   Clusters
	Revisions  Revisions
	Namespaces Namespaces
	Hub        Hub
	// Sets that limit namespaces; nil: no namespace is limited.
	Sets Sets
	// Views of clusters; nil: the Cluster objects alone.
	Views Views
	// Settings with a freeze of all changes; nil: there is none.
	Settings Settings
	// Scores that people and add-ons give clusters; nil: none.
	Scores Scores
	// SetCondition writes a condition of a Bundle when it changes; nil: no condition is written, and hold
	// times of failback restart with the hub.
	SetCondition func(ctx context.Context, b state.Bundle, c metav1.Condition) error
	// SetRollout writes what is decided about a Bundle's rollout; nil: nothing is written, no gate opens, no row returns, and no
	// automatic stage begins.
	SetRollout func(ctx context.Context, b state.Bundle, is v1alpha1.RolloutStatus) error
	// SetFailover writes what is stored about the health of a Bundle's application; nil: nothing is written, and no application moves for
	// its health.
	SetFailover func(ctx context.Context, b state.Bundle, is *v1alpha1.ApplicationFailoverStatus) error
	// Measurements of gates; nil: none are made, so that no gate that measures opens.
	Measurements Measurements
	// Events; nil: none are recorded.
	Events Events
	// Metrics; nil: they are not registered.
	Metrics *Metrics
	// Log; nil: slog's default.
	Log *slog.Logger
	// Traces of changes; nil: none are recorded.
	Traces *tracing.Tracer
	// Workers reconcile Bundles at the same time; default 48. They mostly wait for the store.
	Workers int
}

// PlacementReconciler places all Bundles. Make it with New.
type PlacementReconciler struct {
	Config
	index    *bundleIndex
	capacity *capacityLedger
	usage    *capacityUsage
	groups   *groupIndex
	// dependencies of policies on each other.
	dependencies *dependencyIndex
	fleetLoads   *fleetLoads // nil: clusters are read one by one
	// startedAt is when Run was called, in Unix nanoseconds; 0 before.
	startedAt atomic.Int64
	// fleet in order, for a preview; nil: the real fleet. previewed is the Reconciler that a preview
	// was forked from; nil: this is none.
	fleet     []schedule.Cluster
	previewed *PlacementReconciler

	ledgerMu sync.Mutex
	ledger   rollout.RemovalLedger
	// lastTryMu is held by the last try of a decision that collided with others.
	lastTryMu sync.Mutex

	// bundleLoop reconciles Bundles by UID. clusterLoop compares clusters by name with their
	// last state, and scoreLoop finds the Bundles that a cluster's score may move.
	bundleLoop, clusterLoop, scoreLoop *reconcile.Loop[string]
}

// New makes a Reconciler and subscribes it to the tables.
func New(cfg Config) *PlacementReconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 48
	}
	if cfg.Views == nil {
		cfg.Views = plainViews{}
	}
	if cfg.Scores == nil {
		cfg.Scores = noScores{}
	}
	r := &PlacementReconciler{Config: cfg, index: newBundleIndex(), capacity: newCapacityLedger(), usage: newCapacityUsage(), groups: newGroupIndex(), dependencies: newDependencyIndex(), fleetLoads: &fleetLoads{}}
	r.makeReconcileLoops()
	cfg.Bundles.Subscribe(r.bundleChanged)
	cfg.Revisions.Subscribe(r.revisionChanged)
	cfg.Rows.SubscribeWithChangedOrders(r.rowsChanged)
	cfg.Clusters.Subscribe(r.clusterLoop.EnqueueNow)
	cfg.Views.Subscribe(r.clusterLoop.EnqueueNow)
	cfg.Scores.Subscribe(r.ratingChanged)
	cfg.Namespaces.Subscribe(r.enqueueBundlesOfDeletedNamespace)
	if cfg.Sets != nil {
		cfg.Sets.Subscribe(r.clusterSetsChanged)
	}
	if cfg.Settings != nil {
		cfg.Settings.Subscribe(r.freezeChanged)
	}
	cfg.Hub.Subscribe(func() { r.enqueueRechecks(cfg.Bundles.List()) })
	return r
}

// Run places Bundles until ctx ends. It is called once, when the tables are synced.
func (r *PlacementReconciler) Run(ctx context.Context) error {
	r.startedAt.Store(time.Now().UnixNano())
	r.restoreRemovalLedger()
	r.loadDependencies()
	r.restoreCapacityPromises(ctx)
	r.startAcceptingChanges()
	r.enqueueRechecks(r.Bundles.List())
	for _, cluster := range r.Scores.ClustersWithExpiry() {
		r.rescoreAtRatingExpiry(cluster)
	}
	var loops sync.WaitGroup
	for _, loop := range []*reconcile.Loop[string]{r.bundleLoop, r.clusterLoop, r.scoreLoop} {
		loops.Go(func() { loop.Run(ctx, nil) })
	}
	loops.Wait()
	return nil
}

// restoreRemovalLedger restores recent removals from the rows, as far as the rows show them.
func (r *PlacementReconciler) restoreRemovalLedger() {
	r.ledgerMu.Lock()
	defer r.ledgerMu.Unlock()
	for _, b := range r.Bundles.List() {
		for _, row := range r.Rows.ListOfBundle(b.Ref.UID) {
			if row.Spec.Phase != atoll.RowRemoving || row.Spec.Orphan || row.Spec.Recall != nil {
				continue
			}
			reason := atoll.ParseRowReason(row.Spec.Reason).Reason
			if at := time.Unix(row.Spec.Since, 0); reason == atoll.ReasonBundleDeleted || reason == atoll.ReasonObjectsDeleted {
				r.ledger.RecordDeletes(b.Ref.Namespace, at, 1)
			} else {
				r.ledger.RecordRemovedClusters(b.Ref.UID, at, []string{row.Cluster})
			}
		}
	}
}

// bundleChanged reconciles a Bundle whose intent changed; its status does not matter.
func (r *PlacementReconciler) bundleChanged(uid string) {
	if b, ok := r.Bundles.Get(uid); !ok || r.index.recordIntent(b) {
		r.recordDependencies(uid)
		r.markGroupMemberStale(uid)
		r.enqueueAllRows(uid)
	}
}

// rowsChanged reconciles a Bundle when an awaited row changes, and when a row was removed, by
// any writer. Reports for which nothing waits are not read.
func (r *PlacementReconciler) rowsChanged(uid string, clusters, ordered []string) {
	r.markRowsStale(uid, ordered)
	r.healthChanged(uid, clusters)
	r.groupRowsChanged(uid, ordered)
	r.wakeDependents(uid, clusters)
	r.fleetLoads.updateLoads(ordered, r.Rows)
	for _, c := range ordered {
		r.scoresChanged(c) // the cluster's load changed
		row, ok := r.Rows.Get(uid, c)
		switch {
		case !ok:
			r.touchBundle(uid, c)
		case row.Spec.Recall != nil && row.Spec.Reason == "":
			r.enqueueAllRows(uid)
		}
	}
	if after, yes := r.index.isAwaited(uid, clusters...); yes {
		r.bundleLoop.EnqueueAfter(uid, after)
	}
}

func (r *PlacementReconciler) enqueueBundlesOfDeletedNamespace(name string) {
	if ns, ok := r.Namespaces.Get(name); ok && ns.DeletionTimestamp == nil {
		return
	}
	for _, b := range r.Bundles.InNamespace(name) {
		r.enqueueAllRows(b.Ref.UID)
	}
}

// reconcileBundle reconciles a Bundle, or drops one that is gone.
func (r *PlacementReconciler) reconcileBundle(ctx context.Context, uid string) error {
	b, ok := r.Bundles.Get(uid)
	if !ok {
		// A Bundle is deleted after its rows. Rows without a Bundle stay.
		r.index.removeBundle(uid)
		r.capacity.recordGroupShortage(uid, false, false)
		r.usage.clearCrowdedClusters(uid)
		return nil
	}
	if _, cut := r.Revisions.LatestOfBundle(uid); !cut && !r.isBundleOrNamespaceDeleting(b) && len(r.Rows.ListOfBundle(uid)) == 0 {
		return nil // the first Revision enqueues the Bundle
	}
	return r.placeOrRemoveAfterPanic(ctx, b)
}

// placeBundle makes one decision about a Bundle and one write.
func (r *PlacementReconciler) placeBundle(ctx context.Context, b state.Bundle) error {
	uid := b.Ref.UID
	defer r.index.beginStep(uid)()
	r.dependencies.beginStep(uid)
	terms, err := r.termsOf(ctx, b)
	if err != nil {
		return err
	}
	r.touchRefusedClusters(uid)
	r.touchFailedClusters(b)
	view := r.index.viewOf(b, terms, time.Now())
	if view.isPartial {
		if done, err := r.stepOverTouchedRows(ctx, b, view); done || err != nil {
			return err
		}
		r.index.requireAllRows(uid)
		view = r.index.viewOf(b, terms, time.Now())
	}
	return r.stepOverAllRows(ctx, b, terms, view)
}

// stepOverAllRows decides about all rows of a Bundle, and writes the rows that change.
func (r *PlacementReconciler) stepOverAllRows(ctx context.Context, b state.Bundle, terms schedule.PlacementTerms, view bundleView) error {
	uid := b.Ref.UID
	a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) {
		snap, end, err := r.decideWithReservation(ctx, b, view)
		if err == nil && view.reserve != nil && !snap.isReserveEnough() {
			end()
			r.index.dropReserveClusters(uid)
			view = r.index.viewOf(b, terms, time.Now())
			snap, end, err = r.decideWithReservation(ctx, b, view)
		}
		return snap, end, err
	})
	if err != nil {
		return err
	}
	defer a.endStep()
	snap, out := a.input, a.output
	if err := r.writeRowChanges(ctx, a); err != nil {
		return err
	}
	r.traceStep(a, !hasRevision(snap.baseRows, snap.rollout.Revision))
	r.recordFreeCapacityWait(snap, out)
	r.recordGroupWaits(&snap, view)
	r.recordCapacityWaits(&snap, out, view.clustersCoveredByCapacityCheck(snap.baseRows))
	r.recordStepWarnings(b, &snap.rollout, out)
	r.warnOfExemptChange(&snap, out)
	d := snap.rollout.Decision
	w := stepResult{
		output: out, rowCount: snap.countRowsAfter(out), placedClusters: snap.countPlacedClusters(), canComplete: snap.rollout.Revision != "" && !snap.rollout.PausedByRestore && !snap.rollout.ObjectsDeleted,
		wantsMore: d.WantsMore, standing: d.ScoreThresholds, bundle: b, reserve: d.ReserveClusters, failback: failbackOf(d, view.failback),
		waits:        connectionWait{newcomers: d.AwaitsConnection, held: snap.failover.awaitedConnections(d.DisconnectedHolders, snap.rollout.Rows), oldCopies: oldCopiesAwaited(&snap, out)},
		waitsForTurn: snap.rollout.Terms.IsDefault() && out.StageWait.Reason != "", isFrozen: snap.isFrozen(out),
	}
	r.followHealth(&snap, out)
	after, again := r.index.recordStep(view, w)
	r.dependencies.endStep(uid, out.AwaitsOthers)
	r.repeatAfterFreeze(&snap, w.isFrozen)
	if again {
		r.bundleLoop.EnqueueAfter(uid, after)
	}
	r.enqueueAt(uid, out.RequeueAt)
	r.enqueueAt(uid, d.RecheckAt)
	return errors.Join(r.writeFailover(ctx, b, &snap.failover), r.writeRollout(ctx, b, out, snap.rollout.Now), r.writePreferredGroupCondition(ctx, b, d), r.writeGroupCondition(ctx, b, d))
}

// stepOverTouchedRows steps over the touched rows when the other rows cannot have changed. done is
// false when they may have.
func (r *PlacementReconciler) stepOverTouchedRows(ctx context.Context, b state.Bundle, v bundleView) (done bool, err error) {
	a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) {
		return r.decideInGroups(&b, func() (stepInput, func(), error) {
			snap, err := r.gatherStepInput(ctx, b, v)
			if err == nil && !snap.keepsAllRows() {
				err = errNeedsAllRows
			}
			snap.rollout.MoveOrder = rollout.ReplacementFirst // no row of this step has to wait for another
			return snap, func() {}, err
		})
	})
	if err != nil {
		if errors.Is(err, errNeedsAllRows) {
			err = nil
		}
		return false, err
	}
	defer a.endStep()
	snap, out := a.input, a.output
	if snap.rollout.Revision == "" || snap.rollout.PausedByRestore || !out.RowsIndependent || out.RollbackChanged || r.turnTermsOf(b).isBounded(v.rowCount) && snap.changesRevision(out) {
		a.settleWrite(false)
		return false, nil
	}
	if err := r.writeRowChanges(ctx, a); err != nil {
		return false, err
	}
	r.traceStep(a, false)
	r.recordGroupWaits(&snap, v)
	r.recordCapacityWaits(&snap, out, v.touchedClusters)
	r.recordStepWarnings(b, &snap.rollout, out)
	r.index.recordPartialStep(v, stepResult{output: out, rowCount: snap.countRowsAfter(out) - len(snap.baseRows), placedClusters: snap.countPlacedClusters()})
	r.dependencies.endStep(b.Ref.UID, nil)
	r.enqueueAt(b.Ref.UID, out.RequeueAt)
	return true, nil
}

// errNeedsAllRows means that a partial step is not enough.
var errNeedsAllRows = errors.New("a step over all rows is needed")

// writeRowChanges writes the row changes of an attempt. A write that panics counts as failed.
func (r *PlacementReconciler) writeRowChanges(ctx context.Context, a stepAttempt) error {
	written := false
	defer func() { a.settleWrite(written) }()
	ref := a.input.bundle.Ref
	err := r.RowWriter.WriteSpecs(ctx, ref, a.input.baseRows, a.output.Changes)
	written = err == nil
	r.Metrics.countStep(a.input.baseRows, a.output.Changes, err)
	if err != nil {
		return fmt.Errorf("place bundle %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return nil
}

// stepAttempt is a step with its input and outcome. settleWrite records whether it was written.
// endStep is called when the writes can be read.
type stepAttempt struct {
	input       stepInput
	output      rollout.Output
	settleWrite func(written bool)
	endStep     func()
}

// attemptStepWithRetries repeats a step while others take the capacity that it was decided by. The last
// attempt blocks others while it decides.
func (r *PlacementReconciler) attemptStepWithRetries(decide func() (stepInput, func(), error)) (a stepAttempt, err error) {
	for try := 1; ; try++ {
		if a, taken, err := r.attemptOnce(decide, try == maxDecideTries); !taken || err != nil {
			return a, err
		}
	}
}

func (r *PlacementReconciler) attemptOnce(decide func() (stepInput, func(), error), alone bool) (a stepAttempt, taken bool, err error) {
	if alone {
		r.ledgerMu.Lock()
		defer r.ledgerMu.Unlock()
	}
	if a.input, a.endStep, err = decide(); err != nil {
		return a, false, err
	}
	if !alone {
		r.ledgerMu.Lock()
		defer r.ledgerMu.Unlock()
	}
	isKept := false
	defer func() {
		if !isKept { // the capacity is taken, or a panic comes through
			a.endStep()
		}
	}()
	full := r.computeStepChanges(&a)
	if full != nil && alone {
		// Growth that no decision foresees stays as it is, such as of a row whose newer revision
		// is held back.
		a.input.rollout.Decision = a.input.rollout.Decision.KeepRowsAtRevision(full)
		if full = r.computeStepChanges(&a); full != nil {
			err = fmt.Errorf("clusters %s: %w", strings.Join(slices.Sorted(maps.Keys(full)), ", "), errCapacityTaken)
		}
	}
	isKept = full == nil
	return a, full != nil, err
}

var errCapacityTaken = errors.New("others took the capacity that was left")

// computeStepChanges computes the changes of a step and spends budgets, free capacity and capacity. The
// caller holds the ledger's lock, so that no two Bundles spend the same. full names the clusters
// that have less left than needed; then nothing is spent.
func (r *PlacementReconciler) computeStepChanges(a *stepAttempt) (full map[string]string) {
	s := &a.input
	ns, uid := s.bundle.Ref.Namespace, s.bundle.Ref.UID
	s.rollout.RecentDeletes, s.rollout.RecentlyRemoved = r.ledger.CountDeletes(ns, s.rollout.Now), r.ledger.RemovedClusters(uid, s.rollout.Now)
	s.rollout.Decision, s.hasPromises = r.withFreeCapacity(s.rollout.Decision, s.rollout.Now)
	out := rollout.AdvanceRows(s.rollout)
	taken, full := r.takeCapacity(s, out)
	if full != nil {
		return full
	}
	isSpent := false
	defer func() {
		if !isSpent { // a panic comes through
			taken(false)
		}
	}()
	s.setRequestedPods(out.Changes)
	back := r.capacity.promiseCapacity(&s.rollout, out.Changes)
	r.ledger.RecordDeletes(ns, s.rollout.Now, out.DirectDeletes)
	r.ledger.RecordRemovedClusters(uid, s.rollout.Now, out.RemovedByEdit)
	a.output, a.settleWrite = out, func(written bool) {
		if taken(written); written {
			return
		}
		back()
		r.ledgerMu.Lock()
		defer r.ledgerMu.Unlock()
		r.ledger.RecordDeletes(ns, s.rollout.Now, -out.DirectDeletes)
		r.ledger.UndoRemovedClusters(uid, out.RemovedByEdit)
	}
	isSpent = true
	return nil
}

// recordStepWarnings records warnings: a held plan, once, and rows of deleted clusters.
func (r *PlacementReconciler) recordStepWarnings(b state.Bundle, in *rollout.Input, out rollout.Output) {
	if len(out.AbandonedRows) > 0 {
		r.recordWarning(b, atoll.ReasonGivenUp, givenUpText(out.AbandonedRows))
	}
	kind, ns := "bundle", " -n "+b.Ref.Namespace
	if b.Ref.Namespace == "" {
		kind, ns = "clusterbundle", ""
	}
	recalled := in.Recalled
	if w := in.Unconfirmed; w.PlanHash != "" && w.PlanHash != in.ConfirmedPlan && r.index.recordReportedUnconfirmedPlan(b.Ref.UID, w.PlanHash) {
		r.recordWarning(b, atoll.ReasonRemovalHeld, fmt.Sprintf("removals wait for a confirmation, as their items state: %s; `atoll confirm %s/%s%s --plan %s` releases exactly these", w.Text, kind, b.Ref.Name, ns, w.PlanHash))
	}
	if recalled.PlanHash != "" && r.index.recordReportedHeldBackPlan(b.Ref.UID, recalled.PlanHash) {
		r.recordWarning(b, atoll.ReasonRemovalHeld, fmt.Sprintf("members recorded deletions from before the hub was restored: %s; `atoll confirm %s/%s%s --plan %s` deletes exactly these, `atoll restore keep` with the same arguments keeps them",
			recalled.Text, kind, b.Ref.Name, ns, recalled.PlanHash))
	}
	if out.PendingRemoval != nil && r.index.recordReportedPlan(b.Ref.UID, out.PendingRemoval.Hash) {
		r.recordWarning(b, atoll.ReasonRemovalHeld, fmt.Sprintf("%d removals wait; `atoll confirm %s/%s%s --plan %s` releases exactly these: %s",
			len(out.PendingRemoval.Lines), kind, b.Ref.Name, ns, out.PendingRemoval.Hash, secretIDPattern.ReplaceAllString(out.PendingRemoval.SummarizeLines(5), "a Secret")))
	}
}

// givenUpText names the deleted clusters in one sentence.
func givenUpText(rows []rollout.AbandonedRow) string {
	const named = 5
	if len(rows) == 1 {
		return fmt.Sprintf("cluster %s is deleted: its content of revision %d stays there", rows[0].Cluster, atoll.RevisionNumber(rows[0].Revision))
	}
	var names []string
	for _, g := range rows[:min(len(rows), named)] {
		names = append(names, g.Cluster)
	}
	return fmt.Sprintf("clusters %s are deleted: their content stays there", phrase.JoinFirst(names, named, len(rows)))
}

// secretIDPattern matches Secrets in the lines of a plan. Readers of an Event on a Bundle may
// lack the right to list Secrets.
var secretIDPattern = regexp.MustCompile(`/Secret/[^\s,;]+ [^\s,;]+`)

func (r *PlacementReconciler) recordWarning(b state.Bundle, reason atoll.Reason, message string) {
	r.Log.Warn(message, "bundle", b.Ref.Name, "namespace", b.Ref.Namespace, "reason", reason)
	if r.Events != nil {
		r.Events.Warn(b.Ref, reason, message)
	}
}
