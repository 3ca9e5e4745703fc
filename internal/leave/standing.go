package leave

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// standing is all that decides how a removal goes on.
type standing struct {
	name    string
	removal v1alpha1.ClusterRemoval
	// before is what was said last; nil: nothing yet.
	before           *v1alpha1.ClusterRemovalStatus
	accepted, joined bool
	// online: the cluster can be counted on.
	online bool
	// holding says why the hub holds; "": it does not.
	holding string
	// plan of what is held until spec.removal.confirm is that; "": nothing is.
	plan string
	// unknown says why that plan cannot be told, while all is held; nil: it can.
	unknown error
	// rows of Bundles in the cluster.
	rows []state.Row
}

// verdict on a removal.
type verdict struct {
	// forget the cluster now.
	forget bool
	// reason and message of the condition Removing, and status.removal.
	reason, message string
	status          v1alpha1.ClusterRemovalStatus
}

// Reasons of the condition Removing.
const (
	// ReasonForced: the cluster is given up as it is.
	ReasonForced = "Forced"
	// ReasonNeverJoined: no agent ever was there.
	ReasonNeverJoined = "NeverJoined"
	// ReasonHubHolds: the hub was set back and orders nothing.
	ReasonHubHolds = "HubHolds"
	// ReasonWaitsForConfirmation: what the removal would take away is not confirmed, or is over
	// the budget of its Bundles.
	ReasonWaitsForConfirmation = "WaitsForConfirmation"
	// ReasonPlanUnknown: what is to be confirmed cannot be told yet.
	ReasonPlanUnknown = atoll.RemovalPlanUnknown
	// ReasonWaitsForCluster: the cluster is away, or not accepted.
	ReasonWaitsForCluster = "WaitsForCluster"
	// ReasonWaitsForMember: the member keeps something from going.
	ReasonWaitsForMember = "WaitsForMember"
	// ReasonWaitsForReplacements: what replaces Bundles elsewhere is not healthy yet.
	ReasonWaitsForReplacements = "WaitsForReplacements"
	// ReasonRemoving: Bundles are on their way out.
	ReasonRemoving = "BundlesLeave"
	// ReasonAgentLeaves: no Bundle is left, and the agent lets go of the rest.
	ReasonAgentLeaves = "AgentLeaves"
)

// judge a removal. It is a pure function.
func judge(s standing) verdict {
	left := int32(len(s.rows))
	total := left
	if s.before != nil {
		total = max(left, s.before.Bundles)
	}
	v := verdict{status: v1alpha1.ClusterRemovalStatus{Bundles: total, Gone: total - left}}
	if s.before != nil && left == 0 {
		v.status.AgentWaitsFor, v.status.AgentWaitsSince = s.before.AgentWaitsFor, s.before.AgentWaitsSince
	}
	give := fmt.Sprintf("`atoll remove %s --force` gives it up with what it holds", s.name)
	switch {
	case s.removal.Force:
		v.forget, v.reason, v.message = true, ReasonForced, "the cluster is given up with what it holds"
		return v
	case !s.joined:
		v.forget, v.reason, v.message = true, ReasonNeverJoined, "no agent has ever been there"
		return v
	case s.holding != "":
		v.reason, v.message = ReasonHubHolds, "the hub was set back to an older state and orders nothing: `atoll restore accept`"
		return v
	case left == 0:
		v.reason, v.message = s.last(give)
		return v
	case s.unknown != nil:
		v.reason, v.message = ReasonPlanUnknown, "nothing is removed yet: what would be is not known, and the hub looks again: "+brief(s.unknown.Error())
		return v
	case s.plan != "" && s.plan != s.removal.Confirm:
		v.status.Plan, v.reason, v.message = s.plan, ReasonWaitsForConfirmation, s.asks()
		return v
	}
	if s.before != nil && s.before.Confirmed == s.removal.Confirm || s.plan == s.removal.Confirm {
		v.status.Confirmed = s.removal.Confirm
	}
	v.reason, v.message = s.waits(give)
	v.message = fmt.Sprintf("%d of %d bundles are gone; %s", v.status.Gone, total, v.message)
	return v
}

// asks for the confirmation of the whole removal.
func (s *standing) asks() string {
	n, such := 0, ""
	for _, r := range s.rows {
		if atoll.Cleanable(r.Bundle, r.Spec) {
			if n++; such == "" {
				such = bundle(r)
			}
		}
	}
	other := ""
	if s.removal.Confirm != "" {
		other = "; what was confirmed is another plan"
	}
	return fmt.Sprintf("nothing is removed yet: what Atoll applied of %s would be, such as %s, and that waits for `atoll confirm cluster/%s --plan %s`%s; `atoll remove %s --cancel` takes it back, --orphan leaves all of it there",
		atoll.Count(n, "bundle"), such, s.name, s.plan, other, s.name)
}

// CleanPlan gives the hash of what a cluster with these rows loses when it is cleaned; "" for
// nothing. Where a Revision that a row names is not there, which tables that lag bring about, it
// is an error, and nothing is taken for confirmed.
func CleanPlan(ctx context.Context, revisions Revisions, c *v1alpha1.Cluster, rows []state.Row) (string, error) {
	var items []atoll.ItemKey
	some := false
	for _, r := range rows {
		if !atoll.Cleanable(r.Bundle, r.Spec) {
			continue
		}
		some = true
		content, err := revisions.Content(ctx, r.Spec.Revision)
		if err != nil {
			return "", fmt.Errorf("list what is in cluster %s: %w", c.Name, err)
		}
		for i := range content.Items {
			if key := content.Items[i].Key; r.Spec.Has(key) {
				items = append(items, key)
			}
		}
	}
	if !some {
		return "", nil
	}
	return atoll.CleanPlan(string(c.UID), c.Annotations[atoll.AnnotationRemovalAsked], items), nil
}

// Suppose that a Cluster is written so, for a preview: a confirmation of its removal that is new
// was admitted, so that it is of what is there. Of one that was there before the status tells
// whether it is.
func Suppose(c *v1alpha1.Cluster, before *unstructured.Unstructured) {
	r, was := c.Spec.Removal, ""
	if before != nil {
		was, _, _ = unstructured.NestedString(before.Object, "spec", "removal", "confirm")
	}
	if r != nil && r.Confirm != was && r.Confirm != "" {
		c.Status.Removal = &v1alpha1.ClusterRemovalStatus{Confirmed: r.Confirm}
	}
}

// planTerms tell whether CleanPlan gives the same as before: Revisions never change.
func planTerms(c *v1alpha1.Cluster, rows []state.Row) string {
	var there []string
	for _, r := range rows {
		if atoll.Cleanable(r.Bundle, r.Spec) {
			there = append(there, strings.Join(append([]string{r.Spec.Revision}, r.Spec.NotHere...), "\x00"))
		}
	}
	slices.Sort(there)
	return atoll.HashJSON([]any{c.UID, c.Annotations[atoll.AnnotationRemovalAsked], there})
}

// last says what is waited for when no row is left.
func (s *standing) last(give string) (reason, message string) {
	switch {
	case !s.accepted:
		return ReasonWaitsForCluster, "nothing is placed there any more; the cluster is not accepted, so that its agent cannot be told: `atoll accept " + s.name + "`, or " + give
	case !s.online:
		return ReasonWaitsForCluster, "nothing is placed there any more; the cluster is away, and its agent lets go of the member when it is back; " + give
	case s.before != nil && s.before.AgentWaitsFor != "":
		since := ""
		if at := s.before.AgentWaitsSince; at != nil {
			since = " since " + at.UTC().Format(time.RFC3339)
		}
		return ReasonWaitsForMember, fmt.Sprintf("nothing is placed there any more; what keeps the agent from letting go of the member%s: %s; that is for the member's administrator, or %s", since, s.before.AgentWaitsFor, give)
	}
	return ReasonAgentLeaves, "nothing is placed there any more; the agent lets go of the member; one that is too old to know how must be updated, or " + give
}

// waits says what the rows wait for: what somebody must do goes before what comes by
// itself.
func (s *standing) waits(give string) (reason, message string) {
	var held, leaving, going []state.Row
	begun := true
	stuck := ""
	for _, r := range s.rows {
		switch r.Spec.Phase {
		case atoll.RowRemoving:
			going = append(going, r)
			if why := keeps(r); why != "" && stuck == "" {
				stuck = bundle(r) + " is kept from going: " + why
			}
		case atoll.RowHeld:
			held = append(held, r)
		default:
			begun = begun && r.Spec.Phase == atoll.RowLeaving
			if atoll.ParseRowReason(r.Spec.Reason).Plan != "" {
				held = append(held, r)
			} else {
				leaving = append(leaving, r)
			}
		}
	}
	switch {
	case len(held) > 0:
		r := held[0]
		return ReasonWaitsForConfirmation, fmt.Sprintf("%d wait for a confirmation, such as: %s", len(held), confirm(r))
	case !s.accepted && len(going) > 0:
		return ReasonWaitsForCluster, "the cluster is not accepted, so that its agent cannot be told: `atoll accept " + s.name + "`, or " + give
	case !s.online && len(going) > 0:
		return ReasonWaitsForCluster, fmt.Sprintf("%d wait for the cluster, which is away, to come back; %s", len(going), give)
	case stuck != "":
		return ReasonWaitsForMember, stuck
	case len(leaving) > 0 && !begun:
		return ReasonRemoving, fmt.Sprintf("%d are to leave", len(leaving))
	case len(leaving) > 0:
		r := leaving[0]
		return ReasonWaitsForReplacements, fmt.Sprintf("%d wait for what replaces them elsewhere to become healthy, such as %s (`atoll explain %s`)", len(leaving), bundle(r), ref(r))
	}
	return ReasonRemoving, fmt.Sprintf("%d are on their way out, such as %s", len(going), bundle(going[0]))
}

// keeps tells what the agent says keeps a row from going, other than that it takes time.
func keeps(r state.Row) string {
	st := r.Status
	if st == nil || st.Generation != r.Spec.Generation || st.State == atoll.RowRemoved {
		return ""
	}
	for _, it := range st.Items {
		if it.Message != "" && (it.Error || it.Reason == "Terminating" || it.Reason == "ForeignObjects") {
			return brief(it.Key.Kind + " " + it.Key.Name + ": " + it.Message)
		}
	}
	if st.State == atoll.RowFailed {
		return brief(strings.TrimSpace(st.Reason + " " + st.Message))
	}
	return ""
}

// confirm is the command that releases a row that waits.
func confirm(r state.Row) string {
	if plan := atoll.ParseRowReason(r.Spec.Reason).Plan; plan != "" {
		return fmt.Sprintf("`atoll confirm %s --plan %s`", ref(r), plan)
	}
	return fmt.Sprintf("`atoll confirm %s`", ref(r))
}

// ref of a row's Bundle, as commands take it.
func ref(r state.Row) string {
	if r.Bundle.Namespace == "" {
		return "clusterbundle/" + r.Bundle.Name
	}
	return "bundle/" + r.Bundle.Name + " -n " + r.Bundle.Namespace
}

func bundle(r state.Row) string {
	if r.Bundle.Namespace == "" {
		return r.Bundle.Name
	}
	return r.Bundle.Namespace + "/" + r.Bundle.Name
}

// brief gives the beginning of a text that an agent wrote.
func brief(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
