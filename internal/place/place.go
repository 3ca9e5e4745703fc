// Package place brings every Bundle to the clusters that it belongs in: it reads a
// snapshot, asks the cores schedule and rollout, and writes the rows that change.
//
// Contract: one Reconciler per hub writes row specs (while its hub leads), and each
// write is fenced by the rows that it was computed from. The tables are synced
// before Run is called, so that what is absent from them is absent. Work is
// proportional to what changed: a Bundle is looked at when its intent, one of its
// Revisions or its namespace changes, when a cluster changes in a way that changes
// that cluster's part in it, when a row changes that something waits for, and when
// time is up. Where no row waits for another and nothing is divided, a cluster's
// change costs that cluster's row; many that change together are written together,
// after up to a second. What was there at the start is gone through behind what
// changes meanwhile.
//
// Preview answers with the same functions and writes nothing. All methods may be
// called from many goroutines.
package place

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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	List() []state.Bundle
	InNamespace(ns string) []state.Bundle
	Subscribe(fn func(uid string))
}

// Rows is the table of rows, and how their specs are written.
type Rows interface {
	Get(bundleUID, cluster string) (state.Row, bool)
	OfBundle(uid string) []state.Row
	OfCluster(clusterUID string) []state.Row
	// PodsOf the rows that are to stay in a cluster.
	PodsOf(clusterUID string) int64
	WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error
	// SubscribeOrders to rows that changed, and to those of them that are ordered anew,
	// came or went.
	SubscribeOrders(fn func(bundleUID string, clusters, ordered []string))
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Online(uid string) bool
	Subscribe(fn func(name string))
}

// Revisions is the table of Revisions.
type Revisions interface {
	Latest(bundleUID string) (*enginev1.Revision, bool)
	Content(ctx context.Context, name string) (*atoll.Content, error)
	Subscribe(fn func(bundleUID string))
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

// Events is told what people should know of a Bundle: reason is one CamelCase word.
type Events interface {
	Warn(bundle enginev1.BundleRef, reason, message string)
}

// Config of a Reconciler. All but Sets, Views, Scores, Say, Workers, Events and Log must be set.
type Config struct {
	Bundles    Bundles
	Rows       Rows
	Clusters   Clusters
	Revisions  Revisions
	Namespaces Namespaces
	Hub        Hub
	// Sets that limit namespaces; nil: none are limited.
	Sets Sets
	// Views of clusters; nil: what their objects alone tell.
	Views Views
	// Scores that people and add-ons give clusters; nil: none.
	Scores Scores
	// Say writes a condition of a Bundle where it is news; nil: nothing is said, and hold
	// times of failback begin anew when the hub starts again.
	Say func(ctx context.Context, b state.Bundle, c metav1.Condition) error
	// Events; nil: nobody is told.
	Events Events
	// Log; nil: slog's default.
	Log *slog.Logger
	// Workers that look at Bundles at the same time; default 48: they
	// mostly wait for the store.
	Workers int
}

// Reconciler of all Bundles' rows.
type Reconciler struct {
	Config
	index *index
	rooms *rooms
	usage *usage
	loads *fleetLoads // nil: asked one by one
	// begun is when Run was called, in Unix nanoseconds; 0 before.
	begun atomic.Int64
	// fleet in order, of a Reconciler that supposes; nil: as the tables have it.
	fleet []schedule.Cluster

	ledgerMu sync.Mutex
	ledger   rollout.Ledger

	mu       sync.Mutex
	bundles  priorityqueue.PriorityQueue[string] // nil before Run
	clusters workqueue.TypedInterface[string]
	scores   workqueue.TypedDelayingInterface[string]
}

// New makes a Reconciler and subscribes it to the tables.
func New(cfg Config) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
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
	r := &Reconciler{Config: cfg, index: newIndex(), rooms: newRooms(), usage: newUsage(), loads: &fleetLoads{}}
	cfg.Bundles.Subscribe(r.bundleChanged)
	cfg.Revisions.Subscribe(r.now)
	cfg.Rows.SubscribeOrders(r.rowsChanged)
	cfg.Clusters.Subscribe(r.clusterChanged)
	cfg.Views.Subscribe(r.clusterChanged)
	cfg.Scores.Subscribe(r.ratedAnew)
	cfg.Namespaces.Subscribe(r.namespaceChanged)
	if cfg.Sets != nil {
		cfg.Sets.Subscribe(r.boundChanged)
	}
	cfg.Hub.Subscribe(func() { r.later(cfg.Bundles.List()) })
	return r
}

// Priorities of the queue: what users changed goes before what is gone through.
const (
	priorityUser = 0
	priorityAll  = -100
)

// Run until ctx ends. It is called once, when the tables are synced.
func (r *Reconciler) Run(ctx context.Context) error {
	r.begun.Store(time.Now().UnixNano())
	r.restore()
	r.restoreRooms(ctx)
	bundles, clusters, scores := r.open()
	r.later(r.Bundles.List())
	for _, cluster := range r.Scores.Ending() {
		r.awaitEnd(cluster)
	}
	var done sync.WaitGroup
	for range r.Workers {
		done.Go(func() { r.workBundles(ctx, bundles) })
	}
	done.Go(func() { r.workClusters(ctx, clusters) })
	done.Go(func() { r.workScores(ctx, scores) })
	<-ctx.Done()
	bundles.ShutDown()
	clusters.ShutDown()
	scores.ShutDown()
	done.Wait()
	return nil
}

// open the queues. The clusters as they are now are what later changes are
// compared with.
func (r *Reconciler) open() (priorityqueue.PriorityQueue[string], workqueue.TypedInterface[string], workqueue.TypedDelayingInterface[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles = priorityqueue.New("place", func(o *priorityqueue.Opts[string]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Minute)
	})
	r.clusters = workqueue.NewTyped[string]()
	r.scores = workqueue.NewTypedDelayingQueue[string]()
	for _, c := range r.Clusters.List() {
		r.index.seen(r.Views.Of(c))
		r.rooms.report(c, r.Rows, time.Now())
	}
	return r.bundles, r.clusters, r.scores
}

// restore what removals of the last minutes can still be told from the rows.
func (r *Reconciler) restore() {
	r.ledgerMu.Lock()
	defer r.ledgerMu.Unlock()
	for _, b := range r.Bundles.List() {
		for _, row := range r.Rows.OfBundle(b.Ref.UID) {
			if row.Spec.Phase != atoll.RowRemoving || row.Spec.Orphan || row.Spec.Recall != nil {
				continue
			}
			if at := time.Unix(row.Spec.Since, 0); atoll.ParseRowReason(row.Spec.Reason).Word == atoll.RowBundleDeleted {
				r.ledger.Delete(b.Ref.Namespace, at, 1)
			} else {
				r.ledger.Out(b.Ref.UID, at, []string{row.Cluster})
			}
		}
	}
}

func (r *Reconciler) queue() priorityqueue.PriorityQueue[string] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bundles
}

// now look at all rows of a Bundle.
func (r *Reconciler) now(uid string) {
	r.index.whole(uid)
	r.add(uid, priorityUser, 0)
}

func (r *Reconciler) later(all []state.Bundle) {
	for _, b := range all {
		r.index.whole(b.Ref.UID)
		r.add(b.Ref.UID, priorityAll, 0)
	}
}

// add a Bundle to the queue; before Run nothing has to be remembered, since Run
// goes through all.
func (r *Reconciler) add(uid string, priority int, after time.Duration) {
	if q := r.queue(); q != nil {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, uid)
	}
}

// bundleChanged looks at a Bundle when its intent changed; its status says nothing
// new to place.
func (r *Reconciler) bundleChanged(uid string) {
	if b, ok := r.Bundles.Get(uid); !ok || r.index.edited(b) {
		r.now(uid)
	}
}

// rowsChanged looks at a Bundle when a row that something waits for changes, and
// when a row is taken away, by whomever. A report that nothing waits for is not read.
func (r *Reconciler) rowsChanged(uid string, clusters, ordered []string) {
	r.rowsMoved(uid, ordered)
	r.loads.changed(ordered, r.Rows)
	for _, c := range ordered {
		r.scored(c) // by how much it has
		row, ok := r.Rows.Get(uid, c)
		switch {
		case !ok:
			r.touched(uid, c)
		case row.Spec.Recall != nil && row.Spec.Reason == "":
			r.now(uid)
		}
	}
	if after, yes := r.index.awaits(uid, clusters...); yes {
		r.add(uid, priorityUser, after)
	}
}

func (r *Reconciler) clusterChanged(name string) {
	r.mu.Lock()
	q := r.clusters
	r.mu.Unlock()
	if q != nil {
		q.Add(name)
	}
}

func (r *Reconciler) namespaceChanged(name string) {
	if ns, ok := r.Namespaces.Get(name); ok && ns.DeletionTimestamp == nil {
		return
	}
	for _, b := range r.Bundles.InNamespace(name) {
		r.now(b.Ref.UID)
	}
}

func (r *Reconciler) workBundles(ctx context.Context, q priorityqueue.PriorityQueue[string]) {
	for {
		uid, priority, shutdown := q.GetWithPriority()
		if shutdown {
			return
		}
		err := r.reconcile(ctx, uid)
		switch {
		case err == nil:
			q.Forget(uid)
		case ctx.Err() != nil:
		default:
			if !errors.Is(err, state.ErrRowsMoved) {
				r.Log.Warn("rows of a bundle could not be brought up to date, trying again", "bundle", uid, "err", err)
			}
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, RateLimited: true}, uid)
		}
		q.Done(uid)
	}
}

// reconcile one Bundle: one decision, one write.
func (r *Reconciler) reconcile(ctx context.Context, uid string) error {
	b, ok := r.Bundles.Get(uid)
	if !ok {
		// A Bundle goes after its rows. Rows without one are left alone.
		r.index.forget(uid)
		r.rooms.lacks(uid, false, false)
		r.usage.forgetBundle(uid)
		return nil
	}
	if _, cut := r.Revisions.Latest(uid); !cut && !r.deleting(b) && len(r.Rows.OfBundle(uid)) == 0 {
		return nil // nothing can come before there is a Revision, which will be told
	}
	defer r.index.begin(uid)()
	terms, err := r.terms(ctx, b)
	if err != nil {
		return err
	}
	r.asksAnew(uid)
	view := r.index.view(b, terms, time.Now())
	if view.part {
		if done, err := r.part(ctx, b, view); done || err != nil {
			return err
		}
		r.index.whole(uid)
		view = r.index.view(b, terms, time.Now())
	}
	a, err := r.attempt(func() (snapshot, func(), error) {
		snap, end, err := r.decide(ctx, b, view)
		if err == nil && view.reserve != nil && !snap.enough() {
			end()
			r.index.spend(uid)
			view = r.index.view(b, terms, time.Now())
			snap, end, err = r.decide(ctx, b, view)
		}
		return snap, end, err
	})
	if err != nil {
		return err
	}
	defer a.end()
	snap, out := a.snap, a.out
	if err := r.write(ctx, a); err != nil {
		return err
	}
	r.waitForRoom(snap, out)
	r.waitForCapacity(&snap, out, view.looksAt(snap.base))
	r.report(b, snap.in.Recalled, out)
	d := snap.in.Decision
	w := written{
		out: out, rows: snap.rowsAfter(out), placed: snap.placed(), could: snap.in.Revision != "" && !snap.in.Holding,
		hungry: d.Hungry, standing: d.Standing, bundle: b, reserve: d.Reserve, failback: failbackOf(d, view.failback),
	}
	if after, again := r.index.done(view, w); again {
		r.add(uid, priorityUser, after)
	}
	r.at(uid, out.RequeueAt)
	r.at(uid, d.LookAt)
	return r.sayGroup(ctx, b, d)
}

// part of the rows is looked at, where the others cannot have changed; not done where
// it turns out that they may.
func (r *Reconciler) part(ctx context.Context, b state.Bundle, v view) (done bool, err error) {
	a, err := r.attempt(func() (snapshot, func(), error) {
		snap, err := r.gather(ctx, b, v)
		if err == nil && !snap.stays() {
			err = errWhole
		}
		return snap, func() {}, err
	})
	if err != nil {
		if errors.Is(err, errWhole) {
			err = nil
		}
		return false, err
	}
	snap, out := a.snap, a.out
	if snap.in.Revision == "" || snap.in.Holding || !out.Quiet {
		a.settle(false)
		return false, nil
	}
	if err := r.write(ctx, a); err != nil {
		return false, err
	}
	r.waitForCapacity(&snap, out, v.touched)
	r.report(b, snap.in.Recalled, out)
	r.index.doneInPart(v, written{out: out, rows: snap.rowsAfter(out) - len(snap.base), placed: snap.placed()})
	r.at(b.Ref.UID, out.RequeueAt)
	return true, nil
}

// errWhole: a look at a part of the rows is not enough.
var errWhole = errors.New("all rows have to be looked at")

// write what an attempt came to.
func (r *Reconciler) write(ctx context.Context, a attempt) error {
	ref := a.snap.bundle.Ref
	err := r.Rows.WriteSpecs(ctx, ref, a.snap.base, a.out.Changes)
	a.settle(err == nil)
	if err != nil {
		return fmt.Errorf("place bundle %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return nil
}

// at some time look at the Bundle again.
func (r *Reconciler) at(uid string, when time.Time) {
	if !when.IsZero() {
		r.add(uid, priorityUser, max(time.Until(when), time.Millisecond))
	}
}

// attempt at a step: what it was computed from and what it comes to. settle says whether
// that was written, and end is called when what was written can be read.
type attempt struct {
	snap   snapshot
	out    rollout.Output
	settle func(written bool)
	end    func()
}

// attempt a step, again while others take the capacity that it was decided by; at last
// nobody else may take any while it decides.
func (r *Reconciler) attempt(decide func() (snapshot, func(), error)) (a attempt, err error) {
	for try := 1; ; try++ {
		if a, taken, err := r.try(decide, try == decideTries); !taken || err != nil {
			return a, err
		}
	}
}

func (r *Reconciler) try(decide func() (snapshot, func(), error), alone bool) (a attempt, taken bool, err error) {
	if alone {
		r.ledgerMu.Lock()
		defer r.ledgerMu.Unlock()
	}
	if a.snap, a.end, err = decide(); err != nil {
		return a, false, err
	}
	if !alone {
		r.ledgerMu.Lock()
		defer r.ledgerMu.Unlock()
	}
	full := r.advance(&a)
	if full != nil && alone {
		// What no decision foresees, such as a share that grows in a row whose newer
		// revision is held back, stays as it is.
		a.snap.in.Decision = a.snap.in.Decision.Hold(full)
		if full = r.advance(&a); full != nil {
			err = fmt.Errorf("clusters %s: %w", strings.Join(slices.Sorted(maps.Keys(full)), ", "), errTaken)
		}
	}
	if full != nil {
		a.end()
	}
	return a, full != nil, err
}

var errTaken = errors.New("others took the capacity that was left")

// advance with the ledger's lock, which the caller holds, so that Bundles that are looked
// at together do not spend one budget, or one cluster's room or capacity, twice. full
// tells of which clusters more is asked than is left; then nothing is spent.
func (r *Reconciler) advance(a *attempt) (full map[string]string) {
	s := &a.snap
	ns, uid := s.bundle.Ref.Namespace, s.bundle.Ref.UID
	s.in.RecentDeletes, s.in.RecentOuts = r.ledger.Deletes(ns, s.in.Now), r.ledger.Outs(uid, s.in.Now)
	s.in.Decision, s.promised = r.withRoom(s.in.Decision, s.in.Now)
	out := rollout.Advance(s.in)
	taken, full := r.take(s, out)
	if full != nil {
		return full
	}
	s.weigh(out.Changes)
	back := r.rooms.promise(&s.in, out.Changes)
	r.ledger.Delete(ns, s.in.Now, out.Deletes)
	r.ledger.Out(uid, s.in.Now, out.Outs)
	a.out, a.settle = out, func(written bool) {
		if taken(written); written {
			return
		}
		back()
		r.ledgerMu.Lock()
		defer r.ledgerMu.Unlock()
		r.ledger.Delete(ns, s.in.Now, -out.Deletes)
		r.ledger.NotOut(uid, out.Outs)
	}
	return nil
}

// report what people must know: a plan that waits, once, and what was given up.
func (r *Reconciler) report(b state.Bundle, recalled rollout.Recalled, out rollout.Output) {
	if len(out.GivenUp) > 0 {
		r.warn(b, "GivenUp", givenUp(out.GivenUp))
	}
	kind, ns := "bundle", " -n "+b.Ref.Namespace
	if b.Ref.Namespace == "" {
		kind, ns = "clusterbundle", ""
	}
	if recalled.Plan != "" && r.index.newRecall(b.Ref.UID, recalled.Plan) {
		r.warn(b, atoll.RowRemovalHeld, fmt.Sprintf("members remember deletions from before the hub was restored: %s; `atoll confirm %s/%s%s --plan %s` deletes exactly these, `atoll restore keep` with the same arguments keeps them",
			recalled.Text, kind, b.Ref.Name, ns, recalled.Plan))
	}
	if out.Plan != nil && r.index.newPlan(b.Ref.UID, out.Plan.Hash) {
		r.warn(b, atoll.RowRemovalHeld, fmt.Sprintf("%d removals wait; `atoll confirm %s/%s%s --plan %s` releases exactly these: %s",
			len(out.Plan.Lines), kind, b.Ref.Name, ns, out.Plan.Hash, secretIDs.ReplaceAllString(out.Plan.Summary(5), "a Secret")))
	}
}

// givenUp says which clusters are deleted, in one note however many they are.
func givenUp(rows []rollout.GivenUp) string {
	const named = 5
	if len(rows) == 1 {
		return fmt.Sprintf("cluster %s is deleted: what it holds of revision %d is left behind there", rows[0].Cluster, atoll.RevisionNumber(rows[0].Revision))
	}
	var names []string
	for _, g := range rows[:min(len(rows), named)] {
		names = append(names, g.Cluster)
	}
	more := ""
	if n := len(rows) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("clusters %s%s are deleted: what they hold is left behind there", strings.Join(names, ", "), more)
}

// secretIDs are Secrets in the lines of a plan, as tombstones name them: who may see an
// Event on a Bundle may not always list Secrets.
var secretIDs = regexp.MustCompile(`/Secret/[^\s,;]+ [^\s,;]+`)

func (r *Reconciler) warn(b state.Bundle, reason, message string) {
	r.Log.Warn(message, "bundle", b.Ref.Name, "namespace", b.Ref.Namespace, "reason", reason)
	if r.Events != nil {
		r.Events.Warn(b.Ref, reason, message)
	}
}
