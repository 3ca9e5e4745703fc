package bundlestatus

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// waitCause is the blocker of one row; a lower rank is reported first.
type waitCause struct {
	rank    int
	cluster string
	reason  atoll.Reason
	text    string
	// since is when the wait began; zero where that is not known.
	since time.Time
}

// The ranks of waits.
const (
	rankPlan = iota
	rankHeldTurn
	rankPending
	rankFailed
	rankDegraded
	rankBehind
	rankProgressing
	rankTurn
	rankLeaving
	rankRemoving
)

// countWait notes what a row waits for. Clusters that are away are counted, not waited
// for.
func (t *rowTally) countWait(in StatusInput, r Row, reason atoll.RowReason) {
	w := waitCause{cluster: r.Cluster, since: time.Unix(r.Spec.Since, 0)}
	switch {
	case in.needsConfirmation(reason):
		w.rank, w.reason, w.text = rankPlan, atoll.ReasonWaitsForConfirmation, "a confirmation of plan "+reason.Plan
	case r.isReachableOrSuspended() && in.awaitsTurn(r):
		t.setTurnWait(in, r, &w)
	case r.Spec.Phase == atoll.RowPending:
		w.rank, w.reason, w.text = rankPending, reason.Reason, reason.Text
	case !r.Reachable || r.isRemoved():
		return
	case r.Spec.Phase == atoll.RowRemoving:
		of := rollout.WaitOfRemovingRow(rolloutRow(r))
		w.rank, w.reason, w.text = rankRemoving, of.Reason, of.For
	case r.Spec.Phase != atoll.RowActive:
		t.setLeavingWait(in, r, &w)
	default:
		of := in.Terms.ExplainDeadline(rollout.WaitOfActiveRow(rolloutRow(r)), r.inRollout(), in.Now)
		if of.For == "" {
			return
		}
		w.rank, w.reason, w.text, w.since = waitRankOf(r, of.Reason), of.Reason, of.For, of.Since
	}
	if t.waits == 0 || compareWaits(w, t.first) < 0 {
		t.first = w
	}
	t.waits += int(r.rowCount())
}

// rolloutRow returns a reachable row as rollout takes it, without the names of Secrets.
func rolloutRow(r Row) rollout.Row {
	row := rollout.Row{Spec: r.Spec, Online: true, CheckIn: r.CheckIn}
	if r.Status != nil {
		row.Status = redactSecretNames(r.Status)
	}
	return row
}

func compareWaits(a, b waitCause) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.cluster, b.cluster))
}

func waitRankOf(r Row, reason atoll.Reason) int {
	switch {
	case reason == atoll.ReasonStageDeadlineExceeded:
		return rankDegraded
	case r.Status == nil || r.Status.Generation != r.Spec.Generation:
		return rankBehind
	case r.Status.State == atoll.RowFailed:
		return rankFailed
	case r.Status.State == atoll.RowDegraded:
		return rankDegraded
	}
	return rankProgressing
}

// currentWait returns the most important wait, with the person or component that must act in its
// text; the text is empty when the Bundle is complete.
func (t *rowTally) currentWait(in StatusInput) waitCause {
	if t.waits == 0 {
		return t.waitOfWholeBundle(in)
	}
	if in.Quarantine != nil && t.first.rank != rankPlan {
		return quarantineWait(*in.Quarantine)
	}
	w, more := t.first, ""
	if n := t.waits - 1; n > 0 {
		more = fmt.Sprintf(" (and %s more)", clusterCount(n))
	}
	w.text = fmt.Sprintf("%s: %s%s; %s", w.cluster, w.text, more, actorText(atoll.ActorOf(w.reason)))
	return w
}

// waitOfWholeBundle returns the wait of a Bundle none of whose rows waits.
func (t *rowTally) waitOfWholeBundle(in StatusInput) waitCause {
	switch {
	case in.Bundle.Meta.DeletionTimestamp != nil:
		return waitCause{}
	case t.desired == 0:
		return in.waitBeforeFirstRow()
	case t.unfit:
		return in.fittingClusterWait()
	case t.reachable == 0:
		return waitCause{reason: ReasonAway, text: "a cluster to come back: all are away; the members' administrators must act"}
	case len(t.short.short) > 0:
		return waitCause{reason: ReasonNoPlace, text: t.short.waitText()}
	}
	if c := meta.FindStatusCondition(in.Bundle.Status.Conditions, v1alpha1.BundleBound); c != nil && c.Status == metav1.ConditionFalse {
		return waitCause{reason: atoll.Reason(c.Reason), text: c.Message, since: c.LastTransitionTime.Time}
	}
	return frozenWait(in.Content)
}

// waitBeforeFirstRow returns the wait of a Bundle that is to be in no cluster yet.
func (in StatusInput) waitBeforeFirstRow() waitCause {
	switch {
	case atoll.IsNowhere(in.Bundle.Spec.Placement), in.Latest != nil && in.Latest.Spec.Items == 0, in.Content.IsRemovedWithHooks():
		return waitCause{}
	case in.Latest == nil:
		return waitCause{reason: ReasonNotScheduled, text: "its first revision; no person has to act"}
	case in.Bundle.Spec.Suspension.SuspendsScheduling():
		return waitCause{reason: atoll.ReasonSchedulingSuspended, text: "a decision, while " + in.describeSchedulingSuspension() + "; " + atoll.DescribeSourceEditor(in.Bundle.Spec.Source) + " must act"}
	}
	return in.fittingClusterWait()
}

// describeSchedulingSuspension returns what keeps the last decision about clusters.
func (in StatusInput) describeSchedulingSuspension() string {
	return "spec.suspension.scheduling of " + in.Bundle.Spec.Source.Kind + " " + in.Bundle.Spec.Source.Name + " suspends decisions"
}

func (in StatusInput) fittingClusterWait() waitCause {
	if c := in.affinityRefusal(); c != nil {
		text := "a cluster that fits its placement, " + c.Message + "; " + atoll.DescribeSourceEditor(in.Bundle.Spec.Source) + " must act"
		return waitCause{reason: atoll.Reason(c.Reason), text: text, since: c.LastTransitionTime.Time}
	}
	return waitCause{reason: ReasonNoClusterFits, text: "a cluster that fits its placement; " + atoll.DescribeSourceEditor(in.Bundle.Spec.Source) + " must act"}
}

// newBundleWait returns the wait as values; nil when the Bundle is complete. The time of a member
// that is ahead of the hub's clock is not used. A wait without a time keeps the one that it has.
func (in StatusInput) newBundleWait(w waitCause) *v1alpha1.BundleWait {
	if w.text == "" {
		return nil
	}
	out := &v1alpha1.BundleWait{Reason: string(w.reason), Actor: string(atoll.ActorOf(w.reason)), Cluster: w.cluster}
	switch last := in.Bundle.Status.Wait; {
	case w.since.Unix() > 0 && !w.since.After(in.Now.Add(clockSkew)):
		out.Since = metav1.NewTime(w.since.Truncate(time.Second))
	case last != nil && last.Reason == out.Reason && last.Cluster == out.Cluster:
		out.Since = last.Since
	default:
		out.Since = metav1.NewTime(in.Now.Truncate(time.Second))
	}
	return out
}

func actorText(who atoll.Actor) string {
	switch who {
	case atoll.ActorAtoll:
		return "no person has to act"
	case atoll.ActorAgent:
		return "the agent acts"
	}
	return string(who) + " must act"
}
