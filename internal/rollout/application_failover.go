package rollout

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
)

// An application that is unhealthy in a connected cluster for tolerationSeconds counts as failed there, and the next decision takes it out if
// something replaces it. A failure is stored first, so that a hub that ends in between goes on with the same.
//
// A change of the templates is the matter of its rollout: a copy counts only at a revision that some cluster has reported healthy. If none ever
// did, as after a first installation, each copy counts that was applied. A new revision begins the time again.

// FailoverSettleTime is how long a hub sees a copy unhealthy before it acts upon that or stores it: reports after a connection or a start of the
// hub may be old. It is not longer than the toleration.
const FailoverSettleTime = 30 * time.Second

// CopyHealth is the health of a copy by its last report.
type CopyHealth int8

// The healths. A copy is unknown whose last report is about an earlier order, and one that does not stay.
const (
	HealthUnknown CopyHealth = iota
	HealthGood
	HealthBad
)

// HealthOf returns the health of a copy by its last report.
func HealthOf(row Row) CopyHealth {
	st := row.Status
	switch {
	case !staysAsCopy(row.Spec), st == nil || st.Generation != row.Spec.Generation || st.State == atoll.RowRemoved:
		return HealthUnknown
	case st.State == atoll.RowReady:
		return HealthGood
	}
	return HealthBad
}

// staysAsCopy reports whether the row orders a copy that is to stay.
func staysAsCopy(spec atoll.RowSpec) bool {
	return spec.Phase.IsChosen() && spec.Phase != atoll.RowPending
}

// WatchedCopy is since when this hub sees a copy unhealthy without a break, in one Cluster and at one revision.
type WatchedCopy struct {
	ClusterUID, Revision string
	Since                time.Time
}

// WatchCopy returns the copy as seen unhealthy at a time, which goes on with what was seen before.
func (w WatchedCopy) WatchCopy(spec atoll.RowSpec, now time.Time) WatchedCopy {
	if w.ClusterUID != spec.UID || w.Revision != spec.Revision || w.Since.IsZero() || w.Since.After(now) {
		return WatchedCopy{ClusterUID: spec.UID, Revision: spec.Revision, Since: now}
	}
	return w
}

// FailoverInput is what decides which copies of an application count as failed.
type FailoverInput struct {
	// Terms of the policy; nil: health moves nothing.
	Terms *v1alpha1.ApplicationFailover
	// Stored status; nil: nothing is stored.
	Stored *v1alpha1.ApplicationFailoverStatus
	// Watched copies after the last judgement, by cluster name.
	Watched map[string]WatchedCopy
	// Rows of the Bundle, by cluster name.
	Rows map[string]Row
	// Revision that all rows are to reach, and the number of the oldest acceptable one; 0: only Revision is.
	Revision    string
	MinRevision int64
	// Holds: a person stopped the changes or the decisions of the Bundle, so that nothing counts as failed now. HoldEndsAt is when that ends by
	// itself; zero: it does not.
	Holds      bool
	HoldEndsAt time.Time
	Now        time.Time
}

// FailoverOutput is what a judgement stores, and when the next one is due.
type FailoverOutput struct {
	// Status to store, and whether it differs from the stored one. The next step acts by it.
	Status  *v1alpha1.ApplicationFailoverStatus
	Changed bool
	// Failed lists the clusters whose copies begin to count as failed. Sorted.
	Failed []string
	// Watched copies, for the next judgement.
	Watched map[string]WatchedCopy
	// IsHeld: a copy would count as failed without the hold.
	IsHeld bool
	// RequeueAt is when time alone changes something; zero: never.
	RequeueAt time.Time
}

// JudgeFailover decides which copies count as failed. It is pure.
func JudgeFailover(in FailoverInput) FailoverOutput {
	if in.Terms == nil {
		return FailoverOutput{Changed: in.Stored != nil}
	}
	j := newFailoverJudge(in)
	j.recordHealthyRevision()
	for _, c := range j.listClusters() {
		j.judgeCluster(c)
	}
	j.failDueCopies()
	return j.buildOutput()
}

// FailedClusters returns the clusters in which the application failed by the stored status, for the next decision.
func FailedClusters(in FailoverInput) map[string]schedule.FailedCluster {
	if in.Terms == nil || in.Stored == nil || len(in.Stored.Clusters) == 0 {
		return nil
	}
	j, out := newFailoverJudge(in), map[string]schedule.FailedCluster{}
	isFull := j.countAvoided() >= in.Terms.MaxAvoided()
	for c, e := range j.entries {
		if failed, is := j.describeFailure(e, isFull); is {
			out[c] = failed
		}
	}
	return out
}

// failoverJudge is the work on one FailoverInput.
type failoverJudge struct {
	FailoverInput
	healthyRevision string
	lastHolders     []string
	entries         map[string]*v1alpha1.FailoverCluster
	watched         map[string]WatchedCopy
	due             []dueCopy
	output          FailoverOutput
}

// dueCopy is a copy that was unhealthy for long enough.
type dueCopy struct {
	cluster   string
	row       Row
	since, at time.Time
}

func newFailoverJudge(in FailoverInput) *failoverJudge {
	j := &failoverJudge{FailoverInput: in, entries: map[string]*v1alpha1.FailoverCluster{}, watched: map[string]WatchedCopy{}}
	if in.Stored == nil {
		return j
	}
	j.healthyRevision, j.lastHolders = in.Stored.HealthyRevision, in.Stored.ClustersBeforeFailover
	for i := range in.Stored.Clusters {
		e := in.Stored.Clusters[i]
		if row, has := in.Rows[e.Cluster]; has && row.Spec.UID != e.ClusterUID {
			continue // another Cluster of that name
		}
		j.entries[e.Cluster] = &e
	}
	return j
}

// recordHealthyRevision records the latest revision that a row reports healthy.
func (j *failoverJudge) recordHealthyRevision() {
	latest := atoll.RevisionNumber(j.healthyRevision)
	for _, row := range j.Rows {
		if n := atoll.RevisionNumber(row.Spec.Revision); n > latest && HealthOf(row) == HealthGood {
			latest, j.healthyRevision = n, row.Spec.Revision
		}
	}
}

// listClusters lists the clusters with a row or an entry, by name.
func (j *failoverJudge) listClusters() []string {
	all := make(map[string]bool, len(j.Rows)+len(j.entries))
	for c := range j.Rows {
		all[c] = true
	}
	for c := range j.entries {
		all[c] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// clockRule is what a judgement does to the time for which a copy is unhealthy.
type clockRule int8

const (
	// clockStays: the health is not known now.
	clockStays clockRule = iota
	clockStops
	clockRuns
)

func (j *failoverJudge) judgeCluster(c string) {
	row, has := j.Rows[c]
	if !has || !staysAsCopy(row.Spec) {
		j.leaveCluster(c, has)
		return
	}
	switch j.ruleOf(row) {
	case clockStops:
		j.stopClock(c)
	case clockRuns:
		j.runClock(c, row)
	case clockStays:
		if w, was := j.Watched[c]; was && row.Online {
			j.watched[c] = w
		}
	}
}

// ruleOf returns whether a copy that stays is unhealthy so that it counts. The copy of a disconnected cluster does not.
func (j *failoverJudge) ruleOf(row Row) clockRule {
	if !row.Online {
		if row.UncertainUntil.After(j.Now) {
			return clockStays
		}
		return clockStops
	}
	switch h := HealthOf(row); {
	case h == HealthUnknown:
		return clockStays
	case h == HealthGood, !j.countsRevision(row):
		return clockStops
	}
	return clockRuns
}

// countsRevision reports whether an unhealthy copy is the matter of its cluster, and not of a rollout: it holds what is ordered, and the revision
// is healthy in some cluster. Before the first healthy revision, a copy counts that could be applied.
func (j *failoverJudge) countsRevision(row Row) bool {
	if !atoll.IsAcceptableRevision(row.Spec.Revision, j.Revision, j.MinRevision) {
		return false
	}
	healthy := atoll.RevisionNumber(j.healthyRevision)
	if healthy == 0 {
		return row.Status.State != atoll.RowFailed
	}
	return atoll.RevisionNumber(row.Spec.Revision) <= healthy
}

// runClock goes on with the time of an unhealthy copy, and notes a copy whose time is over.
func (j *failoverJudge) runClock(c string, row Row) {
	w, e := j.watchCopy(c, row), j.entries[c]
	if e.HasFailed() {
		return
	}
	since, tolerated := w.Since, j.tolerationOf(row)
	if e.IsClock() && e.UnhealthySince.Time.Before(since) {
		since = e.UnhealthySince.Time
	}
	settled, at := w.Since.Add(min(tolerated, FailoverSettleTime)), since.Add(tolerated)
	if settled.After(at) {
		at = settled
	}
	if at.After(j.Now) {
		j.requeueNoLater(at)
	} else {
		j.due = append(j.due, dueCopy{c, row, since, at})
	}
	switch {
	case e.IsClock():
	case settled.After(j.Now):
		j.requeueNoLater(settled)
	default:
		j.startClock(c, row, since)
	}
}

// tolerationOf returns how long a copy is unhealthy before it counts as failed. A cluster that checks in has some of its intervals at least.
func (j *failoverJudge) tolerationOf(row Row) time.Duration {
	return max(j.Terms.Toleration(), ReadinessCheckIns*row.CheckIn)
}

// watchCopy returns since when this hub sees a copy unhealthy. A new revision begins the time again.
func (j *failoverJudge) watchCopy(c string, row Row) WatchedCopy {
	w := j.Watched[c].WatchCopy(row.Spec, j.Now)
	j.watched[c] = w
	if e := j.entries[c]; e != nil && e.Revision != row.Spec.Revision {
		j.stopClockOf(c)
	}
	return w
}

// startClock stores since when a copy is unhealthy.
func (j *failoverJudge) startClock(c string, row Row, since time.Time) *v1alpha1.FailoverCluster {
	e := j.entries[c]
	if e == nil {
		e = &v1alpha1.FailoverCluster{Cluster: c, ClusterUID: row.Spec.UID}
		j.entries[c] = e
	}
	e.Revision, e.UnhealthySince, e.FailedAt = row.Spec.Revision, storedTime(since), nil
	return e
}

// stopClock ends the time of a copy that is healthy, or that does not count.
func (j *failoverJudge) stopClock(c string) {
	j.stopClockOf(c)
	e := j.entries[c]
	if e.IsAvoided(j.Now) { // the copy is back before the end of its backoff, and counts as any other
		e.AvoidedUntil = storedTime(j.Now)
	}
	j.forgetCluster(c)
}

// forgetCluster drops a cluster that had no failure for as long as its last backoff after it.
func (j *failoverJudge) forgetCluster(c string) {
	if e := j.entries[c]; e != nil && e.AvoidedUntil != nil && !e.AvoidedUntil.Add(j.Terms.Backoff(e.Failovers)).After(j.Now) {
		delete(j.entries, c)
	}
}

// stopClockOf ends the time of a copy. An earlier failover out of the cluster stays stored.
func (j *failoverJudge) stopClockOf(c string) {
	e := j.entries[c]
	if e == nil || e.UnhealthySince == nil {
		return
	}
	if e.UnhealthySince, e.FailedAt = nil, nil; e.AvoidedUntil == nil {
		delete(j.entries, c)
	}
}

// leaveCluster begins to avoid a cluster that a failed copy leaves. The old copy may still be there.
func (j *failoverJudge) leaveCluster(c string, hasRow bool) {
	e := j.entries[c]
	switch {
	case e == nil:
		return
	case e.HasFailed():
		e.Failovers++
		e.UnhealthySince, e.AvoidedUntil = nil, storedTime(j.Now.Add(j.Terms.Backoff(e.Failovers)))
	case e.IsClock():
		j.stopClockOf(c)
	}
	if e.AvoidedUntil == nil {
		return
	}
	if most := j.Now.Add(j.Terms.Backoff(e.Failovers)); e.AvoidedUntil.After(most) { // a clock was ahead, or the backoff is shorter now
		e.AvoidedUntil = storedTime(most)
	}
	if !hasRow {
		j.forgetCluster(c)
	}
}

// failDueCopies lets copies count as failed whose time is over, the first ones first, as far as the bound allows.
func (j *failoverJudge) failDueCopies() {
	slices.SortFunc(j.due, func(a, b dueCopy) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.cluster, b.cluster)) })
	left := j.Terms.MaxAvoided() - j.countAvoided()
	for _, d := range j.due {
		if left--; left < 0 || j.Holds { // the end of a backoff requests the next judgement
			break
		}
		e := j.startClock(d.cluster, d.row, d.since)
		e.FailedAt = storedTime(j.Now)
		j.output.Failed = append(j.output.Failed, d.cluster)
	}
	if slices.Sort(j.output.Failed); len(j.output.Failed) > 0 {
		j.lastHolders = j.listHolders()
	}
	if j.output.IsHeld = j.Holds && (len(j.due) > 0 || j.hasFailedCopy()); j.output.IsHeld {
		j.requeueIfLater(j.HoldEndsAt)
	}
}

// hasFailedCopy reports whether a copy counts as failed, and has not left yet.
func (j *failoverJudge) hasFailedCopy() bool {
	for _, e := range j.entries {
		if e.HasFailed() {
			return true
		}
	}
	return false
}

// countAvoided counts the clusters that the application is to leave, or avoids.
func (j *failoverJudge) countAvoided() (n int) {
	for _, e := range j.entries {
		if e.HasFailed() || !e.IsClock() && e.IsAvoided(j.Now) {
			n++
		}
	}
	return n
}

// listHolders lists the first clusters with a copy, by name.
func (j *failoverJudge) listHolders() (names []string) {
	for _, c := range slices.Sorted(maps.Keys(j.Rows)) {
		if staysAsCopy(j.Rows[c].Spec) && len(names) < v1alpha1.MaxFailoverClusters {
			names = append(names, c)
		}
	}
	return names
}

// buildOutput returns what is to be stored, within its bound.
func (j *failoverJudge) buildOutput() FailoverOutput {
	list := make([]v1alpha1.FailoverCluster, 0, len(j.entries))
	for _, c := range slices.Sorted(maps.Keys(j.entries)) {
		list = append(list, *j.entries[c])
	}
	if len(list) > v1alpha1.MaxFailoverClusters {
		slices.SortStableFunc(list, j.compareWeight)
		list = list[:v1alpha1.MaxFailoverClusters]
		slices.SortFunc(list, func(a, b v1alpha1.FailoverCluster) int { return strings.Compare(a.Cluster, b.Cluster) })
	}
	for i := range list {
		if until := list[i].AvoidedUntil; until != nil {
			j.requeueIfLater(until.Time)
		}
	}
	out := j.output
	if out.Watched = j.watched; j.healthyRevision != "" || len(list)+len(j.lastHolders) > 0 {
		out.Status = &v1alpha1.ApplicationFailoverStatus{HealthyRevision: j.healthyRevision, ClustersBeforeFailover: j.lastHolders}
	}
	if len(list) > 0 {
		out.Status.Clusters = list
	}
	out.Changed = !equality.Semantic.DeepEqual(j.Stored, out.Status)
	return out
}

// compareWeight orders what is stored by what its loss would cost: failed and avoided clusters, then former failovers, the latest first, then
// clocks, the earliest first.
func (j *failoverJudge) compareWeight(a, b v1alpha1.FailoverCluster) int {
	weigh := func(e *v1alpha1.FailoverCluster) (rank int, at int64) {
		switch {
		case e.HasFailed() || !e.IsClock() && e.IsAvoided(j.Now):
			return 0, 0
		case e.AvoidedUntil != nil:
			return 1, -e.AvoidedUntil.Unix()
		case e.UnhealthySince != nil:
			return 2, e.UnhealthySince.Unix()
		}
		return 3, 0
	}
	rankA, atA := weigh(&a)
	rankB, atB := weigh(&b)
	return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(atA, atB))
}

// describeFailure returns what a decision has to know about an entry; false: nothing.
func (j *failoverJudge) describeFailure(e *v1alpha1.FailoverCluster, isFull bool) (schedule.FailedCluster, bool) {
	out := schedule.FailedCluster{UID: e.ClusterUID}
	if e.FailedAt != nil {
		out.Reason = "the application failed here at " + phrase.FormatTime(e.FailedAt.Time)
	}
	if row, has := j.Rows[e.Cluster]; !has || !staysAsCopy(row.Spec) {
		if e.AvoidedUntil != nil {
			out.AvoidedUntil = e.AvoidedUntil.Time
		}
		return out, e.FailedAt != nil && (e.HasFailed() || e.IsAvoided(j.Now) || hasOldCopy(row.Spec))
	}
	if !j.isDue(e) {
		return out, false
	}
	since := "unhealthy since " + phrase.FormatTime(e.UnhealthySince.Time)
	switch {
	case j.Holds:
		out.StayReason, out.StayText = atoll.ReasonFailoverHeld, since+"; a freeze, a pause or a suspension holds the failover"
	case e.HasFailed():
	case isFull:
		out.StayReason, out.StayText = atoll.ReasonFailoverLimitReached, since+"; as many clusters are avoided as maxAvoidedClusters allows"
	default: // it counts as failed when this is stored
		return out, false
	}
	return out, true
}

// hasOldCopy reports whether an old copy may still be in the cluster of a row, which is empty where there is none. The copy is not used again
// before it is gone.
func hasOldCopy(spec atoll.RowSpec) bool { return spec.UID != "" && spec.Phase != atoll.RowPending }

// isDue reports whether the copy of an entry is unhealthy now, and was for long enough.
func (j *failoverJudge) isDue(e *v1alpha1.FailoverCluster) bool {
	row := j.Rows[e.Cluster]
	if e.Revision != row.Spec.Revision || j.ruleOf(row) != clockRuns {
		return false
	}
	return e.HasFailed() || e.IsClock() && !e.UnhealthySince.Add(j.tolerationOf(row)).After(j.Now)
}

// storedTime returns a time as the status stores it, to the second.
func storedTime(t time.Time) *metav1.Time {
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

func (j *failoverJudge) requeueNoLater(at time.Time) {
	if j.output.RequeueAt.IsZero() || at.Before(j.output.RequeueAt) {
		j.output.RequeueAt = at
	}
}

// requeueIfLater requests a judgement at a time that is not over.
func (j *failoverJudge) requeueIfLater(at time.Time) {
	if at.After(j.Now) {
		j.requeueNoLater(at)
	}
}
