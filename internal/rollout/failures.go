package rollout

import (
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// FailureScope decides which failures hold a rollout. A failure holds only what waited before the failed row changed.
// A resume excuses what had failed before it. The zero value is of a rollout in which nothing waits: no failure holds it.
type FailureScope struct {
	// now, since when the first row waits, and the last resume, in Unix seconds.
	now, waitingSince, resumedAt int64
	waits                        bool
}

// NewFailureScope returns the scope without rows that wait. A resume in the future, of a clock that is ahead,
// does not count.
func NewFailureScope(resumedAt, now time.Time) FailureScope {
	out := FailureScope{now: now.Unix()}
	if !resumedAt.IsZero() && !resumedAt.After(now) {
		out.resumedAt = resumedAt.Unix()
	}
	return out
}

// AddWaiting adds a row of a connected cluster that waits for its turn. Disconnected clusters wait when they return. A row with an earlier revision waited before any row changed, whatever
// the clocks. A cluster without a copy waits since it came.
func (f *FailureScope) AddWaiting(row Row) {
	since := int64(0)
	switch row.Spec.Phase {
	case atoll.RowPending:
		since = min(row.Spec.Since, f.now)
	case "":
		since = f.now
	}
	if !f.waits || since < f.waitingSince {
		f.waits, f.waitingSince = true, since
	}
}

// IsHeldBy reports whether the row failed in the rollout, so that it holds what waits. A row by which its stage failed holds
// also what began to wait later. If nothing waits, only a stage with a rollback is held, by a failure soon after the change.
func (f *FailureScope) IsHeldBy(t *Terms, row Row) bool {
	switch {
	case !row.isFailing() || f.isResumed(row):
		return false
	case f.waits:
		return row.Spec.FailedAt != 0 || row.Spec.MovedAt >= f.waitingSince
	}
	failed := row.failureTime()
	if failed < row.Spec.MovedAt { // its clock is behind
		failed = f.now
	}
	return t.mayRollBack(row, failed)
}

// isResumed reports whether the row had changed and failed at the last resume. A row that was changing then, and failed later, was
// not resumed. Times are in seconds: a row that changes in the second of a resume changes because of it.
func (f *FailureScope) isResumed(row Row) bool {
	return row.Spec.MovedAt < f.resumedAt && row.failureTime() <= f.resumedAt
}

// isGateResumed reports whether a gate failed before the last resume, or in its second, so that it is judged again.
func (f *FailureScope) isGateResumed(v *v1alpha1.GateStatus) bool {
	return v.State == v1alpha1.GateFailed && f.resumedAt != 0 && v.Since.Unix() <= f.resumedAt
}

// IsExcused reports whether a resume took the row, which holds what is ordered, out of the default maxUnavailable: it was
// unhealthy then, and has reported no other state since. A row that joined or got a larger share later was not. A stated bound
// counts all of them.
func (f *FailureScope) IsExcused(t *Terms, row Row) bool {
	since := max(row.Spec.FailedAt, row.Spec.MovedAt+1) // in the second of the resume, it changed because of it
	switch st := row.Status; {
	case st == nil:
		since = max(since, row.Spec.JoinedOrGrownAt())
	case st.State == atoll.RowReady:
		since = max(since, st.Since, row.Spec.JoinedOrGrownAt())
	default:
		since = max(since, st.Since)
	}
	return t.HasDefaultBound() && f.resumedAt != 0 && since <= f.resumedAt
}

// JudgeRow returns the row as the rollout counts it: with the end of its progressDeadline, where that is over, and without
// its mark of a failure, where a resume excused the failure and the row is healthy again.
func (f *FailureScope) JudgeRow(t *Terms, row Row) Row {
	if t.progressDeadlineOf(row.Stage) > 0 {
		row = t.judgeDeadline(row, time.Unix(f.now, 0))
	}
	if row.Spec.FailedAt != 0 && row.isReady() && f.isResumed(row) {
		row.Spec.FailedAt = 0
	}
	return row
}

// failureTime returns when a failing row failed, in Unix seconds: by the clock of the hub, and until the hub marks the row by that
// of the member.
func (r Row) failureTime() int64 {
	switch {
	case r.Spec.FailedAt != 0:
		return r.Spec.FailedAt
	case r.reportsFailure():
		return r.Status.Since
	}
	return r.lateAt
}

// TurnTimes returns the times by which FailureScope distinguishes rows that are equal otherwise, in
// Unix seconds; 0: none.
func (r Row) TurnTimes() (began, failed int64) {
	switch {
	case r.Spec.Phase == atoll.RowPending:
		return r.Spec.Since, 0
	case r.isFailing():
		return r.Spec.MovedAt, r.failureTime()
	}
	return 0, 0
}
