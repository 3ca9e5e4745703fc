package summarise

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Reasons of a Bundle's conditions.
const (
	ReasonPlaced        = "Placed"
	ReasonNoClusterFits = "NoClusterFits"
	ReasonSpreadUnmet   = "SpreadUnmet"
	ReasonNowhere       = "Nowhere"
	ReasonDeleting      = "Deleting"
	ReasonNotScheduled  = "NotScheduled"
	ReasonAway          = "ClustersAway"
	ReasonApplied       = "Applied"
	ReasonApplying      = "Applying"
	ReasonFailed        = "Failed"
	ReasonReady         = "Ready"
	ReasonProgressing   = "Progressing"
	ReasonDegraded      = "Degraded"
	ReasonReleased      = "Released"
)

// Input of Status.
type Input struct {
	Bundle state.Bundle
	// Rows by cluster name; each may stand for More that say the same.
	Rows []Row
	// Latest Revision; nil before the first.
	Latest *enginev1.Revision
	// Content of it; nil where it is not known.
	Content *atoll.Content
	// Workloads of it whose replicas are divided.
	Workloads []schedule.Workload
	Now       time.Time
}

// Status of a Bundle, of what its rows say. It is a pure function; the conditions
// keep the times of the Bundle's own where they did not turn.
func Status(in Input) v1alpha1.BundleStatus {
	t := count(in)
	st := v1alpha1.BundleStatus{
		Clusters: v1alpha1.BundleClusters{
			Desired: t.desired, Updated: t.updated, Ready: t.ready, Away: t.away, Removing: t.removing,
			Summary: fmt.Sprintf("%d/%d", t.ready, t.desired),
		},
		WaitsFor: t.waitsFor(in), Replicas: t.replicas, ReadyReplicas: t.readyReplicas,
		Conditions: slices.Clone(in.Bundle.Status.Conditions),
	}
	if in.Latest != nil {
		st.Revision, st.Items = in.Latest.Name, in.Latest.Spec.Items
	}
	for _, c := range []metav1.Condition{t.scheduled(in), t.appliedCondition(), t.readyCondition()} {
		t.set(&st, in, c)
	}
	if short := t.short; short.known && (len(short.short)+len(short.over) > 0 || meta.FindStatusCondition(st.Conditions, v1alpha1.BundleReplicasPlaced) != nil) {
		t.set(&st, in, short.condition())
	}
	held := t.heldCondition(in.Bundle)
	if held.Status == metav1.ConditionTrue || meta.FindStatusCondition(st.Conditions, v1alpha1.BundleRemovalHeld) != nil {
		t.set(&st, in, held)
	}
	return st
}

// tally of a Bundle's rows.
type tally struct {
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
	first wait
	waits int
	short shortage
}

func count(in Input) *tally {
	t := &tally{short: in.shortage()}
	for _, r := range in.Rows {
		reason := atoll.ParseRowReason(r.Spec.Reason)
		if in.asks(reason) {
			t.plans, t.held, t.names = append(t.plans, reason), t.held+int(r.count()), append(t.names, r.names()...)
		}
		t.unfit = t.unfit || reason.Word == atoll.RowNoClusterFits
		if reason.Word == atoll.RowSpreadUnmet {
			t.unmet = reason.Text
		}
		switch {
		case r.Spec.Phase == atoll.RowActive:
			t.active(in, r)
		case !r.removed():
			t.removing += r.count()
		}
		t.wait(in, r, reason)
	}
	slices.Sort(t.names)
	return t
}

// asks tells whether what a row says waits for a confirmation that was not given.
func (in Input) asks(reason atoll.RowReason) bool {
	return reason.Plan != "" && reason.Plan != in.Bundle.Meta.Annotations[atoll.AnnotationConfirm]
}

func (t *tally) active(in Input, r Row) {
	n := r.count()
	t.desired += n
	current := r.Status != nil && r.Status.Generation == r.Spec.Generation
	updated := current && r.Status.Applied && (in.Latest == nil || atoll.MayStay(r.Spec.Revision, in.Latest.Name, in.Latest.Spec.Base))
	if updated {
		t.updated += n
	}
	if r.Status != nil {
		for _, it := range r.Status.Items {
			desired, ready, ok := interpret.ReplicaCounts(schema.GroupKind{Group: it.Key.Group, Kind: it.Key.Kind}, it.Reflected)
			if ok {
				t.replicas, t.readyReplicas = t.replicas+int64(n)*desired, t.readyReplicas+int64(n)*ready
			}
		}
	}
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

// set a condition as upstream's conventions have it.
func (t *tally) set(st *v1alpha1.BundleStatus, in Input, c metav1.Condition) {
	c.ObservedGeneration = in.Bundle.Meta.Generation
	c.LastTransitionTime = metav1.NewTime(in.Now)
	meta.SetStatusCondition(&st.Conditions, c)
}

func (t *tally) scheduled(in Input) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleScheduled, Status: metav1.ConditionFalse}
	switch {
	case in.Bundle.Meta.DeletionTimestamp != nil:
		c.Reason, c.Message = ReasonDeleting, "the Bundle is being deleted"
	case t.unfit:
		c.Reason, c.Message = ReasonNoClusterFits, "no cluster fits the placement; what runs is kept where it is"
	case t.unmet != "":
		c.Reason, c.Message = ReasonSpreadUnmet, t.unmet+"; what runs is kept as it is, and nothing new comes; the policy's owner must act"
	case t.desired > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonPlaced, fmt.Sprintf("placed on %s", clusters(int(t.desired)))
	case atoll.IsNowhere(in.Bundle.Spec.Placement):
		c.Reason, c.Message = ReasonNowhere, "placed on no cluster, on purpose"
	default:
		c.Reason, c.Message = ReasonNoClusterFits, "no cluster fits the placement; `atoll explain` tells why, cluster by cluster"
	}
	return c
}

func (t *tally) appliedCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleApplied, Status: metav1.ConditionFalse}
	switch {
	case t.desired == 0:
		c.Reason, c.Message = ReasonNotScheduled, "no cluster is to hold it"
	case t.reachable == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonAway, "every cluster is away"
	case t.failed > 0:
		c.Reason, c.Message = ReasonFailed, fmt.Sprintf("items could not be applied in %d of %s", t.failed, reachable(t.reachable))
	case t.behind > 0:
		c.Reason, c.Message = ReasonApplying, fmt.Sprintf("%d of %s have applied their revision", t.reachable-t.behind, reachable(t.reachable))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonApplied, "every reachable cluster has applied its revision"
	}
	return c
}

func (t *tally) readyCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleReady, Status: metav1.ConditionFalse}
	of := fmt.Sprintf("%d of %s are ready", t.ready, reachable(t.reachable))
	switch {
	case t.desired == 0:
		c.Reason, c.Message = ReasonNotScheduled, "no cluster is to hold it"
	case t.reachable == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonAway, "every cluster is away"
	case t.failed > 0:
		c.Reason, c.Message = ReasonFailed, of
	case t.degraded > 0:
		c.Reason, c.Message = ReasonDegraded, of
	case t.ready < t.reachable:
		c.Reason, c.Message = ReasonProgressing, of
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonReady, "every item of every reachable cluster is healthy"
	}
	return c
}

func (t *tally) heldCondition(b state.Bundle) metav1.Condition {
	if len(t.plans) == 0 {
		return metav1.Condition{Type: v1alpha1.BundleRemovalHeld, Status: metav1.ConditionFalse, Reason: ReasonReleased, Message: "no removal waits for a confirmation"}
	}
	plan := t.plans[0]
	return metav1.Condition{
		Type: v1alpha1.BundleRemovalHeld, Status: metav1.ConditionTrue, Reason: plan.Word,
		Message: fmt.Sprintf("a removal in %s waits: plan %s, %s; release exactly it with: %s", clusters(t.held), plan.Plan, some(t.names, t.held), confirmation(b, plan.Plan)),
	}
}

// confirmation is the command that releases a plan.
func confirmation(b state.Bundle, plan string) string {
	if b.Ref.Namespace == "" {
		return fmt.Sprintf("atoll confirm clusterbundle/%s --plan %s", b.Ref.Name, plan)
	}
	return fmt.Sprintf("atoll confirm bundle/%s -n %s --plan %s", b.Ref.Name, b.Ref.Namespace, plan)
}

// wait is what one row waits for; a lower rank is told first.
type wait struct {
	rank    int
	cluster string
	text    string
	who     string
}

// The ranks of waits.
const (
	rankPlan = iota
	rankFailed
	rankDegraded
	rankBehind
	rankProgressing
	rankLeaving
	rankRemoving
)

// wait notes what a row waits for. Clusters that are away are counted, not waited
// for.
func (t *tally) wait(in Input, r Row, reason atoll.RowReason) {
	w := wait{cluster: r.Cluster}
	switch {
	case in.asks(reason):
		w.rank, w.text, w.who = rankPlan, "a confirmation of plan "+reason.Plan, rollout.WhoConfirm
	case !r.Reachable || r.removed():
		return
	case r.Spec.Phase == atoll.RowRemoving:
		w.rank, w.text, w.who = rankRemoving, "the removal to be done"+rollout.NextCheckIn(r.CheckIn), rollout.WhoAgent
	case r.Spec.Phase != atoll.RowActive:
		w.rank, w.text, w.who = rankLeaving, "what replaces it to become ready", rollout.WhoAtoll
	default:
		row := rollout.Row{Spec: r.Spec, Online: true, CheckIn: r.CheckIn}
		if r.Status != nil {
			row.Status = openly(r.Status)
		}
		of := rollout.WaitOf(row)
		if of.For == "" {
			return
		}
		w.rank, w.text, w.who = rankOf(r), of.For, of.Who
	}
	if t.waits == 0 || compareWaits(w, t.first) < 0 {
		t.first = w
	}
	t.waits += int(r.count())
}

func compareWaits(a, b wait) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.cluster, b.cluster))
}

func rankOf(r Row) int {
	switch {
	case r.Status == nil || r.Status.Generation != r.Spec.Generation:
		return rankBehind
	case r.Status.State == atoll.RowFailed:
		return rankFailed
	case r.Status.State == atoll.RowDegraded:
		return rankDegraded
	}
	return rankProgressing
}

// waitsFor puts the most pressing wait in words, with who is to act.
func (t *tally) waitsFor(in Input) string {
	if t.waits == 0 {
		switch {
		case in.Bundle.Meta.DeletionTimestamp != nil || atoll.IsNowhere(in.Bundle.Spec.Placement) && t.desired == 0:
			return ""
		case in.Latest != nil && in.Latest.Spec.Items == 0 && t.desired == 0:
			return ""
		case t.desired == 0 && in.Latest == nil:
			return "its first revision; nobody has to act"
		case t.desired == 0 || t.unfit:
			return "a cluster that fits its placement; " + owner(in.Bundle.Spec.Source) + " must act"
		case t.reachable == 0:
			return "a cluster to come back: all are away; the members' administrators must act"
		case len(t.short.short) > 0:
			return t.short.waitsFor()
		}
		if c := meta.FindStatusCondition(in.Bundle.Status.Conditions, v1alpha1.BundleBound); c != nil && c.Status == metav1.ConditionFalse {
			return c.Message
		}
		return frozenWait(in.Content)
	}
	more := ""
	if n := t.waits - 1; n > 0 {
		more = fmt.Sprintf(" (and %s more)", clusters(n))
	}
	return fmt.Sprintf("%s: %s%s; %s", t.first.cluster, t.first.text, more, act(t.first.who))
}

// owner of what a Bundle comes from.
func owner(s v1alpha1.BundleSource) string {
	switch s.Kind {
	case v1alpha1.SourceAnnotation, v1alpha1.SourceNamespaceAnnotation:
		return "who wrote the annotation"
	}
	return "the policy's owner"
}

func act(who string) string {
	switch who {
	case rollout.WhoAtoll:
		return "nobody has to act"
	case rollout.WhoAgent:
		return "the agent acts"
	}
	return who + " must act"
}

func clusters(n int) string { return atoll.Count(n, "cluster") }

func reachable(n int32) string {
	if n == 1 {
		return "1 reachable cluster"
	}
	return fmt.Sprintf("%d reachable clusters", n)
}

// mostNamed clusters are named where many are meant.
const mostNamed = 5

// some names a few of so many names, of which the first are given.
func some(names []string, all int) string {
	out := ""
	for i, n := range names {
		if i == mostNamed {
			return out + fmt.Sprintf(" and %d more", all-mostNamed)
		}
		if i > 0 {
			out += ", "
		}
		out += n
	}
	return out
}
