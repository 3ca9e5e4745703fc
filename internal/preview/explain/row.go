package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/checkin"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// explainRow explains the row of a cluster. all: the user may read the whole Bundle.
func (in ExplanationInput) explainRow(b Bundle, cluster string, explainRow rollout.Row, all bool) *RowExplanation {
	r := &RowExplanation{
		Phase: explainRow.Spec.Phase, Reason: b.Decision.HideMembers(explainRow.Spec.Reason, in.MayRead), Revision: explainRow.Spec.Revision, Number: b.Numbers[explainRow.Spec.Revision],
		Generation: explainRow.Spec.Generation, Since: time.Unix(explainRow.Spec.Since, 0).UTC(), Orphan: explainRow.Spec.Orphan, Online: explainRow.Online,
	}
	reason := atoll.ParseRowReason(r.Reason)
	if r.ReasonCode = reason.Reason; namesRemovals(reason.Reason) && !all {
		reason.Text = ""
		r.Reason = reason.String()
	}
	r.Assigned, r.Ordinals = in.visibleAssignments(b, explainRow.Spec)
	if at, away := b.DisconnectedSince[cluster]; away && !explainRow.Online {
		r.DisconnectedSince = &at
	}
	r.AgentProblem = b.AgentProblems[cluster]
	if explainRow.CheckIn > 0 && explainRow.Online {
		r.CheckIn = checkin.NewCheckInSchedule(explainRow.CheckIn, explainRow.Spec.UID).DescribeNext(in.Now)
	}
	if st := explainRow.Status; st != nil {
		// An earlier version stored later times of members.
		since := st.SinceTime().UTC()
		r.State, r.Reported, r.StateSince = st.State, st.Generation, &since
		if !in.isAboutBundle(b) {
			r.Health, r.ProblemReason, r.Problem = in.reportedHealth(st)
			r.Feedback, r.Completed = in.reportedFeedback(st)
		}
	}
	r.Approval = in.approvalOf(b, explainRow)
	if next, changes := b.Output.Changes[cluster]; changes {
		r.Next = nextStep(explainRow.Spec, next)
	} else {
		r.OverridesWait = b.staysAtRevision(explainRow.Spec)
	}
	return r
}

// namesRemovals reports whether the text of the reason names items that are to go.
func namesRemovals(reason atoll.Reason) bool {
	return reason == atoll.ReasonRemovalHeld || reason == atoll.ReasonRemovedBeforeRestore || reason == atoll.ReasonWaitsForConfirmation
}

// approvalOf returns the approval of the object's drift that the cluster has not answered; nil without one.
func (in ExplanationInput) approvalOf(b Bundle, row rollout.Row) *atoll.ApprovalOrigin {
	if in.isAboutBundle(b) {
		return nil
	}
	for _, a := range row.Spec.OpenApprovals(row.Status) {
		if a.Item == in.Object.String() {
			return a.ToOrigin()
		}
	}
	return nil
}

// staysAtRevision reports whether a row stays at a revision that is acceptable and not the latest.
func (b Bundle) staysAtRevision(spec atoll.RowSpec) bool {
	return b.Content != nil && spec.Phase == atoll.RowActive && spec.Revision != b.Latest &&
		atoll.IsAcceptableRevision(spec.Revision, b.Latest, b.Content.MinRevision)
}

// visibleAssignments returns the assigned replicas and first ordinals of the items that are explained and
// that the user may read; nil where there are none.
func (in ExplanationInput) visibleAssignments(b Bundle, spec atoll.RowSpec) (assigned, ordinals map[string]int64) {
	for item, n := range spec.Assigned {
		key, err := atoll.ParseItemKey(item)
		if err != nil || !in.mayRead(key) || !in.isAboutBundle(b) && key != in.Object {
			continue
		}
		if assigned == nil {
			assigned, ordinals = map[string]int64{}, map[string]int64{}
		}
		assigned[item] = n
		if start, ranged := spec.OrdinalStarts[item]; ranged {
			ordinals[item] = start
		}
	}
	if len(ordinals) == 0 {
		ordinals = nil
	}
	return assigned, ordinals
}

// reasonsOfHealthyItems are shown although the object is healthy: it is not as the hub orders it.
var reasonsOfHealthyItems = []atoll.Reason{atoll.ReasonDeniedByPolicy, atoll.ReasonHeldByPolicy, atoll.ReasonDrifted}

// reportedHealth returns the health of the object as last reported. A report lists what is not healthy, and
// what has a status to reflect; what it leaves out is healthy once it is applied.
func (in ExplanationInput) reportedHealth(st *atoll.RowStatus) (h atoll.Health, reason atoll.Reason, problem string) {
	if st.State == atoll.RowRemoved {
		return "", "", ""
	}
	for _, i := range st.Items {
		if i.Key == in.Object {
			if i.Health == atoll.Healthy && !i.Error && !slices.Contains(reasonsOfHealthyItems, i.Reason) {
				return i.Health, "", ""
			}
			return i.Health, i.Reason, strings.TrimSuffix(string(i.Reason)+": "+phrase.EscapeLine(i.Message), ": ")
		}
	}
	if st.Applied || st.State == atoll.RowReady {
		return atoll.Healthy, "", ""
	}
	return "", "", ""
}

// reportedFeedback returns the values of the object as last reported, and whether it ran to
// completion as a rule defines it.
func (in ExplanationInput) reportedFeedback(st *atoll.RowStatus) (out []FeedbackValue, completed bool) {
	for i := range st.Items {
		it := &st.Items[i]
		if it.Key != in.Object {
			continue
		}
		for _, v := range it.Feedback {
			out = append(out, FeedbackValue(v))
		}
		return out, it.Completed
	}
	return nil, false
}

// visibleWait words a wait for a user that may not read all of the Bundle's items.
func (in ExplanationInput) visibleWait(row rollout.Row, w rollout.RowWait) string {
	if row.Spec.Phase != atoll.RowActive || atoll.ParseRowReason(row.Spec.Reason).Plan != "" {
		if plan := atoll.ParseRowReason(row.Spec.Reason).Plan; plan != "" {
			return "a confirmation of plan " + plan
		}
		if isNamedBlocker(w.Reason) {
			return in.visibleBlocker(row)
		}
		return w.For
	}
	st := row.Status
	if st == nil || st.Generation < row.Spec.Generation || !row.Online || atoll.IsTurnReason(w.Reason) {
		return w.For
	}
	for _, i := range st.Items {
		if i.Health != atoll.Healthy && in.mayRead(i.Key) {
			return i.Key.Kind + "/" + i.Key.Name + " " + strings.TrimSuffix(string(i.Reason)+": "+phrase.EscapeLine(i.Message), ": ")
		}
	}
	return "items that you may not read"
}

// visibleBlocker words what blocks a removal for a user that may not read all of the Bundle's items.
func (in ExplanationInput) visibleBlocker(row rollout.Row) string {
	st := row.Status
	row.Status = &atoll.RowStatus{Generation: st.Generation, State: st.State, Items: slices.DeleteFunc(slices.Clone(st.Items), func(i atoll.ItemStatus) bool { return !in.mayRead(i.Key) })}
	if w := rollout.WaitOfRemovingRow(row); isNamedBlocker(w.Reason) {
		return w.For
	}
	return "the removal, which items block that you may not read"
}

// isNamedBlocker reports whether the wait of a removal with the reason names an item.
func isNamedBlocker(reason atoll.Reason) bool {
	return reason == atoll.ReasonWaitsForMember || reason == atoll.ReasonHookFailed || reason == atoll.ReasonWaitsForHook
}

// nextStep words what changes in a row.
func nextStep(is atoll.RowSpec, next *atoll.RowSpec) string {
	switch {
	case next == nil:
		return "given up, since its Cluster is gone"
	case next.UID != is.UID:
		return "created again for the Cluster that has the name now"
	case next.Phase != is.Phase:
		return fmt.Sprintf("becomes %s", next.Phase)
	case next.Revision != is.Revision:
		return "moves to the latest revision"
	case next.Variant != is.Variant:
		return "gets other overrides, or another API version"
	case len(next.ExcludedPending) < len(is.ExcludedPending):
		return "loses what is not ordered there"
	case len(next.Approvals) > 0 && !slices.Equal(next.Approvals, is.Approvals):
		return "gets the approval of a correction"
	case next.Generation != is.Generation:
		return "gets another share"
	}
	return ""
}

// clustersPendingObjectDeletion returns the clusters of a Bundle that have not reported the
// deletion of the object.
func (in ExplanationInput) clustersPendingObjectDeletion(b Bundle) (out []string) {
	for _, t := range b.Content.Tombstones {
		if t.Key != in.Object {
			continue
		}
		for cluster, row := range b.Rows {
			if !t.IsDoneInRow(b.Latest, row.Spec, row.Status) && !slices.Contains(out, cluster) {
				out = append(out, cluster)
			}
		}
	}
	slices.Sort(out)
	return out
}
