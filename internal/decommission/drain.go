package decommission

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/state"
)

// drainFacts is all that decides what is reported of a drain.
type drainFacts struct {
	name  string
	since metav1.Time
	// formerStatus is what was reported last; nil: nothing yet.
	formerStatus *v1alpha1.ClusterDrainStatus
	accepted     bool
	online       bool
	holding      bool
	// rows of Bundles in the cluster.
	rows []state.Row
}

// drainVerdict is the report of a drain: the condition Draining, and status.drain.
type drainVerdict struct {
	isDone  bool
	reason  atoll.Reason
	message string
	status  v1alpha1.ClusterDrainStatus
}

// drainStep is how far the row of a drained cluster is. The first steps are reported first.
type drainStep int

// The steps.
const (
	drainHeld drainStep = iota
	drainAwaitsCluster
	drainStuck
	drainBudget
	drainUndecided
	drainLeaving
	drainGoing
	drainDelayed
	drainBlocked
	drainStays
	countDrainSteps
)

// decideDrain decides what is reported of a drain. It is a pure function.
func decideDrain(s drainFacts) drainVerdict {
	var steps [countDrainSteps][]state.Row
	for _, r := range s.rows {
		step := s.stepOf(r)
		steps[step] = append(steps[step], r)
	}
	present, stays, blocked := int32(len(s.rows)), int32(len(steps[drainStays])), int32(len(steps[drainBlocked]))
	total := present
	if f := s.formerStatus; f != nil && f.Since.Equal(&s.since) {
		total = max(total, f.Bundles)
	}
	v := drainVerdict{status: v1alpha1.ClusterDrainStatus{
		Since: s.since, Bundles: total, Left: total - present, Waiting: present - stays - blocked, CannotLeave: blocked, Stays: stays,
	}}
	v.isDone = v.status.Waiting+v.status.CannotLeave == 0
	v.reason, v.message = s.explainSteps(steps)
	v.message = fmt.Sprintf("%d of %s left%s", v.status.Left, phrase.CountNoun(int(total), "bundle"), v.message)
	if blocked > 0 && v.reason != atoll.ReasonCannotLeave {
		v.message += "; " + describeBlocked(steps[drainBlocked])
	}
	if stays > 0 {
		v.message += fmt.Sprintf("; %d stay, because each fitting cluster has a copy or the placement tolerates the drain", stays)
	}
	return v
}

// stepOf returns how far a row is.
func (s *drainFacts) stepOf(r state.Row) drainStep {
	reason := atoll.ParseRowReason(r.Spec.Reason)
	awaitsCluster := !s.online || !s.accepted
	switch {
	case r.Spec.Phase == atoll.RowHeld || reason.Plan != "":
		return drainHeld
	case r.Spec.Phase == atoll.RowRemoving && awaitsCluster, r.Spec.Phase == atoll.RowLeaving && awaitsCluster:
		return drainAwaitsCluster
	case r.Spec.Phase == atoll.RowRemoving && removalBlockedReason(r) != "":
		return drainStuck
	case r.Spec.Phase == atoll.RowRemoving:
		return drainGoing
	case r.Spec.Phase == atoll.RowLeaving:
		return stepOfLeavingRow(reason.Reason)
	}
	return stepByReason(reason)
}

// stepOfLeavingRow returns how far a row is that is to go.
func stepOfLeavingRow(reason atoll.Reason) drainStep {
	switch {
	case reason == atoll.ReasonDisruptionBudgetTooStrict:
		return drainBlocked
	case atoll.IsBudgetReason(reason):
		return drainBudget
	}
	return drainLeaving
}

// stepByReason returns how far a row is that neither leaves nor goes. In the text of a row without capacity for a newer revision, the
// reason of the drain follows.
func stepByReason(reason atoll.RowReason) drainStep {
	if reason.Reason == atoll.ReasonNoCapacity {
		reason = atoll.ParseRowReason(reason.Text)
	}
	if step, known := drainStepByReason[reason.Reason]; known {
		return step
	}
	return drainUndecided
}

// drainStepByReason has the steps of rows that are neither leaving nor going, by their reason.
var drainStepByReason = map[atoll.Reason]drainStep{
	atoll.ReasonNoReplacement:       drainBlocked,
	atoll.ReasonCopyInEachCluster:   drainStays,
	atoll.ReasonSchedulingSuspended: drainBlocked,
	atoll.ReasonDrainTolerated:      drainStays,
	atoll.ReasonDrainDelayed:        drainDelayed,
	atoll.ReasonWaitsForCluster:     drainAwaitsCluster,
}

// explainSteps returns what the drain waits for: a person's act goes before automatic progress.
func (s *drainFacts) explainSteps(steps [countDrainSteps][]state.Row) (reason atoll.Reason, message string) {
	if s.holding {
		return atoll.ReasonHubHolds, "; the hub was set back to an older state and orders nothing: `atoll restore accept`"
	}
	for step, rows := range steps {
		if len(rows) == 0 {
			continue
		}
		n, r := len(rows), rows[0]
		explain := fmt.Sprintf("such as %s (`atoll explain %s`)", bundleName(r), bundleArgument(r))
		switch drainStep(step) {
		case drainHeld:
			return atoll.ReasonWaitsForConfirmation, fmt.Sprintf("; %d wait for a confirmation, such as: %s", n, confirmCommand(r))
		case drainAwaitsCluster:
			return atoll.ReasonWaitsForCluster, fmt.Sprintf("; %d wait for the cluster, which is disconnected or not accepted, %s", n, explain)
		case drainStuck:
			return atoll.ReasonWaitsForMember, fmt.Sprintf("; %d are ordered to go, and %s is blocked: %s", n, bundleName(r), removalBlockedReason(r))
		case drainBudget, drainUndecided, drainLeaving, drainGoing:
			return explainMovingRows(drainStep(step), rows, explain)
		case drainDelayed:
			return atoll.ReasonDrainDelayed, fmt.Sprintf("; %d leave later, %s: %s", n, explain, atoll.ParseRowReason(r.Spec.Reason).Text)
		case drainBlocked:
			return atoll.ReasonCannotLeave, "; " + describeBlocked(rows)
		}
	}
	return atoll.ReasonDrained, ""
}

// explainMovingRows returns what rows wait for that leave, or are to.
func explainMovingRows(step drainStep, rows []state.Row, explain string) (reason atoll.Reason, message string) {
	n, r := len(rows), rows[0]
	switch step {
	case drainBudget:
		why, until := atoll.ParseRowReason(r.Spec.Reason).Reason, "more copies are available"
		if why == atoll.ReasonPodDisruptionBudget {
			until = "a PodDisruptionBudget in the cluster allows it"
		}
		return why, fmt.Sprintf("; %d cannot leave because of a disruption budget until %s, %s", n, until, explain)
	case drainUndecided:
		return atoll.ReasonBundlesLeave, fmt.Sprintf("; %d are to be decided, %s", n, explain)
	case drainLeaving:
		return atoll.ReasonWaitsForReplacements, fmt.Sprintf("; %d wait for their replacements elsewhere to become healthy, %s", n, explain)
	}
	return atoll.ReasonBundlesLeave, fmt.Sprintf("; %d are ordered to go, such as %s", n, bundleName(r))
}

// describeBlocked names a row that nothing replaces, and why.
func describeBlocked(rows []state.Row) string {
	r := rows[0]
	reason := atoll.ParseRowReason(r.Spec.Reason)
	if reason.Reason == atoll.ReasonDisruptionBudgetTooStrict {
		reason.Text = "its disruptionBudget lets no copy go, even while all are available, and has to be edited"
	}
	return fmt.Sprintf("%d cannot leave, such as %s: %s (`atoll explain %s`)", len(rows), bundleName(r), reason.Text, bundleArgument(r))
}

// isDrainReported reports whether a Cluster is drained, or its status reports a drain.
func isDrainReported(c *v1alpha1.Cluster) bool {
	return c.Spec.FindDrain() != nil || c.Status.Drain != nil || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterDraining) != nil
}

// clearDrain removes the report of a drain from a status. A removal of the cluster reports in its place.
func clearDrain(c *v1alpha1.Cluster) {
	c.Status.Drain = nil
	meta.RemoveStatusCondition(&c.Status.Conditions, v1alpha1.ClusterDraining)
}

// reportDrain writes how far the drain of a Cluster is, where that is news, and removes the report of a removal that was
// taken back.
func (r *RemovalReconciler) reportDrain(ctx context.Context, c *v1alpha1.Cluster) error {
	write := c.DeepCopy()
	write.Status.Removal = nil
	meta.RemoveStatusCondition(&write.Status.Conditions, v1alpha1.ClusterRemoving)
	t := c.Spec.FindDrain()
	if t == nil {
		clearDrain(write)
		return r.writeDrain(ctx, c, write)
	}
	v := decideDrain(r.gatherDrainFacts(c, t))
	status := metav1.ConditionTrue
	if v.isDone {
		status = metav1.ConditionFalse
	}
	write.Status.Drain = &v.status
	meta.SetStatusCondition(&write.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ClusterDraining, Status: status, Reason: string(v.reason), Message: phrase.EscapeLine(v.message), ObservedGeneration: c.Generation,
	})
	before := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterDraining)
	if err := r.writeDrain(ctx, c, write); err != nil {
		return err
	}
	if ended := v.isDone || v.reason == atoll.ReasonCannotLeave; ended && (before == nil || before.Reason != string(v.reason)) {
		r.NotifyAdmin(c, v.reason, v.message)
	}
	return nil
}

// writeDrain writes the status if it differs.
func (r *RemovalReconciler) writeDrain(ctx context.Context, c, write *v1alpha1.Cluster) error {
	if apiequality.Semantic.DeepEqual(c.Status, write.Status) {
		return nil
	}
	return r.writeClusterStatus(ctx, write)
}

// gatherDrainFacts returns the state of a drain, as the tables have it.
func (r *RemovalReconciler) gatherDrainFacts(c *v1alpha1.Cluster, t *v1alpha1.Taint) drainFacts {
	s := drainFacts{name: c.Name, formerStatus: c.Status.Drain, accepted: c.Spec.Accepted, online: r.Clusters.IsOnline(string(c.UID))}
	switch {
	case t.TimeAdded != nil:
		s.since = *t.TimeAdded
	case s.formerStatus != nil:
		s.since = s.formerStatus.Since
	default: // admission adds the time
		s.since = metav1.NewTime(time.Now().Truncate(time.Second))
	}
	_, s.holding = r.Hub.HoldReason()
	for _, row := range r.Rows.ListOfCluster(string(c.UID)) {
		if !row.Bundle.IsNamespaceRef() {
			s.rows = append(s.rows, row)
		}
	}
	return s
}
