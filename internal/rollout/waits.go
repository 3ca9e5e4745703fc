package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// RowWait describes why one row is not done.
type RowWait struct {
	Cluster string `json:"cluster"`
	// Reason of the wait.
	Reason atoll.Reason `json:"reason"`
	// For describes the awaited event.
	For string `json:"for"`
	// Actor must act, by the table of reasons.
	Actor atoll.Actor `json:"who"`
	// Since is when the wait began.
	Since time.Time `json:"since"`
}

func newRowWait(reason atoll.Reason, awaited string, since time.Time) RowWait {
	return RowWait{Reason: reason, For: awaited, Actor: atoll.ActorOf(reason), Since: since}
}

func buildPausedOutput(in Input) (out Output) {
	if !in.ExplainWaits {
		return out
	}
	for _, c := range slices.Sorted(maps.Keys(in.Rows)) {
		w := newRowWait(atoll.ReasonHubHolds, "`atoll restore accept`: the hub was set back to an older state and issues nothing", time.Unix(in.Rows[c].Spec.Since, 0))
		w.Cluster = c
		out.Waits = append(out.Waits, w)
	}
	return out
}

// listWaits lists the waits of all rows with their next specs.
func (s *rolloutStep) listWaits() (out []RowWait) {
	specs := map[string]atoll.RowSpec{}
	for c, r := range s.Rows {
		specs[c] = r.Spec
	}
	for c, spec := range s.nextSpecs {
		if spec == nil {
			delete(specs, c)
		} else {
			specs[c] = *spec
		}
	}
	plan := s.pendingRemoval.buildPendingRemoval(s.BundleUID)
	for _, c := range slices.Sorted(maps.Keys(specs)) {
		w := waitOfPendingRow(specs[c])
		if w.Reason == atoll.ReasonWaitsForStage {
			w = s.findTurnWait(c, specs[c])
		} else if specs[c].Phase != atoll.RowPending {
			w = s.findRowWait(c, specs[c], plan)
		}
		if w.For != "" {
			w.Cluster = c
			out = append(out, w)
		}
	}
	return out
}

func (s *rolloutStep) findRowWait(c string, spec atoll.RowSpec, plan *PendingRemoval) RowWait {
	row := s.Rows[c]
	row.Spec = spec
	since := time.Unix(spec.Since, 0)
	if w := s.findPlanWait(spec, plan); w.For != "" {
		return w
	}
	switch {
	case spec.Recall != nil:
		return RowWait{}
	case spec.Phase == atoll.RowLeaving:
		return s.findLeavingWait(c, since)
	case s.blockersByCluster[c].countClusters() > 0:
		return newRowWait(atoll.ReasonWaitsForReplacements, s.blockersByCluster[c].formatNames()+" to become ready, before its share shrinks", time.Unix(spec.MovingSince, 0))
	case spec.Phase == atoll.RowRemoving:
		return WaitOfRemovingRow(row)
	case s.awaitsTurn(c, &spec), s.awaitsOtherRules(c, &spec):
		return s.findTurnWait(c, spec)
	}
	if w := s.findReturnWait(c, &spec); w.For != "" {
		return w
	}
	return s.Terms.ExplainDeadline(WaitOfActiveRow(row), row, s.Now)
}

// findPlanWait returns the wait of a row whose reason is a plan that a person decides; For is empty for others.
func (s *rolloutStep) findPlanWait(spec atoll.RowSpec, plan *PendingRemoval) RowWait {
	r, since := atoll.ParseRowReason(spec.Reason), time.Unix(spec.Since, 0)
	switch {
	case r.Plan == "":
		return RowWait{}
	case plan != nil && r.Plan == plan.Hash:
		if spec.MovingSince != 0 {
			since = time.Unix(spec.MovingSince, 0)
		}
		if len(spec.ExcludedPending) > 0 && spec.Phase == atoll.RowActive {
			since = time.Unix(slices.Min(slices.Collect(maps.Values(spec.ExcludedPending))), 0)
		}
	case r.Plan == s.Recalled.PlanHash:
		return newRowWait(atoll.ReasonRemovedBeforeRestore, fmt.Sprintf("a decision on plan %s: %s", r.Plan, r.Text), since)
	case r.Plan != s.Unconfirmed.PlanHash:
		return RowWait{}
	}
	return newRowWait(atoll.ReasonWaitsForConfirmation, fmt.Sprintf("a confirmation of plan %s: %s", r.Plan, r.Text), since)
}

// WaitOfRemovingRow returns the wait of a Removing row; For is empty when its cluster has removed it.
func WaitOfRemovingRow(row Row) RowWait {
	since, isCurrent := time.Unix(row.Spec.Since, 0), row.Status != nil && row.Status.Generation == row.Spec.Generation
	switch {
	case isCurrent && row.Status.State == atoll.RowRemoved:
		return RowWait{}
	case !row.Online:
		return newRowWait(atoll.ReasonWaitsForCluster, "the cluster to come back and remove what it holds, or `atoll remove --force` to give it up", since)
	}
	if isCurrent {
		if reason, hook := row.Status.RemovalHookWait(); hook != "" {
			return newRowWait(reason, "a hook of the removal, "+phrase.EscapeLine(hook), since)
		}
		if blocker := row.Status.RemovalBlocker(); blocker != "" {
			return newRowWait(atoll.ReasonWaitsForMember, "the removal, which is blocked: "+phrase.EscapeLine(blocker), since)
		}
	}
	return newRowWait(atoll.ReasonWaitsForRemoval, "the removal to be done"+ExplainCheckInDelay(row.CheckIn), since)
}

// ExplainCheckInDelay explains why a cluster that only checks in reports nothing yet; empty
// for one that holds a stream.
func ExplainCheckInDelay(every time.Duration) string {
	if every == 0 {
		return ""
	}
	return " (the cluster checks in every " + phrase.FormatDuration(every) + ")"
}

// WaitOfActiveRow returns the wait of an Active row; For is empty when the row is done.
func WaitOfActiveRow(row Row) RowWait {
	st, since := row.Status, time.Unix(row.Spec.Since, 0)
	behind := st == nil || st.Generation < row.Spec.Generation
	if st != nil && !behind {
		since = st.SinceTime()
	}
	switch {
	case !row.Online && st == nil:
		return newRowWait(atoll.ReasonWaitsForCluster, "the cluster to connect", since) // it may never have
	case !row.Online && (behind || st.State != atoll.RowReady):
		return newRowWait(atoll.ReasonWaitsForCluster, "the cluster to come back", since)
	case behind:
		return newRowWait(atoll.ReasonWaitsForApply, "the latest change to be applied"+ExplainCheckInDelay(row.CheckIn), since)
	}
	if w := findStatusWait(st, since); w.For != "" {
		w.For += describeFailover(row.Spec)
		return w
	}
	if r := atoll.ParseRowReason(row.Spec.Reason); r.Reason == atoll.ReasonNoCapacity {
		return newRowWait(atoll.ReasonNoCapacity, "capacity of the cluster: "+r.Text, since)
	}
	return RowWait{}
}

// statusWaits words the waits that a status shows, where the agent reports no words of its own.
var statusWaits = map[atoll.Reason]string{
	atoll.ReasonInterpreterFailed:       "a ResourceInterpreter to answer",
	atoll.ReasonHealthRuleFailed:        "rules of the policy that can be evaluated",
	atoll.ReasonMissing:                 "objects that the member does not have",
	atoll.ReasonProgressing:             "items to become healthy",
	atoll.ReasonDegraded:                "items that are not healthy",
	atoll.ReasonDeniedByPolicy:          "the member's administrator",
	atoll.ReasonHeldByPolicy:            "the member's administrator to let changes start",
	atoll.ReasonServiceAccountForbidden: "a right of a ServiceAccount in the member",
	atoll.ReasonFailed:                  "items that could not be applied",
}

// findStatusWait returns the wait that a status of the row's generation shows.
func findStatusWait(st *atoll.RowStatus, since time.Time) RowWait {
	reason := st.WaitReason()
	if reason == "" {
		return RowWait{}
	}
	return newRowWait(reason, describeFailure(st, statusWaits[reason]), since)
}

// describeFailure returns what the agent reports, or the first item that is not healthy.
func describeFailure(st *atoll.RowStatus, otherwise string) string {
	reason, message := string(st.Reason), phrase.EscapeLine(st.Message)
	for _, it := range st.Items {
		if reason == "" && it.Health != atoll.Healthy {
			reason, message = it.Key.Kind+"/"+it.Key.Name+" "+string(it.Reason), phrase.EscapeLine(it.Message)
		}
	}
	switch {
	case reason == "":
		return otherwise
	case message == "":
		return reason
	}
	return reason + ": " + message
}
