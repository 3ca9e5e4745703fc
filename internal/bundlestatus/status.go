package bundlestatus

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Reasons of a Bundle's conditions.
const (
	ReasonPlaced        = atoll.ReasonPlaced
	ReasonNoClusterFits = atoll.ReasonNoClusterFits
	ReasonSpreadUnmet   = atoll.ReasonSpreadUnmet
	ReasonNowhere       = atoll.ReasonNowhere
	ReasonDeleting      = atoll.ReasonDeleting
	ReasonNotScheduled  = atoll.ReasonNotScheduled
	ReasonAway          = atoll.ReasonClustersAway
	ReasonApplied       = atoll.ReasonApplied
	ReasonApplying      = atoll.ReasonApplying
	ReasonFailed        = atoll.ReasonFailed
	ReasonReady         = atoll.ReasonReady
	ReasonProgressing   = atoll.ReasonProgressing
	ReasonDegraded      = atoll.ReasonDegraded
	ReasonReleased      = atoll.ReasonReleased
)

// StatusInput is the input of Status.
type StatusInput struct {
	Bundle state.Bundle
	// Rows by cluster name; each may stand for More equal ones.
	Rows []Row
	// Latest Revision; nil before the first.
	Latest *enginev1.Revision
	// Content of it; nil where it is not known.
	Content *atoll.Content
	// Workloads of it whose replicas are divided.
	Workloads []schedule.Workload
	// ExplainShortage returns in words when one more replica of a workload fits; nil: it is not known.
	ExplainShortage func(w *schedule.Workload) string
	// Feedback that the rows report.
	Feedback []v1alpha1.BundleFeedback
	// Quarantine of a Revision that a row is to hold; nil: there is none.
	Quarantine *quarantine.Quarantine
	// Terms that hold for its rollout; nil: nothing bounds it.
	Terms *rollout.Terms
	// Halt of its rollout.
	Halt rollout.Halt
	Now  time.Time
	// isOrdered is set by withOrder.
	isOrdered bool
}

// ComputeStatus returns the status of a Bundle by its rows. It is a pure function; the conditions
// keep the times of the Bundle's own where they did not turn.
func ComputeStatus(in StatusInput) v1alpha1.BundleStatus {
	in = in.withOrder()
	t := countRows(in)
	st := v1alpha1.BundleStatus{
		Clusters: v1alpha1.BundleClusters{
			Desired: t.desired, Updated: t.updated, Ready: t.ready, Away: t.away, Removing: t.removing,
			Summary: fmt.Sprintf("%d/%d", t.ready, t.desired),
		},
		Replicas: t.replicas, ReadyReplicas: t.readyReplicas,
		Feedback:   in.Feedback,
		Failover:   in.Bundle.Status.Failover,
		Conditions: slices.Clone(in.Bundle.Status.Conditions),
	}
	st.FeedbackSummary = summarizeFeedback(st.Feedback)
	t.setQuarantinedCondition(&st, in)
	st.Rollout = t.rolloutStatus(in)
	w := t.currentWait(in)
	st.WaitsFor, st.Wait = w.text, in.newBundleWait(w)
	if in.Latest != nil {
		st.Revision, st.Items = in.Latest.Name, in.Latest.Spec.Items
	}
	for _, c := range []metav1.Condition{t.scheduledCondition(in), t.appliedCondition(), t.readyCondition()} {
		t.setCondition(&st, in, c)
	}
	for _, o := range t.optionalConditions(in) {
		if o.isNews || meta.FindStatusCondition(st.Conditions, o.Type) != nil && !atoll.IsUndetermined(&o.Condition) {
			t.setCondition(&st, in, o.Condition)
		}
	}
	return st
}

// addMissingOptionalConditions adds the condition types that the status does not have yet. It belongs into
// a write that happens anyway.
func addMissingOptionalConditions(in StatusInput, st *v1alpha1.BundleStatus) {
	t := countRows(in)
	for _, o := range t.optionalConditions(in) {
		if meta.FindStatusCondition(st.Conditions, o.Type) == nil {
			t.setCondition(st, in, o.Condition)
		}
	}
}

// optionalCondition is a condition that alone is no reason to write a status that lacks it, unless
// it is news.
type optionalCondition struct {
	metav1.Condition
	isNews bool
}

// optionalConditions returns the conditions of waits that most Bundles never have. Other writers
// set Bound and PreferredGroup while something is the matter.
func (t *rowTally) optionalConditions(in StatusInput) (out []optionalCondition) {
	last := meta.FindStatusCondition(in.Bundle.Status.Conditions, v1alpha1.BundleBound)
	if atoll.IsUndetermined(last) || last.Status == metav1.ConditionTrue && last.ObservedGeneration < in.Bundle.Meta.Generation {
		bound := atoll.UnknownCondition(v1alpha1.BundleBound)
		if in.Latest != nil {
			bound.Status, bound.Reason, bound.Message = metav1.ConditionTrue, string(atoll.ReasonRead), "its objects are in a Revision"
		}
		out = append(out, optionalCondition{bound, false})
	}
	placed := atoll.UnknownCondition(v1alpha1.BundleReplicasPlaced)
	if t.short.known {
		placed = t.short.placedCondition()
	}
	out = append(out, optionalCondition{placed, t.short.known && len(t.short.short)+len(t.short.surplus) > 0})
	last = meta.FindStatusCondition(in.Bundle.Status.Conditions, v1alpha1.BundlePreferredGroup)
	group, groups := atoll.UnknownCondition(v1alpha1.BundlePreferredGroup), in.Bundle.Spec.Placement.ClusterAffinities
	switch {
	case len(groups) == 0:
		group.Status, group.Reason, group.Message = metav1.ConditionTrue, string(atoll.ReasonNoGroups), "the placement has no groups"
	case t.desired > 0: // the placer would have reported another group
		group.Status, group.Reason, group.Message = metav1.ConditionTrue, string(atoll.ReasonInUse), fmt.Sprintf("group %s is in use, the first of clusterAffinities", groups[0].AffinityName)
	}
	if len(groups) == 0 || atoll.IsUndetermined(last) || last.Reason == string(atoll.ReasonNoGroups) {
		out = append(out, optionalCondition{group, false})
	}
	held := t.removalHeldCondition(in.Bundle)
	return append(out, optionalCondition{held, held.Status == metav1.ConditionTrue})
}

// rowTally counts a Bundle's rows.
type rowTally struct {
	desired, updated, ready, away, removing int32
	replicas, readyReplicas                 int64
	// reachable Active rows, and what is the matter with them.
	reachable, behind, failed, degraded, progressing int32
	// unfit: nothing fits, and what runs is kept.
	unfit bool
	// unmet minimum of the spread, because of which nothing changes.
	unmet string
	plans []atoll.RowReason
	// held counts the clusters that a plan is about; names are the first of them.
	held  int
	names []string
	// first of the waits, the most pressing one, and how many there are.
	first waitCause
	waits int
	short shortage
	// lacksPlaces: leaving rows stay for replicas that have no other place in a suspension.
	lacksPlaces bool
	// progress of the rollout, and for what its rows wait.
	progress  rollout.Progress
	stageWait rollout.StageWait
	// windowsChange is when a change window may begin to hold a row that waits, or hold it no more; zero: never.
	windowsChange time.Time
}

func countRows(in StatusInput) *rowTally {
	in = in.withOrder()
	t := &rowTally{short: in.countShortage(), lacksPlaces: in.lacksPlacesBySuspension()}
	t.countProgress(in)
	for _, r := range in.Rows {
		reason := atoll.ParseRowReason(r.Spec.Reason)
		if in.needsConfirmation(reason) {
			t.plans, t.held, t.names = append(t.plans, reason), t.held+int(r.rowCount()), append(t.names, r.clusterNames()...)
		}
		t.unfit = t.unfit || reason.Reason == atoll.ReasonNoClusterFits
		if reason.Reason == atoll.ReasonSpreadUnmet {
			t.unmet = reason.Text
		}
		switch {
		case r.Spec.Phase.IsChosen():
			t.countActive(in, r)
		case !r.isRemoved():
			t.removing += r.rowCount()
		}
		t.countWait(in, r, reason)
	}
	slices.Sort(t.names)
	return t
}

// needsConfirmation reports whether a row waits for a confirmation that is missing.
func (in StatusInput) needsConfirmation(reason atoll.RowReason) bool {
	return reason.Plan != "" && reason.Plan != in.Bundle.Meta.Annotations[atoll.AnnotationConfirm]
}

func (t *rowTally) countActive(in StatusInput, r Row) {
	n := r.rowCount()
	t.desired += n
	current := r.Status != nil && r.Status.Generation == r.Spec.Generation
	updated := current && r.Status.Applied && in.acceptsRevision(r.Spec.Revision)
	if updated {
		t.updated += n
	}
	t.countReplicas(r)
	if !r.Reachable {
		t.away += n
		return
	}
	t.reachable += n
	switch {
	case !current:
		t.behind += n
	case r.Status.State == atoll.RowFailed:
		t.failed += n
	case !r.Status.Applied:
		t.behind += n
	case r.Status.State == atoll.RowDegraded:
		t.degraded += n
	case r.Status.State == atoll.RowReady && updated:
		t.ready += n
	default:
		t.progressing += n
	}
}

// acceptsRevision reports whether rows of a revision have the content of the latest one.
func (in StatusInput) acceptsRevision(name string) bool {
	return in.Latest == nil || atoll.IsAcceptableRevision(name, in.Latest.Name, in.Latest.Spec.Base)
}

// countReplicas adds the replicas that the row's cluster reports.
func (t *rowTally) countReplicas(r Row) {
	if r.Status == nil {
		return
	}
	n := int64(r.rowCount())
	for _, it := range r.Status.Items {
		desired, ready, ok := kinds.ReplicaCounts(schema.GroupKind{Group: it.Key.Group, Kind: it.Key.Kind}, it.ReflectedStatus)
		if ok {
			t.replicas, t.readyReplicas = t.replicas+n*desired, t.readyReplicas+n*ready
		}
	}
}

// setCondition sets a condition as upstream's conventions have it.
func (t *rowTally) setCondition(st *v1alpha1.BundleStatus, in StatusInput, c metav1.Condition) {
	c.ObservedGeneration = in.Bundle.Meta.Generation
	c.LastTransitionTime = metav1.NewTime(in.Now)
	meta.SetStatusCondition(&st.Conditions, c)
}

func (t *rowTally) scheduledCondition(in StatusInput) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleScheduled, Status: metav1.ConditionFalse}
	switch {
	case in.Bundle.Meta.DeletionTimestamp != nil:
		c.Reason, c.Message = string(ReasonDeleting), "the Bundle is being deleted"
	case t.unfit:
		c.Reason, c.Message = string(ReasonNoClusterFits), "no cluster fits the placement; what runs is kept where it is"
		if refused := in.affinityRefusal(); refused != nil {
			c.Message += ": " + refused.Message
		}
	case t.unmet != "":
		c.Reason, c.Message = string(ReasonSpreadUnmet), t.unmet+"; what runs is kept as it is, and nothing new comes; the policy's owner must act"
	case t.desired > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(ReasonPlaced), fmt.Sprintf("placed on %s", clusterCount(int(t.desired)))
		if in.Bundle.Spec.Suspension.SuspendsScheduling() {
			c.Message += "; " + in.describeSchedulingSuspension()
		}
	case atoll.IsNowhere(in.Bundle.Spec.Placement):
		c.Reason, c.Message = string(ReasonNowhere), "placed on no cluster, on purpose"
	case in.Content.IsRemovedWithHooks():
		c.Reason, c.Message = string(ReasonNowhere), "placed on no cluster: it has nothing but hooks of its removal"
	case in.Bundle.Spec.Suspension.SuspendsScheduling():
		c.Reason, c.Message = string(atoll.ReasonSchedulingSuspended), "no cluster is chosen: "+in.describeSchedulingSuspension()
	default:
		c.Reason, c.Message = string(ReasonNoClusterFits), "no cluster fits the placement; `atoll explain` shows why, cluster by cluster"
		if refused := in.affinityRefusal(); refused != nil {
			c.Reason, c.Message = refused.Reason, "no cluster fits the placement: "+refused.Message
		}
	}
	return c
}

func (t *rowTally) appliedCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleApplied, Status: metav1.ConditionFalse}
	switch {
	case t.desired == 0:
		c.Reason, c.Message = string(ReasonNotScheduled), "no cluster is to hold it"
	case t.reachable == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, string(ReasonAway), "every cluster is away"
	case t.failed > 0:
		c.Reason, c.Message = string(ReasonFailed), fmt.Sprintf("items could not be applied in %d of %s", t.failed, reachableClustersText(t.reachable))
	case t.behind > 0:
		c.Reason, c.Message = string(ReasonApplying), fmt.Sprintf("%d of %s have applied their revision", t.reachable-t.behind, reachableClustersText(t.reachable))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(ReasonApplied), "every reachable cluster has applied its revision"
	}
	return c
}

func (t *rowTally) readyCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleReady, Status: metav1.ConditionFalse}
	of := fmt.Sprintf("%d of %s are ready", t.ready, reachableClustersText(t.reachable))
	switch {
	case t.desired == 0:
		c.Reason, c.Message = string(ReasonNotScheduled), "no cluster is to hold it"
	case t.reachable == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, string(ReasonAway), "every cluster is away"
	case t.failed > 0:
		c.Reason, c.Message = string(ReasonFailed), of
	case t.degraded > 0:
		c.Reason, c.Message = string(ReasonDegraded), of
	case t.ready < t.reachable:
		c.Reason, c.Message = string(ReasonProgressing), of
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(ReasonReady), "every item of every reachable cluster is healthy"
	}
	return c
}

func (t *rowTally) removalHeldCondition(b state.Bundle) metav1.Condition {
	if len(t.plans) == 0 {
		return metav1.Condition{Type: v1alpha1.BundleRemovalHeld, Status: metav1.ConditionFalse, Reason: string(ReasonReleased), Message: "no removal waits for a confirmation"}
	}
	plan := t.plans[0]
	return metav1.Condition{
		Type: v1alpha1.BundleRemovalHeld, Status: metav1.ConditionTrue, Reason: string(plan.Reason),
		Message: fmt.Sprintf("a removal in %s waits: plan %s, %s; release exactly it with: %s", clusterCount(t.held), plan.Plan, phrase.JoinFirst(t.names, mostNamed, t.held), confirmCommand(b, plan.Plan)),
	}
}

// confirmCommand is the command that releases a plan.
func confirmCommand(b state.Bundle, plan string) string {
	if b.Ref.Namespace == "" {
		return fmt.Sprintf("atoll confirm clusterbundle/%s --plan %s", b.Ref.Name, plan)
	}
	return fmt.Sprintf("atoll confirm bundle/%s -n %s --plan %s", b.Ref.Name, b.Ref.Namespace, plan)
}

func clusterCount(n int) string { return phrase.CountNoun(n, "cluster") }

func reachableClustersText(n int32) string { return phrase.CountNoun(n, "reachable cluster") }

// mostNamed clusters are named where many are meant.
const mostNamed = 5
