package bundlestatus

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// rolloutView is what of a Bundle's rollout distinguishes its rows.
type rolloutView struct {
	stated *v1alpha1.Rollout
	cut    *v1alpha1.StageCut
	terms  *rollout.Terms
	halt   rollout.Halt
	// isOrdered: rows may wait for Bundles of other policies.
	isOrdered bool
	// resume excuses rows, also where its time is in the future by the clock of another hub.
	resume rollout.FailureScope
}

func (s *bundleSnapshot) rolloutView() rolloutView {
	out := rolloutView{stated: s.bundle.Spec.Rollout, cut: s.bundle.Status.Rollout.GetStageCut(), terms: s.terms, halt: s.halt, isOrdered: len(s.bundle.Spec.DependsOn) > 0}
	if at := resumeTimeOf(&s.bundle); !at.IsZero() {
		out.resume = rollout.NewFailureScope(at, at)
	}
	return out
}

// resumeTimeOf returns when a person last resumed the rollout; zero: never.
func resumeTimeOf(b *state.Bundle) time.Time {
	if b.Spec.Resume == nil {
		return time.Time{}
	}
	return b.Spec.Resume.At.Time
}

// isBounded reports whether rows may keep their revision until their turn.
func (v rolloutView) isBounded() bool {
	return v.terms != nil || v.halt.HoldsChanges() || v.isOrdered
}

// isSame reports whether rows of equal content are in the same groups by both views.
func (v rolloutView) isSame(o rolloutView) bool {
	return v.isBounded() == o.isBounded() && v.resume == o.resume && equality.Semantic.DeepEqual(v.stated, o.stated) && equality.Semantic.DeepEqual(v.cut, o.cut) && equality.Semantic.DeepEqual(v.halt.Suspension, o.halt.Suspension)
}

// rowInRollout returns the view of a row, with its place in the Bundle's rollout.
func (r *BundleReconciler) rowInRollout(row state.Row, v rolloutView) Row {
	out := r.rowView(row)
	if !v.isBounded() {
		return out
	}
	out.isExcused = v.resume.IsExcused(v.terms, out.inRollout())
	out.Suspended = v.halt.Suspension.SuspendsByName(row.Cluster)
	if out.Reachable && v.terms.IsDefault() {
		return out // it has one stage, and is not lost
	}
	if c, ok := r.Clusters.GetByUID(row.Spec.UID); ok {
		out.Stage = v.terms.StageOf(row.Cluster, c.Labels, c.CreationTimestamp.Unix())
		out.Windows = v.terms.WindowsOf(c.Labels, c.Spec.TimeZone)
		out.setLoss(c, v.terms, time.Now())
		out.setDeadline(c, v.terms, time.Now())
	}
	return out
}

// setDeadline sets when the row counts as failed.
func (r *Row) setDeadline(c *v1alpha1.Cluster, terms *rollout.Terms, now time.Time) {
	if r.Reachable {
		r.ConnectedAt = rollout.ConnectionTime(c, now)
		r.Deadline = terms.DeadlineOf(r.inRollout(), now)
	}
}

// setLoss sets when the cluster of the row was lost, and until when the row counts all the same. Rows that do not count any more are
// alike, whenever they were lost.
func (r *Row) setLoss(c *v1alpha1.Cluster, terms *rollout.Terms, now time.Time) {
	if r.Reachable {
		return
	}
	r.LostAt = rollout.LossTime(c, now)
	if end := terms.CountsUntil(r.inRollout(), now); end.After(now) {
		r.CountsUntil = end
	}
}

// wakeAtWindowChange requests another look for when a freeze ends, and for when other change windows are open, while clusters wait for their turn.
func (m *bundleMemo) wakeAtWindowChange(in StatusInput) {
	end := in.Halt.EndsAt()
	if !in.Terms.HasWindows() && end.IsZero() {
		return
	}
	t := countRows(in)
	if t.stageWait.Reason == atoll.ReasonChangesFrozen && end.After(in.Now) {
		m.wakeAfter(end.Sub(in.Now))
	}
	if t.windowsChange.After(in.Now) && t.stageWait.FollowsWindows() {
		m.wakeAfter(t.windowsChange.Sub(in.Now))
	}
}

// wakeAtCountChange requests another look for when the rollout counts a lost cluster no more, or a cluster that changes as failed.
func (m *bundleMemo) wakeAtCountChange(rows []Row, now time.Time) {
	for i := range rows {
		for _, at := range [...]time.Time{rows[i].CountsUntil, rows[i].Deadline} {
			if left := at.Sub(now); left > 0 {
				m.wakeAfter(left)
			}
		}
	}
}

// enqueueStagedBundlesOfCluster enqueues the Bundles of a cluster whose rows are counted by stage.
func (r *BundleReconciler) enqueueStagedBundlesOfCluster(clusterUID string) {
	for _, row := range r.Rows.ListOfCluster(clusterUID) {
		if b, ok := r.Bundles.Get(row.Bundle.UID); ok && b.Spec.Rollout != nil {
			r.markRowsChanged(row.Bundle.UID, row.Cluster)
			r.enqueueDebounced(row.Bundle.UID)
		}
	}
}

func (in StatusInput) isRolloutBounded() bool {
	return (in.Terms != nil || in.Halt.HoldsChanges() || in.isOrdered) && in.Bundle.Meta.DeletionTimestamp == nil
}

// withOrder returns the input with whether rows may wait for Bundles of other policies: the Bundle depends on some, or is removed after others.
func (in StatusInput) withOrder() StatusInput {
	in.isOrdered = len(in.Bundle.Spec.DependsOn) > 0 || slices.ContainsFunc(in.Rows, func(r Row) bool {
		return atoll.IsOrderReason(atoll.ParseRowReason(r.Spec.Reason).Reason)
	})
	return in
}

// isInRollout reports whether a row is one that a rollout changes.
func isInRollout(r Row) bool {
	return r.Spec.Phase != atoll.RowRemoving && r.Spec.Phase != atoll.RowVacant
}

// awaitsTurn reports whether a row keeps its revision, or has none, until its turn in the rollout.
func (in StatusInput) awaitsTurn(r Row) bool {
	if !in.isRolloutBounded() || !isInRollout(r) {
		return false
	}
	reason := atoll.ParseRowReason(r.Spec.Reason).Reason
	if r.Spec.Phase == atoll.RowPending {
		return reason == atoll.ReasonWaitsForStage || reason == atoll.ReasonDispatchingSuspended || atoll.IsOrderReason(reason)
	}
	return !in.acceptsRevision(r.Spec.Revision) && !(in.Terms.IsDefault() && reason == atoll.ReasonNoCapacity)
}

// countCopies counts the clusters with a copy, as rollouts do.
func countCopies(rows []Row) (n int) {
	for _, r := range rows {
		if r.Spec.Phase != atoll.RowPending {
			n += int(r.rowCount())
		}
	}
	return n
}

// inRollout returns the row as rollouts see it.
func (r Row) inRollout() rollout.Row {
	return rollout.Row{Spec: r.Spec, Status: r.Status, Online: r.Reachable, LostAt: r.LostAt, ConnectedAt: r.ConnectedAt, Stage: r.Stage, Windows: r.Windows, Suspended: r.Suspended, CheckIn: r.CheckIn}
}

// isReachableOrSuspended reports whether a row that awaits its turn waits for more than its cluster.
func (r Row) isReachableOrSuspended() bool { return r.Reachable || r.Suspended }

// isCounted reports whether a rollout counts a row: a Pending one only while it waits for its turn.
func (in StatusInput) isCounted(r Row) bool {
	return isInRollout(r) && (r.Spec.Phase != atoll.RowPending || in.awaitsTurn(r))
}

// failureScope returns which failures hold the rollout. Suspended clusters wait when their suspension ends, as disconnected ones do when they
// return.
func (in StatusInput) failureScope() rollout.FailureScope {
	out := rollout.NewFailureScope(resumeTimeOf(&in.Bundle), in.Now)
	for _, r := range in.Rows {
		if r.Reachable && !r.Suspended && in.awaitsTurn(r) {
			out.AddWaiting(r.inRollout())
		}
	}
	return out
}

// countProgress counts the rows by stage, by the function that the placer uses.
func (t *rowTally) countProgress(in StatusInput) {
	if !in.isRolloutBounded() {
		return
	}
	t.progress = in.Terms.NewProgress()
	t.progress.Copies = in.countDisruptions()
	scope, windows := in.failureScope(), in.Terms.ViewWindows(in.Now)
	for _, r := range in.Rows {
		if !in.isCounted(r) {
			continue
		}
		n, row := &t.progress.Stages[r.Stage], scope.JudgeRow(in.Terms, r.inRollout())
		isWanted := !in.awaitsTurn(r)
		p, isUnavailable := in.Terms.PlaceRow(row, isWanted, in.Now)
		n.AddRows(p, int(r.rowCount()))
		switch {
		case !isWanted:
			n.AddOutsideWaiting(p, int(r.rowCount()))
		case p == rollout.RowFailing:
			n.AddFailures(row, scope.IsHeldBy(in.Terms, row), int(r.rowCount()))
		}
		t.countWindowWait(&windows, r, p)
		in.countReturning(n, &scope, row, int(r.rowCount()))
		if r.Spec.Phase != atoll.RowPending && isUnavailable && !(isWanted && scope.IsExcused(in.Terms, row)) {
			t.progress.AddUnavailable(p, int(r.rowCount()), r.clusterNames()...)
		}
	}
	if r := in.rollbackOf(&scope); r != nil {
		t.stageWait = in.Terms.FindRollbackWait(t.progress, r, in.Halt)
		return
	}
	gates := in.gateStates(&scope)
	t.progress.MarkSoaking(in.Terms, gates)
	t.stageWait = in.Terms.FindStageWait(t.progress, in.Halt, gates)
}

// countWindowWait counts equal rows that wait, by other Bundles and by their change windows.
func (t *rowTally) countWindowWait(windows *changewindow.View, r Row, p rollout.RowProgress) {
	if p != rollout.RowWaiting {
		return
	}
	if why := atoll.ParseRowReason(r.Spec.Reason); atoll.IsOrderReason(why.Reason) {
		t.progress.Stages[r.Stage].AddOrdered(why, int(r.rowCount()))
		return
	}
	t.progress.Stages[r.Stage].AddOutsideWindow(windows, r.Windows, int(r.rowCount()))
	t.awaitWindowChange(windows.OpeningOf(r.Windows).Until)
}

// awaitWindowChange records when a window may begin to hold a row that waits, or hold it no more; zero: never.
func (t *rowTally) awaitWindowChange(at time.Time) {
	if !at.IsZero() && (t.windowsChange.IsZero() || at.Before(t.windowsChange)) {
		t.windowsChange = at
	}
}

// currentFreeze returns the freeze of all changes; nil: there is none.
func (r *BundleReconciler) currentFreeze() *v1alpha1.ChangeFreeze {
	if r.Settings == nil {
		return nil
	}
	return r.Settings.Freeze()
}

// freezeChanged looks again at the Bundles of which clusters wait for their turn.
func (r *BundleReconciler) freezeChanged(string) {
	for _, b := range r.Bundles.List() {
		if is := b.Status.Rollout; is != nil && is.Reason != "" {
			r.enqueueDebounced(b.Ref.UID)
		}
	}
}

// repeatAfterFreeze looks again at a Bundle where the freeze changed before its status was written, which freezeChanged could not read.
func (r *BundleReconciler) repeatAfterFreeze(s *bundleSnapshot) {
	if s.halt.Freeze != nil && !equality.Semantic.DeepEqual(r.currentFreeze(), s.halt.Freeze) {
		r.enqueueDebounced(s.uid)
	}
}

// rollbackOf returns the rollback of the latest revision; nil: there is none.
func (in StatusInput) rollbackOf(scope *rollout.FailureScope) *v1alpha1.RollbackStatus {
	was := in.Bundle.Status.Rollout
	if was == nil || in.Latest == nil || !in.Terms.IsRolledBack(was.Rollback, in.Latest.Name, scope) {
		return nil
	}
	return was.Rollback
}

// countReturning counts equal rows, if their rollout is rolled back.
func (in StatusInput) countReturning(n *rollout.StageTally, scope *rollout.FailureScope, row rollout.Row, count int) {
	if r := in.rollbackOf(scope); r != nil {
		held, _ := in.Terms.PlaceRow(row, true, in.Now)
		n.AddReturning(scope, row, held, r.Revision, count)
	}
}

// gateStates returns what the gates of the latest revision decided.
func (in StatusInput) gateStates(scope *rollout.FailureScope) rollout.GateStates {
	was := in.Bundle.Status.Rollout
	if was == nil || in.Latest == nil {
		return rollout.GateStates{}
	}
	return rollout.NewGateStates(in.Latest.Name, was.Gates, scope)
}

// setTurnWait sets for what a row waits that has not had its turn.
func (t *rowTally) setTurnWait(in StatusInput, r Row, w *waitCause) {
	if r.Suspended {
		w.rank, w.reason, w.text = rankHeldTurn, atoll.ReasonDispatchingSuspended, in.Halt.DescribeSuspendedCluster()
		if in.Latest != nil && r.Spec.Phase != atoll.RowPending { // a first copy waits since its row is there
			w.since = in.Latest.CreationTimestamp.Time
		}
		return
	}
	w.rank, w.reason, w.text = rankTurn, t.stageWait.Reason, t.describeStageWait(in)
	switch t.stageWait.Reason {
	case "":
		w.reason = atoll.ReasonWaitsForStage
	case atoll.ReasonWaitsForExpression, atoll.ReasonWaitsForMeasurement, atoll.ReasonGateHasNoData, atoll.ReasonRollingBack:
		w.rank = rankHeldTurn
	default:
		if needsPerson(string(t.stageWait.Reason)) {
			w.rank = rankHeldTurn
		}
	}
	switch {
	case rollout.IsHaltReason(w.reason):
		w.since = in.Halt.Since()
	case in.Latest != nil:
		w.since = in.Latest.CreationTimestamp.Time
	}
}

func (t *rowTally) describeStageWait(in StatusInput) string {
	if rollout.IsHaltReason(t.stageWait.Reason) {
		return in.Halt.Describe()
	}
	return in.Terms.DescribeStageWait(t.stageWait, &t.progress)
}

// rolloutStatus returns the progress of the Bundle's rollout; nil: nothing bounds one, or only the default does, and no row waits.
func (t *rowTally) rolloutStatus(in StatusInput) *v1alpha1.RolloutStatus {
	if !in.isRolloutBounded() || t.stageWait.Reason == "" && in.isBoundedByOthers() {
		return nil
	}
	out := &v1alpha1.RolloutStatus{}
	if was := in.Bundle.Status.Rollout; was != nil {
		out.Gates, out.Rollback = was.Gates, was.Rollback
		if in.Terms.HasAutoStages() {
			out.StageCut = was.StageCut
		}
	}
	for i, n := range t.progress.Stages {
		out.Stages = append(out.Stages, v1alpha1.StageStatus{
			Name: in.Terms.StageName(i), Clusters: int32(n.Clusters), Updated: int32(n.Updated), Changing: int32(n.Changing), Failed: int32(n.Failed),
			Waiting: int32(n.Waiting), Disconnected: int32(n.Disconnected), Suspended: int32(n.Suspended),
		})
	}
	if pause := in.Bundle.Spec.Pause; pause != nil {
		out.PausedBy = pause.By
		if !pause.Since.IsZero() {
			out.PausedSince = &metav1.Time{Time: pause.Since.Time}
		}
	}
	if w := t.stageWait; w.Stage >= 0 {
		out.CurrentStage = in.Terms.StageName(w.Stage)
	}
	if out.Reason = string(t.stageWait.Reason); out.Reason != "" {
		out.Actor, out.Message = string(atoll.ActorOf(t.stageWait.Reason)), phrase.TruncateText(t.describeStageWait(in), 1024)
		out.Since = in.sinceOfRolloutReason(out)
	}
	return out
}

// isBoundedByOthers reports whether neither the Bundle nor a person that paused it bounds the rollout: the default or a freeze does.
func (in StatusInput) isBoundedByOthers() bool {
	return in.Terms.IsDefault() || in.Terms == nil && in.Halt.Pause == nil
}

// sinceOfRolloutReason returns since when the rollout has its reason. A resume and another revision begin it again, so that
// readers can distinguish it from the reason before.
func (in StatusInput) sinceOfRolloutReason(is *v1alpha1.RolloutStatus) *metav1.Time {
	if is.PausedSince != nil {
		return is.PausedSince
	}
	since, was := in.Now.Truncate(time.Second), in.Bundle.Status.Rollout
	if was == nil || was.Since == nil || was.Reason != is.Reason || was.CurrentStage != is.CurrentStage || in.Latest == nil || in.Bundle.Status.Revision != in.Latest.Name {
		return &metav1.Time{Time: since}
	}
	resumed := resumeTimeOf(&in.Bundle)
	if resumed.Before(was.Since.Time) || resumed.After(in.Now) {
		return was.Since
	}
	if !since.After(resumed) { // times have seconds
		since = resumed.Add(time.Second)
	}
	return &metav1.Time{Time: since}
}

// rolloutNews is an Event about a rollout.
type rolloutNews struct {
	reason   atoll.Reason
	message  string
	isNormal bool
}

// describeRolloutNews returns what of a rollout is news to people: that a stage begins or fails, that a person must act, and that
// the rollout is complete. A rollout is under way from when a cluster waits until it is complete: a cluster that is
// unhealthy for a moment is no rollout.
func describeRolloutNews(was, is *v1alpha1.RolloutStatus, isUnderway bool) (news []rolloutNews, underway bool) {
	if is == nil {
		return nil, false
	}
	if was == nil {
		was = &v1alpha1.RolloutStatus{}
	}
	underway = isRolloutUnderway(is, isUnderway)
	switch {
	case underway && !(isUnderway && is.CurrentStage == was.CurrentStage):
		news = append(news, rolloutNews{atoll.ReasonStageBegan, "stage " + is.CurrentStage + " of the rollout is next", true})
	case isUnderway && is.CurrentStage == "" && is.Reason != string(atoll.ReasonDispatchingSuspended): // suspended clusters are connected
		news = append(news, rolloutNews{atoll.ReasonRolloutComplete, "no connected cluster waits for its turn", true})
	}
	if isSame := is.Reason == was.Reason && is.CurrentStage == was.CurrentStage; !isSame && needsPerson(is.Reason) {
		news = append(news, rolloutNews{atoll.Reason(is.Reason), "clusters wait for " + is.Message + "; " + is.Actor + " must act", false})
	}
	return news, underway
}

// isRolloutUnderway reports whether a rollout has begun and not ended.
func isRolloutUnderway(is *v1alpha1.RolloutStatus, wasUnderway bool) bool {
	return is.CurrentStage != "" && (wasUnderway || is.Reason != "")
}

// needsPerson reports whether a person must act before the rollout goes on.
func needsPerson(reason string) bool {
	switch atoll.Reason(reason) {
	case atoll.ReasonStageFailed, atoll.ReasonGateFailed, atoll.ReasonTooManyUnhealthy, atoll.ReasonRolloutPaused, atoll.ReasonChangesFrozen, atoll.ReasonDispatchingSuspended, atoll.ReasonWaitsForApproval, atoll.ReasonRolledBack, atoll.ReasonRollbackFailed, atoll.ReasonDependencyCycle, atoll.ReasonDisruptionBudgetTooStrict:
		return true
	}
	return false
}

// recordRolloutNews records Events about a rollout whose status is written.
func (r *BundleReconciler) recordRolloutNews(b state.Bundle, m *bundleMemo, was, is *v1alpha1.RolloutStatus) {
	var news []rolloutNews
	news, m.rolloutUnderway = describeRolloutNews(was, is, m.rolloutUnderway)
	for _, n := range news {
		switch {
		case n.isNormal && b.Spec.Rollout == nil: // each change of each Bundle would have such Events
		case n.isNormal:
			r.Events.Inform(b.Ref, n.reason, n.message)
		default:
			r.Events.Warn(b.Ref, n.reason, n.message)
		}
	}
}

// coarseRollout is the rough state of a rollout, without counts. One that the Bundle does not state is news only where a person
// must act: a change through which clusters stay healthy costs no write of its own.
func coarseRollout(r *v1alpha1.RolloutStatus, isStated bool) string {
	if r == nil || !isStated && !needsPerson(r.Reason) {
		return ""
	}
	return " " + r.CurrentStage + " " + r.Reason + " " + r.PausedBy
}
