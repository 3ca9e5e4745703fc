package decommission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/state"
)

// maxText bounds a text that an agent wrote.
const maxText = 300

// removalFacts is all that decides how a removal goes on.
type removalFacts struct {
	name    string
	removal v1alpha1.ClusterRemoval
	// formerStatus is the status that was written last; nil: none yet.
	formerStatus     *v1alpha1.ClusterRemovalStatus
	accepted, joined bool
	// online: the cluster can be counted on.
	online bool
	// holding is why the hub holds; "": it does not.
	holding string
	// plan of what is held until spec.removal.confirm is that; "": nothing is.
	plan string
	// unknown is the reason why that plan cannot be computed, while all is held; nil: it can.
	unknown error
	// rows of Bundles in the cluster.
	rows []state.Row
}

// removalVerdict is the verdict on a removal.
type removalVerdict struct {
	// delete the Cluster now.
	forget bool
	// reason and message of the condition Removing, and status.removal.
	reason  atoll.Reason
	message string
	status  v1alpha1.ClusterRemovalStatus
}

// decideRemoval decides a removal. It is a pure function.
func decideRemoval(s removalFacts) removalVerdict {
	left := int32(len(s.rows))
	total := left
	if s.formerStatus != nil {
		total = max(left, s.formerStatus.Bundles)
	}
	v := removalVerdict{status: v1alpha1.ClusterRemovalStatus{Bundles: total, Gone: total - left}}
	if s.formerStatus != nil && left == 0 {
		v.status.AgentWaitsFor, v.status.AgentWaitsSince = s.formerStatus.AgentWaitsFor, s.formerStatus.AgentWaitsSince
	}
	give := fmt.Sprintf("`atoll remove %s --force` gives it up with what it holds", s.name)
	switch {
	case s.removal.Force:
		v.forget, v.reason, v.message = true, atoll.ReasonForced, "the cluster is given up with what it holds"
		return v
	case !s.joined:
		v.forget, v.reason, v.message = true, atoll.ReasonNeverJoined, "no agent has ever been there"
		return v
	case s.holding != "":
		v.reason, v.message = atoll.ReasonHubHolds, "the hub was set back to an older state and orders nothing: `atoll restore accept`"
		return v
	case left == 0:
		v.reason, v.message = s.explainWaitWithoutRows(give)
		return v
	case s.unknown != nil:
		v.reason, v.message = atoll.ReasonPlanUnknown, "nothing is removed yet: what would be is not known, and the hub looks again: "+phrase.TruncateText(s.unknown.Error(), maxText)
		return v
	case s.plan != "" && s.plan != s.removal.Confirm:
		v.status.Plan, v.reason, v.message = s.plan, atoll.ReasonWaitsForConfirmation, s.formatConfirmationRequest()
		return v
	}
	if s.isConfirmed() {
		v.status.Confirmed = s.removal.Confirm
	}
	v.reason, v.message = s.explainRowsWait(give)
	v.message = fmt.Sprintf("%d of %d bundles are gone; %s", v.status.Gone, total, v.message)
	return v
}

// formatConfirmationRequest returns the request for the confirmation of the whole removal.
func (s *removalFacts) formatConfirmationRequest() string {
	n, such := 0, ""
	for _, r := range s.rows {
		if atoll.IsCleanable(r.Bundle, r.Spec) {
			if n++; such == "" {
				such = bundleName(r)
			}
		}
	}
	other := ""
	if s.removal.Confirm != "" {
		other = "; what was confirmed is another plan"
	}
	return fmt.Sprintf("nothing is removed yet: what Atoll applied of %s would be, such as %s, and that waits for `atoll confirm cluster/%s --plan %s`%s; `atoll remove %s --cancel` takes it back, --orphan leaves all of it there",
		phrase.CountNoun(n, "bundle"), such, s.name, s.plan, other, s.name)
}

// HashCleanPlan is the function HashCleanPlan with the tables of the Reconciler.
func (r *RemovalReconciler) HashCleanPlan(ctx context.Context, c *v1alpha1.Cluster) (string, error) {
	return HashCleanPlan(ctx, r.Revisions, c, r.Rows.ListOfCluster(string(c.UID)))
}

// HashCleanPlan returns the hash of the loss of a cluster with these rows when it is cleaned; "" for
// nothing. A missing Revision of a row, as in lagging tables, is an error, and nothing counts as
// confirmed.
func HashCleanPlan(ctx context.Context, revisions Revisions, c *v1alpha1.Cluster, rows []state.Row) (string, error) {
	var items []atoll.ItemKey
	some := false
	for _, r := range rows {
		if !atoll.IsCleanable(r.Bundle, r.Spec) {
			continue
		}
		some = true
		content, err := revisions.GetContent(ctx, r.Spec.Revision)
		if err != nil {
			return "", fmt.Errorf("list what is in cluster %s: %w", c.Name, err)
		}
		for i := range content.Items {
			if key := content.Items[i].Key; r.Spec.IncludesItem(key) {
				items = append(items, key)
			}
		}
	}
	if !some {
		return "", nil
	}
	return atoll.HashCleanPlan(string(c.UID), c.Annotations[atoll.AnnotationRemovalRequested], items), nil
}

// SupposeConfirmedRemoval supposes a write of a Cluster, for a preview. A new confirmation of its removal was
// admitted, so it is of the present content. For an older one the status decides.
func SupposeConfirmedRemoval(c *v1alpha1.Cluster, before *unstructured.Unstructured) {
	r, was := c.Spec.Removal, ""
	if before != nil {
		was, _, _ = unstructured.NestedString(before.Object, "spec", "removal", "confirm")
	}
	if r != nil && r.Confirm != was && r.Confirm != "" {
		c.Status.Removal = &v1alpha1.ClusterRemovalStatus{Confirmed: r.Confirm}
	}
}

// cleanPlanFingerprint returns terms that are equal as long as HashCleanPlan returns the same:
// Revisions never change.
func cleanPlanFingerprint(c *v1alpha1.Cluster, rows []state.Row) string {
	var there []string
	for _, r := range rows {
		if atoll.IsCleanable(r.Bundle, r.Spec) {
			there = append(there, strings.Join(append([]string{r.Spec.Revision}, r.Spec.Absent...), "\x00"))
		}
	}
	slices.Sort(there)
	return atoll.HashJSON([]any{c.UID, c.Annotations[atoll.AnnotationRemovalRequested], there})
}

// explainWaitWithoutRows returns what is waited for when no row is left.
func (s *removalFacts) explainWaitWithoutRows(give string) (reason atoll.Reason, message string) {
	switch {
	case !s.accepted:
		return atoll.ReasonWaitsForCluster, "nothing is placed there any more; the cluster is not accepted, so its agent gets no order: `atoll accept " + s.name + "`, or " + give
	case !s.online:
		return atoll.ReasonWaitsForCluster, "nothing is placed there any more; the cluster is away, and its agent releases the member when it is back; " + give
	case s.formerStatus != nil && s.formerStatus.AgentWaitsFor != "":
		since := ""
		if at := s.formerStatus.AgentWaitsSince; at != nil {
			since = " since " + phrase.FormatTime(at.Time)
		}
		return atoll.ReasonWaitsForMember, fmt.Sprintf("nothing is placed there any more; what keeps the agent from letting go of the member%s: %s; that is for the member's administrator, or %s", since, s.formerStatus.AgentWaitsFor, give)
	}
	return atoll.ReasonAgentLeaves, "nothing is placed there any more; the agent releases the member; one that is too old for that must be updated, or " + give
}

// isConfirmed reports whether the plan is confirmed, now or before.
func (s *removalFacts) isConfirmed() bool {
	return s.formerStatus != nil && s.formerStatus.Confirmed == s.removal.Confirm || s.plan == s.removal.Confirm
}

// rowsByStep are the rows of a removal by what they wait for.
type rowsByStep struct {
	held, leaving, going []state.Row
	begun                bool   // no row is yet to be marked
	stuck                string // why the first of going is kept
}

func (s *removalFacts) groupRowsByStep() (out rowsByStep) {
	out.begun = true
	for _, r := range s.rows {
		switch r.Spec.Phase {
		case atoll.RowRemoving:
			out.going = append(out.going, r)
			if why := removalBlockedReason(r); why != "" && out.stuck == "" {
				out.stuck = bundleName(r) + " is kept from going: " + why
			}
		case atoll.RowHeld:
			out.held = append(out.held, r)
		default:
			out.begun = out.begun && r.Spec.Phase == atoll.RowLeaving
			if atoll.ParseRowReason(r.Spec.Reason).Plan != "" {
				out.held = append(out.held, r)
			} else {
				out.leaving = append(out.leaving, r)
			}
		}
	}
	return out
}

// explainRowsWait describes the wait of the rows: a person's act goes before automatic progress.
func (s *removalFacts) explainRowsWait(give string) (reason atoll.Reason, message string) {
	rows := s.groupRowsByStep()
	held, leaving, going := rows.held, rows.leaving, rows.going
	switch {
	case len(held) > 0:
		r := held[0]
		return atoll.ReasonWaitsForConfirmation, fmt.Sprintf("%d wait for a confirmation, such as: %s", len(held), confirmCommand(r))
	case !s.accepted && len(going) > 0:
		return atoll.ReasonWaitsForCluster, "the cluster is not accepted, so its agent gets no order: `atoll accept " + s.name + "`, or " + give
	case !s.online && len(going) > 0:
		return atoll.ReasonWaitsForCluster, fmt.Sprintf("%d wait for the cluster, which is away, to come back; %s", len(going), give)
	case rows.stuck != "":
		return atoll.ReasonWaitsForMember, rows.stuck
	case len(leaving) > 0 && !rows.begun:
		return atoll.ReasonBundlesLeave, fmt.Sprintf("%d are to leave", len(leaving))
	case len(leaving) > 0:
		r := leaving[0]
		if reason := atoll.ParseRowReason(r.Spec.Reason).Reason; atoll.IsBudgetReason(reason) {
			return reason, fmt.Sprintf("%d wait for their budgets or replacements, such as %s (`atoll explain %s`); %s", len(leaving), bundleName(r), bundleArgument(r), give)
		}
		return atoll.ReasonWaitsForReplacements, fmt.Sprintf("%d wait for what replaces them elsewhere to become healthy, such as %s (`atoll explain %s`)", len(leaving), bundleName(r), bundleArgument(r))
	}
	return atoll.ReasonBundlesLeave, fmt.Sprintf("%d are on their way out, such as %s", len(going), bundleName(going[0]))
}

// removalBlockedReason returns what keeps a row from going by the agent's report, other than time.
func removalBlockedReason(r state.Row) string {
	st := r.Status
	if st == nil || st.Generation != r.Spec.Generation {
		return ""
	}
	return phrase.TruncateText(st.RemovalBlocker(), maxText)
}

// confirmCommand is the command that releases a row that waits.
func confirmCommand(r state.Row) string {
	if plan := atoll.ParseRowReason(r.Spec.Reason).Plan; plan != "" {
		return fmt.Sprintf("`atoll confirm %s --plan %s`", bundleArgument(r), plan)
	}
	return fmt.Sprintf("`atoll confirm %s`", bundleArgument(r))
}

// bundleArgument returns the Bundle of a row's Bundle, as commands take it.
func bundleArgument(r state.Row) string {
	if r.Bundle.Namespace == "" {
		return "clusterbundle/" + r.Bundle.Name
	}
	return "bundle/" + r.Bundle.Name + " -n " + r.Bundle.Namespace
}

func bundleName(r state.Row) string {
	if r.Bundle.Namespace == "" {
		return r.Bundle.Name
	}
	return r.Bundle.Namespace + "/" + r.Bundle.Name
}
