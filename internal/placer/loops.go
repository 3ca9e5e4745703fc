package placer

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

// idleLoop is the loop of previews. It drops every key, because it is never opened.
var idleLoop = reconcile.New(reconcile.Options[string]{Name: "preview"})

// makeReconcileLoops makes the loops, which drop every key before startAcceptingChanges.
func (r *PlacementReconciler) makeReconcileLoops() {
	r.bundleLoop = reconcile.New(reconcile.Options[string]{
		Name: "place", Workers: r.Workers,
		Reconcile: func(ctx context.Context, uid string) (time.Duration, error) { return 0, r.reconcileBundle(ctx, uid) },
		Failed:    r.logFailure,
		Panicked:  r.warnPanicked,
		Backoff:   workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Minute),
	})
	r.clusterLoop = reconcile.New(reconcile.Options[string]{
		Name: "place-clusters",
		Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
			r.handleClusterChange(ctx, name)
			return 0, nil
		},
		Panicked: func(_ context.Context, name string, _ *reconcile.Panic) { r.touchClusterInAllBundles(name) },
	})
	r.scoreLoop = reconcile.New(reconcile.Options[string]{
		Name: "place-scores",
		Reconcile: func(_ context.Context, name string) (time.Duration, error) {
			if clusters := r.index.clustersNamed([]string{name}); len(clusters) == 1 {
				r.rescoreCluster(&clusters[0])
			}
			r.rescoreAtRatingExpiry(name)
			return 0, nil
		},
	})
}

// startAcceptingChanges begins to take changes. Later changes of clusters are compared with the clusters
// of now.
func (r *PlacementReconciler) startAcceptingChanges() {
	r.bundleLoop.AcceptKeys()
	r.clusterLoop.AcceptKeys()
	r.scoreLoop.AcceptKeys()
	now := time.Now()
	for _, c := range r.Clusters.List() {
		is := r.Views.ViewOf(c)
		r.index.replaceCluster(is)
		r.index.recordStartConnection(&is, r.Clusters.IsOnline(is.UID), isReady(c), now)
		r.capacity.setReportedCapacity(c, r.Rows, now)
	}
}

// logFailure reports why a Bundle was not reconciled; rows that changed are no failure.
func (r *PlacementReconciler) logFailure(uid string, err error) {
	if !errors.Is(err, state.ErrRowsMoved) {
		r.Log.Warn("rows of a bundle could not be brought up to date, trying again", "bundle", uid, "err", err)
	}
}

// warnPanicked sends an Event about a Bundle whose step panicked. The next step looks at all rows,
// because the last one may have noted some of them.
func (r *PlacementReconciler) warnPanicked(_ context.Context, uid string, p *reconcile.Panic) {
	r.index.requireWholeFleet(uid)
	b, ok := r.Bundles.Get(uid)
	if !ok || r.Events == nil || p.IsRepeated {
		return
	}
	text := "it cannot be placed by a defect of Atoll: what runs is kept, and the hub tries again; its log has the place"
	if r.isBundleOrNamespaceDeleting(b) {
		text = "it cannot be placed by a defect of Atoll: it is deleted all the same, with pauses; the hub's log has the place"
	}
	r.Events.Warn(b.Ref, atoll.ReasonReconcilePanicked, text)
}

// touchClusterInAllBundles touches a cluster whose comparison panicked in all Bundles. The comparison had
// recorded the new state of the cluster, so that the next comparison may find no change.
func (r *PlacementReconciler) touchClusterInAllBundles(name string) {
	all := r.Bundles.List()
	for _, b := range all {
		r.index.touchCluster(b.Ref.UID, name)
	}
	r.enqueueRechecks(all)
}

// enqueueAllRows reconciles all rows of a Bundle.
func (r *PlacementReconciler) enqueueAllRows(uid string) {
	r.index.requireAllRows(uid)
	r.bundleLoop.EnqueueNow(uid)
}

// enqueueRechecks reconciles all rows of Bundles, behind the Bundles that changed.
func (r *PlacementReconciler) enqueueRechecks(all []state.Bundle) {
	for _, b := range all {
		r.index.requireAllRows(b.Ref.UID)
		r.bundleLoop.EnqueueRecheck(b.Ref.UID, 0)
	}
}

// enqueueAt reconciles a Bundle at a time; zero: never.
func (r *PlacementReconciler) enqueueAt(uid string, when time.Time) {
	if !when.IsZero() {
		r.bundleLoop.EnqueueAfter(uid, max(time.Until(when), time.Millisecond))
	}
}
