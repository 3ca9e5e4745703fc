package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// DeadlineOf returns when a connected row that holds what is ordered counts as failed unless it is healthy before; zero:
// never. It counts from the change, or from the connection where this is later. A row that was healthy, and is
// unhealthy since a later time, has the whole time again.
func (t *Terms) DeadlineOf(row Row, now time.Time) time.Time {
	d := t.progressDeadlineOf(row.Stage)
	if d == 0 || !row.Online || row.Spec.MovedAt == 0 || row.Spec.Phase.OrdersNothing() || row.reportsReady() || row.isSharing() {
		return time.Time{}
	}
	d = max(d, ReadinessCheckIns*row.CheckIn)
	end := time.Unix(max(row.Spec.MovedAt, row.Spec.JoinedOrGrownAt(), row.ConnectedAt), 0).Add(d)
	if st := row.Status; st != nil && st.Generation == row.Spec.Generation && st.Since >= end.Unix() && st.Since <= now.Unix() {
		return time.Unix(st.Since, 0).Add(d)
	}
	return end
}

// progressDeadlineOf returns within which time the clusters of a stage must be healthy after their change; 0: nothing is stated.
func (t *Terms) progressDeadlineOf(i int) time.Duration {
	if t == nil || t.stages[i].ProgressDeadline == nil {
		return 0
	}
	return t.stages[i].ProgressDeadline.Duration
}

// judgeDeadline returns the row with the end of its progressDeadline, where that is over.
func (t *Terms) judgeDeadline(row Row, now time.Time) Row {
	row.lateAt = 0
	if end := t.DeadlineOf(row, now); !end.IsZero() && !end.After(now) {
		row.lateAt = end.Unix()
	}
	return row
}

// ExplainDeadline returns the wait of a row that holds what is ordered, with the end of its progressDeadline where that is over.
func (t *Terms) ExplainDeadline(w RowWait, row Row, now time.Time) RowWait {
	if row = t.judgeDeadline(row, now); w.For == "" || row.lateAt == 0 || row.reportsFailure() {
		return w
	}
	limit := phrase.FormatDuration(t.progressDeadlineOf(row.Stage))
	return newRowWait(atoll.ReasonStageDeadlineExceeded, w.For+", which did not come within progressDeadline "+limit+" of stage "+t.StageName(row.Stage), time.Unix(row.lateAt, 0))
}

// ConnectionTime returns when a connected cluster connected, in Unix seconds. The condition Ready is known a moment after
// that. Until then the cluster connects now. A member that is not ready is connected all the same.
func ConnectionTime(c *v1alpha1.Cluster, now time.Time) int64 {
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady); ready != nil && ready.Status != metav1.ConditionUnknown {
		return ready.LastTransitionTime.Unix()
	}
	return now.Unix()
}

// DescribeFailures returns what fails a cluster of a stage, and what follows; empty where the stage states neither.
func (t *Terms) DescribeFailures(i int) string {
	if t == nil || t.stages[i].ProgressDeadline == nil && t.stages[i].OnFailure == "" {
		return ""
	}
	text := ""
	if d := t.progressDeadlineOf(i); d > 0 {
		text = "a cluster that is not healthy within " + phrase.FormatDuration(d) + " counts as failed; "
	}
	most := "0"
	if b := t.stages[i].MaxFailures; b != nil {
		most = b.String()
	}
	switch t.stages[i].OnFailure {
	case v1alpha1.FailureContinue:
		return text + "failures hold nothing"
	case v1alpha1.FailureRollback:
		return text + "after more than " + most + " failures the clusters that have changed return to their earlier revision"
	default:
		return text + "more than " + most + " failures hold the rollout"
	}
}
