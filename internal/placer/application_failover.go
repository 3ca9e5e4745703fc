package placer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// failoverStep is what a step judged about the health of its Bundle's application; zero where the policy states no failover of it.
type failoverStep struct {
	terms *v1alpha1.ApplicationFailover
	// failed clusters by the stored status, which this step acts by.
	failed map[string]schedule.FailedCluster
	// isJudged: the step looked at all rows. isWatched: reports of the copies may begin a failover.
	isJudged, isWatched bool
	output              rollout.FailoverOutput
}

// judgeFailover judges the health of a Bundle's application. A placement that takes all clusters that fit, and divides nothing, moves nothing:
// its copies are not judged, and nothing is stored about them.
func (r *PlacementReconciler) judgeFailover(b *state.Bundle, v *bundleView, in rollout.FailoverInput, divides bool) failoverStep {
	in.Terms, in.Stored = b.Spec.Failover.GetApplication(), b.Status.Failover
	if in.Terms == nil && in.Stored == nil {
		return failoverStep{}
	}
	out := failoverStep{terms: in.Terms, isJudged: !v.isPartial}
	if !divides && !v.filter.LimitsClusters() && !v.filter.HasGroups() {
		in.Terms = nil
	}
	in.Watched, out.failed = r.index.copyWatchedCopies(b.Ref.UID), rollout.FailedClusters(in)
	if out.isJudged {
		out.output, out.isWatched = rollout.JudgeFailover(in), in.Terms != nil
	}
	return out
}

// touchFailedClusters makes the next step look at the clusters that the application left, which may be used again.
func (r *PlacementReconciler) touchFailedClusters(b state.Bundle) {
	if b.Status.Failover == nil {
		return
	}
	for i := range b.Status.Failover.Clusters {
		r.index.touchCluster(b.Ref.UID, b.Status.Failover.Clusters[i].Cluster)
	}
}

// awaitedConnections adds the disconnected clusters with unhealthy copies to those whose connection a decision awaits. Sorted.
func (f *failoverStep) awaitedConnections(held []string, rows map[string]rollout.Row) []string {
	if !f.isWatched {
		return held
	}
	var more []string
	for c, row := range rows {
		if !row.Online && rollout.HealthOf(row) == rollout.HealthBad {
			more = append(more, c)
		}
	}
	if len(more) == 0 {
		return held
	}
	more = append(more, held...)
	slices.Sort(more)
	return slices.Compact(more)
}

// healthWatch is what of the health of a Bundle's copies was last seen, so that only news begin a step.
type healthWatch struct {
	// reports by cluster, as a step or a later report has them. during are those that came in the step under way, until it has recorded what it
	// judged; nil: none is under way.
	reports, during map[string]rollout.CopyHealth
	watched         map[string]rollout.WatchedCopy
	// clocks are the clusters whose unhealthy copies the status lists.
	clocks map[string]bool
	// healthy is the number of the latest revision that a cluster has reported healthy.
	healthy int64
	// settle is how long a step may wait after a copy became unhealthy.
	settle time.Duration
}

// beginStep drops reports that a step will read. It is for a watch that may be nil.
func (w *healthWatch) beginStep() {
	if w != nil {
		w.during = map[string]rollout.CopyHealth{}
	}
}

// copyWatchedCopies returns since when copies are seen unhealthy.
func (x *bundleIndex) copyWatchedCopies(uid string) map[string]rollout.WatchedCopy {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil && e.health != nil {
		return maps.Clone(e.health.watched)
	}
	return nil
}

// watchesHealth reports whether reports about a Bundle may begin a failover.
func (x *bundleIndex) watchesHealth(uid string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	return e != nil && e.health != nil
}

// healthChanged begins a step where a report is news for the failover of an application.
func (r *PlacementReconciler) healthChanged(uid string, clusters []string) {
	if !r.index.watchesHealth(uid) {
		return
	}
	for _, c := range clusters {
		row, ok := r.Rows.Get(uid, c)
		if !ok {
			continue
		}
		if after, isNews := r.index.recordReport(uid, c, rollout.Row{Spec: row.Spec, Status: row.Status}, time.Now()); isNews {
			r.bundleLoop.EnqueueAfter(uid, after)
		}
	}
}

// recordReport records the health of a copy, and reports whether a step has to follow, and how long it may wait.
func (x *bundleIndex) recordReport(uid, cluster string, row rollout.Row, now time.Time) (after time.Duration, isNews bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || e.health == nil {
		return 0, false
	}
	w, is := e.health, rollout.HealthOf(row)
	if w.during != nil { // the end of the step compares it with what the step has read
		w.during[cluster] = is
		return 0, false
	}
	was := w.reports[cluster]
	w.reports[cluster] = is
	switch {
	case is == rollout.HealthBad && was != is:
		w.watched[cluster] = w.watched[cluster].WatchCopy(row.Spec, now)
		e.requireAllRows()
		return w.settle, true
	case is == rollout.HealthGood:
		if delete(w.watched, cluster); w.clocks[cluster] || atoll.RevisionNumber(row.Spec.Revision) > w.healthy {
			e.requireAllRows()
			return e.awaitDelay(), true
		}
	}
	return 0, false
}

// recordHealth records what a step has judged. It reports whether a report came in the step that the step has not read.
func (x *bundleIndex) recordHealth(uid string, next *healthWatch) (again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return false
	}
	was := e.health
	if e.health = next; next == nil {
		return false
	}
	if was == nil { // reports before this were not recorded
		return true
	}
	for c, is := range was.during {
		again = again || is != next.reports[c]
		next.reports[c] = is
	}
	return again
}

// newHealthWatch returns what of a step is compared with later reports. The order of a row that the step changed is not reported about yet.
func (s *stepInput) newHealthWatch(out rollout.Output) *healthWatch {
	f := &s.failover
	if !f.isWatched {
		return nil
	}
	w := &healthWatch{
		reports: make(map[string]rollout.CopyHealth, len(s.rollout.Rows)), watched: f.output.Watched, clocks: map[string]bool{},
		settle: min(f.terms.Toleration(), rollout.FailoverSettleTime),
	}
	for c, row := range s.rollout.Rows {
		if next, changes := out.Changes[c]; !changes || next != nil && next.Generation == row.Spec.Generation {
			w.reports[c] = rollout.HealthOf(row)
		}
	}
	if is := f.output.Status; is != nil {
		w.healthy = atoll.RevisionNumber(is.HealthyRevision)
		for i := range is.Clusters {
			w.clocks[is.Clusters[i].Cluster] = is.Clusters[i].UnhealthySince != nil
		}
	}
	return w
}

// followHealth records what a step has judged, and requests the step at which time alone changes something.
func (r *PlacementReconciler) followHealth(s *stepInput, out rollout.Output) {
	uid := s.bundle.Ref.UID
	if r.index.recordHealth(uid, s.newHealthWatch(out)) {
		r.enqueueAllRows(uid)
	}
	r.enqueueAt(uid, s.failover.output.RequeueAt)
}

// writeFailover stores what a step has judged. The next step acts by it.
func (r *PlacementReconciler) writeFailover(ctx context.Context, b state.Bundle, f *failoverStep) error {
	if !f.isJudged || !f.output.Changed || r.SetFailover == nil {
		return nil
	}
	err := r.SetFailover(ctx, b, f.output.Status)
	switch {
	case err == nil && len(f.output.Failed) > 0:
		r.Metrics.failedCopies.Add(float64(len(f.output.Failed)))
		r.warnOfFailedCopies(b, f)
		r.enqueueAllRows(b.Ref.UID)
	case apierrors.IsConflict(err): // another writer changed the Bundle
		r.index.requireAllRows(b.Ref.UID)
		r.bundleLoop.EnqueueAfter(b.Ref.UID, 100*time.Millisecond)
		return nil
	}
	return client.IgnoreNotFound(err)
}

// warnOfFailedCopies records an Event about the copies that count as failed now.
func (r *PlacementReconciler) warnOfFailedCopies(b state.Bundle, f *failoverStep) {
	var parts []string
	for i := range f.output.Status.Clusters {
		if e := &f.output.Status.Clusters[i]; slices.Contains(f.output.Failed, e.Cluster) {
			parts = append(parts, fmt.Sprintf("%s since %s", e.Cluster, phrase.FormatTime(e.UnhealthySince.Time)))
		}
	}
	r.recordWarning(b, atoll.ReasonApplicationFailed, "the application is unhealthy in "+strings.Join(parts, ", ")+"; it moves to another cluster, if one can take its place")
}
