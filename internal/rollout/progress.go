package rollout

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// RowProgress is where a row is in a rollout.
type RowProgress int

// The progress of a row. A disconnected row is outside all bounds. A waiting row keeps its revision until its
// turn. The others hold what is ordered.
const (
	RowDisconnected RowProgress = iota
	RowWaiting
	RowChanging
	RowFailing
	RowUpdated
	// RowSuspended waits for the end of a suspension of its cluster, outside of all bounds.
	RowSuspended
)

// StageTally counts the rows of a stage.
type StageTally struct {
	// Clusters that are connected.
	Clusters int
	// Updated, Changing, Failed and Waiting are parts of Clusters.
	Updated, Changing, Failed, Waiting int
	// OutsideWindow may not change now by the change windows. They are a part of Waiting. The first of them may change at opensAt, in
	// Unix seconds, if it opens.
	OutsideWindow int
	opensAt       int64
	opens         bool
	// Ordered wait for Bundles of other policies, as order describes. They are a part of Waiting, and none of OutsideWindow.
	Ordered int
	order   atoll.RowReason
	// Accepted hold nothing, by FailureScope. They are a part of Failed.
	Accepted int
	// Marked are those by which the stage failed, and which hold it whatever joins or leaves. They are a part of Failed.
	Marked int
	// Soaking are healthy for a shorter time than minSuccessTime. They are a part of Updated.
	Soaking int
	// ToReturn hold a revision that is rolled back. Returning have left it, and are not healthy yet. ReturnFailed have left it, and
	// are unhealthy.
	ToReturn, Returning, ReturnFailed int
	// Disconnected clusters, and those of them that do not hold what is ordered.
	Disconnected, DisconnectedWaiting int
	// Suspended clusters, and those of them that do not hold what is ordered. They are no part of Clusters.
	Suspended, SuspendedWaiting int
}

// AddRows counts rows of equal progress.
func (t *StageTally) AddRows(p RowProgress, n int) {
	switch p {
	case RowDisconnected:
		t.Disconnected += n
		return
	case RowSuspended:
		t.Suspended += n
		return
	}
	t.Clusters += n
	switch p {
	case RowWaiting:
		t.Waiting += n
	case RowChanging:
		t.Changing += n
	case RowFailing:
		t.Failed += n
	case RowUpdated:
		t.Updated += n
	}
}

// AddOutsideWaiting counts rows outside of all bounds that do not hold what is ordered. AddRows has counted them.
func (t *StageTally) AddOutsideWaiting(p RowProgress, n int) {
	switch p {
	case RowDisconnected:
		t.DisconnectedWaiting += n
	case RowSuspended:
		t.SuspendedWaiting += n
	}
}

// PlaceRow returns where a row is, and whether maxUnavailable counts it. isWanted: it holds what is
// ordered. A row by which its stage failed holds it wherever its cluster is.
func (t *Terms) PlaceRow(row Row, isWanted bool, now time.Time) (p RowProgress, isUnavailable bool) {
	counts := row.Online || isWanted && t.CountsUntil(row, now).After(now)
	switch {
	case isWanted && row.Spec.FailedAt != 0:
		return RowFailing, counts && !row.isReady()
	case row.Suspended && !isWanted:
		return RowSuspended, false
	case !counts:
		return RowDisconnected, false
	case !isWanted:
		p = RowWaiting
	case row.isFailing():
		p = RowFailing
	case row.reportsReady():
		p = RowUpdated
	default:
		p = RowChanging
	}
	return p, !row.isReady()
}

// CountsUntil returns until when a row of a disconnected cluster, which holds what is ordered,
// counts as it last reported. A lost stream is no success: a change that is not complete goes on for the time in
// which clusters come back, and
// minSuccessTime runs to its end. After that the cluster blocks nothing.
func (t *Terms) CountsUntil(row Row, now time.Time) time.Time {
	success := t.successTimeOf(row.Stage)
	if row.reportsReady() {
		return time.Unix(row.healthySince(now.Unix()), 0).Add(success)
	}
	lost := row.LostAt
	if moved := time.Unix(row.Spec.MovedAt, 0); moved.After(lost) { // it was connected then
		lost = moved
	}
	return lost.Add(max(row.readinessTimeout(), success))
}

// LossTime returns when a cluster that is not connected was lost; zero: it never was ready. The condition Ready becomes unknown
// a moment after the loss. Until then the loss is now.
func LossTime(c *v1alpha1.Cluster, now time.Time) time.Time {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	switch {
	case ready == nil:
		return time.Time{}
	case ready.Status == metav1.ConditionUnknown:
		return ready.LastTransitionTime.Time
	}
	return now
}

// isFailing reports whether the row could not be applied, is unhealthy and does not become healthy by itself, or is not
// healthy within progressDeadline, or whether its stage failed by it.
func (r Row) isFailing() bool {
	return r.Spec.FailedAt != 0 || r.lateAt != 0 || r.reportsFailure()
}

// reportsFailure reports whether the row, by its last report, could not be applied or does not become healthy by itself.
func (r Row) reportsFailure() bool {
	st := r.Status
	return st != nil && st.Generation == r.Spec.Generation && (st.State == atoll.RowFailed || st.State == atoll.RowDegraded)
}

// isUnhealthy reports whether a change of the row makes no further cluster unavailable.
func (r Row) isUnhealthy() bool { return !r.isReady() && !r.isSharing() }

// isSharing reports whether the row was healthy after its last turn, and has not reported another share of replicas yet.
func (r Row) isSharing() bool {
	st := r.Status
	return st != nil && st.State == atoll.RowReady && st.Generation < r.Spec.Generation && st.Since >= r.Spec.MovedAt
}

// healthySince returns since when the row is healthy at its revision, in Unix seconds. A time in the future, of a
// clock that was set back, counts as now, and one of the member's clock does not count.
func (r Row) healthySince(now int64) int64 {
	since := min(r.Spec.MovedAt, now)
	if r.Status != nil && r.Status.Since <= now {
		since = max(since, r.Status.Since)
	}
	return since
}

// isDone reports whether the next stage may begin.
func (t *Terms) isDone(i int, n StageTally) bool {
	return n.Waiting+n.Changing+n.Soaking == 0 && !t.isFailed(i, n)
}

// isFailed reports whether a stage has more failures than it may, or had.
func (t *Terms) isFailed(i int, n StageTally) bool {
	most := t.failuresOf(i, n.Clusters)
	return n.Failed-n.Accepted > most || n.Marked > 0 && most != noBound
}

// AddFailures judges failing rows of equal content, which AddRows has counted.
func (t *StageTally) AddFailures(row Row, isHeld bool, n int) {
	switch {
	case !isHeld:
		t.Accepted += n
	case row.Spec.FailedAt != 0:
		t.Marked += n
	}
}

// Progress is what a rollout's rows count to.
type Progress struct {
	// Stages by index.
	Stages []StageTally
	// Unavailable connected clusters of all stages, those of them that failed with what is wanted, and the first few names.
	Unavailable, UnavailableFailed int
	unavailableNames               []string
	// Copies of the Bundle, for its disruption budget.
	Copies CopyTally
}

// AddUnavailable counts rows of equal progress that maxUnavailable counts. The names are those of their clusters, or the
// first of them. A row that failed with an earlier revision waits for its change.
func (p *Progress) AddUnavailable(of RowProgress, n int, names ...string) {
	p.Unavailable += n
	if of == RowFailing {
		p.UnavailableFailed += n
	}
	p.unavailableNames = insertFewNames(p.unavailableNames, names)
}

// insertFewNames inserts names into the first few in order.
func insertFewNames(first, names []string) []string {
	for _, name := range names {
		i, _ := slices.BinarySearch(first, name)
		if i >= fewNames {
			continue
		}
		first = slices.Insert(first, i, name)
		first = first[:min(len(first), fewNames)]
	}
	return first
}

// NewProgress returns a progress without rows.
func (t *Terms) NewProgress() Progress { return Progress{Stages: make([]StageTally, t.CountStages())} }

// FirstTurn is the first turn of a rollout that is previewed.
type FirstTurn struct {
	Terms *Terms
	Halt  Halt
	// Progress after the turn, and for what the other rows wait then.
	Progress Progress
	Wait     StageWait
}

// DescribeWait returns what the rows wait for after the turn; empty where no row waits.
func (f *FirstTurn) DescribeWait() string {
	switch {
	case f.Wait.Reason == "":
		return ""
	case IsHaltReason(f.Wait.Reason):
		return f.Halt.Describe()
	}
	return f.Terms.DescribeStageWait(f.Wait, &f.Progress)
}

// countWaiting returns how many rows do not hold what is ordered.
func (p *Progress) countWaiting() (n int) {
	for i := range p.Stages {
		n += p.Stages[i].Waiting + p.Stages[i].DisconnectedWaiting + p.Stages[i].SuspendedWaiting
	}
	return n
}

// hasSuspendedWaiting reports whether a cluster waits for the end of a suspension of its own.
func (p *Progress) hasSuspendedWaiting() bool {
	return slices.ContainsFunc(p.Stages, func(n StageTally) bool { return n.SuspendedWaiting > 0 })
}

// countConnected returns how many clusters are connected.
func (p *Progress) countConnected() (n int) {
	for i := range p.Stages {
		n += p.Stages[i].Clusters
	}
	return n
}

// waitsFrom reports whether a connected cluster of the stage, or of a later one, waits.
func (p *Progress) waitsFrom(stage int) bool {
	return slices.ContainsFunc(p.Stages[stage:], func(n StageTally) bool { return n.Waiting > 0 })
}

// MarkSoaking counts the healthy rows of the last stage that has begun as soaking, where only its minSuccessTime can
// keep the next one from beginning: gates are judged after it. It is for readers without the times of rows.
func (p *Progress) MarkSoaking(t *Terms, gates GateStates) {
	laterWaits := false
	for i := len(p.Stages) - 1; i >= 0; i-- {
		n := &p.Stages[i]
		if n.Updated+n.Changing+n.Failed == 0 {
			laterWaits = laterWaits || n.Waiting > 0
			continue
		}
		if laterWaits && n.Waiting+n.Changing == 0 && t.successTimeOf(i) > 0 && !t.areGatesJudged(i+1, gates) {
			n.Soaking = n.Updated
		}
		return
	}
}

// StageWait is for what the rows of a rollout wait. Stage is the index of the stage that changes or holds; -1: none
// does. Reason is empty where no row waits.
type StageWait struct {
	Stage  int
	Reason atoll.Reason
	// gate for which they wait, with the value of its verdict, and the rollback; nil: none.
	gate      *gate
	gateValue string
	rollback  *v1alpha1.RollbackStatus
	// isUncut: they wait until the clusters are divided into automatic stages.
	isUncut bool
}

// isDecided reports whether a gate or a rollback, which are stored, holds the rows.
func (w *StageWait) isDecided() bool { return w.gate != nil || w.rollback != nil }

// areGatesJudged reports whether a gate into the stage, or into a later one, has a verdict.
func (t *Terms) areGatesJudged(from int, gates GateStates) bool {
	for i := from; i < t.CountStages(); i++ {
		for k := range t.gatesInto(i) {
			if gates.find(&t.stages[i].gates[k]) != nil {
				return true
			}
		}
	}
	return false
}

// FindStageWait returns for what the rows of a rollout wait.
func (t *Terms) FindStageWait(p Progress, halt Halt, gates GateStates) StageWait {
	waiting := p.countWaiting() > 0
	if waiting && !halt.IsHalted() {
		for i, n := range p.Stages {
			if t.isFailed(i, n) {
				return StageWait{Stage: i, Reason: atoll.ReasonStageFailed}
			}
		}
	}
	w := t.findCurrentStage(p, gates)
	switch {
	case !waiting:
		w.Reason = ""
	case halt.IsHalted():
		w.Reason, w.gate, w.isUncut = halt.Reason(), nil, false
	case w.Stage < 0 && p.hasSuspendedWaiting():
		w.Reason = atoll.ReasonDispatchingSuspended
	case w.Stage < 0:
		w.Reason = atoll.ReasonWaitsForCluster
	}
	return w
}

// findCurrentStage returns the stage that changes, or the one that a gate holds.
func (t *Terms) findCurrentStage(p Progress, gates GateStates) StageWait {
	if t.isUncut(gates.revision) && p.waitsFrom(0) {
		return StageWait{Reason: atoll.ReasonWaitsForStage, isUncut: true}
	}
	waiting := p.countWaiting() > 0
	for i, n := range p.Stages {
		if p.waitsFrom(i) {
			if g := gates.findClosed(t.gatesInto(i)); g != nil {
				return gates.newGateWait(i, g)
			}
		}
		if !t.isDone(i, n) && (waiting || n.Changing > 0) {
			return StageWait{Stage: i, Reason: t.reasonInStage(i, n, p)}
		}
	}
	return StageWait{Stage: -1}
}

// reasonInStage returns for what rows wait while a stage changes.
func (t *Terms) reasonInStage(i int, n StageTally, p Progress) atoll.Reason {
	switch {
	case n.Waiting == 0 && n.Changing == 0:
		return atoll.ReasonWaitsForSuccessTime
	case n.Waiting == 0:
		return atoll.ReasonWaitsForStage
	case n.Ordered > 0 && n.Waiting == n.Ordered+n.OutsideWindow:
		return n.order.Reason
	case n.Waiting == n.OutsideWindow:
		return atoll.ReasonOutsideWindow
	case n.Changing >= t.concurrencyOf(i, n.Clusters):
		return atoll.ReasonMaxConcurrencyReached
	case p.Copies.isSpent():
		return p.Copies.Reason()
	case p.UnavailableFailed >= t.unavailableOf(p.countConnected()):
		return atoll.ReasonTooManyUnhealthy
	case p.Unavailable >= t.unavailableOf(p.countConnected()):
		return atoll.ReasonMaxUnavailableReached
	}
	return atoll.ReasonWaitsForStage
}

// DescribeStageWait returns what the rows of a rollout wait for, in a few words.
func (t *Terms) DescribeStageWait(w StageWait, p *Progress) string {
	if w.Stage < 0 {
		return "disconnected clusters to come back"
	}
	if w.isUncut {
		return "the hub to divide the connected clusters into stages"
	}
	if w.gate != nil {
		return w.gate.describeStoredWait(w.Reason, w.gateValue)
	}
	if w.rollback != nil {
		return t.describeRollback(w, p)
	}
	n, in := p.Stages[w.Stage], "stage "+t.StageName(w.Stage)
	if atoll.IsOrderReason(w.Reason) {
		return n.order.Text
	}
	switch w.Reason {
	case atoll.ReasonStageFailed:
		return in + ", in which " + phrase.CountNoun(n.Failed-n.Accepted, "cluster") + " failed: another template, or `atoll rollout resume`"
	case atoll.ReasonOutsideWindow:
		return describeOpening(in, time.Unix(n.opensAt, 0), n.opens)
	case atoll.ReasonWaitsForSuccessTime:
		return in + " to stay healthy for minSuccessTime"
	case atoll.ReasonMaxConcurrencyReached:
		return "a cluster of " + in + " to become healthy: " + strconv.Itoa(n.Changing) + " change, as many as maxConcurrency allows"
	case atoll.ReasonDisruptionBudget, atoll.ReasonDisruptionBudgetTooStrict:
		return p.Copies.Describe()
	case atoll.ReasonMaxUnavailableReached, atoll.ReasonTooManyUnhealthy:
		return t.describeUnavailable(w.Reason, p)
	}
	return in + " to become healthy"
}

// describeUnavailable names the unhealthy clusters, and the way on.
func (t *Terms) describeUnavailable(reason atoll.Reason, p *Progress) string {
	names, bound := phrase.JoinFirst(p.unavailableNames, fewNames, p.Unavailable), "maxUnavailable"
	if names == "" {
		names = "clusters"
	}
	names += " to become healthy"
	switch {
	case t.HasDefaultBound():
		bound = "maxUnavailable, by default " + v1alpha1.DefaultMaxUnavailable + ","
		names += ", another template, or `atoll rollout resume`"
	case reason == atoll.ReasonTooManyUnhealthy:
		names += ", or another template"
	}
	return names + ": as many are unhealthy as " + bound + " allows"
}
