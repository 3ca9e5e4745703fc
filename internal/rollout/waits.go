package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// Wait says what one row waits for.
type Wait struct {
	Cluster string `json:"cluster"`
	// For what, in words.
	For string `json:"for"`
	// Who is to act: one of the Who values.
	Who string `json:"who"`
	// Since when.
	Since time.Time `json:"since"`
}

// Who is to act.
const (
	WhoAtoll   = "Atoll"
	WhoAgent   = "the agent"
	WhoMember  = "the member's administrator"
	WhoHub     = "the hub's administrator"
	WhoUser    = "the application's owner"
	WhoConfirm = "who may confirm removals"
)

func holding(in Input) (out Output) {
	if !in.Explain {
		return out
	}
	for _, c := range slices.Sorted(maps.Keys(in.Rows)) {
		out.Waits = append(out.Waits, Wait{
			Cluster: c, For: "`atoll restore accept`: the hub was set back to an older state and issues nothing", Who: WhoHub,
			Since: time.Unix(in.Rows[c].Spec.Since, 0),
		})
	}
	return out
}

// waits of all rows as they are about to be.
func (s *step) waits() (out []Wait) {
	specs := map[string]atoll.RowSpec{}
	for c, r := range s.Rows {
		specs[c] = r.Spec
	}
	for c, spec := range s.next {
		if spec == nil {
			delete(specs, c)
		} else {
			specs[c] = *spec
		}
	}
	plan := s.plan.plan(s.Bundle)
	for _, c := range slices.Sorted(maps.Keys(specs)) {
		if w := s.wait(c, specs[c], plan); w.For != "" {
			w.Cluster = c
			out = append(out, w)
		}
	}
	return out
}

func (s *step) wait(c string, spec atoll.RowSpec, plan *Plan) Wait {
	row := s.Rows[c]
	row.Spec = spec
	since := time.Unix(spec.Since, 0)
	if r := atoll.ParseRowReason(spec.Reason); plan != nil && r.Plan == plan.Hash {
		if spec.Moving != 0 {
			since = time.Unix(spec.Moving, 0)
		}
		if len(spec.NotYet) > 0 && spec.Phase == atoll.RowActive {
			since = time.Unix(slices.Min(slices.Collect(maps.Values(spec.NotYet))), 0)
		}
		return Wait{For: fmt.Sprintf("a confirmation of plan %s: %s", plan.Hash, r.Text), Who: WhoConfirm, Since: since}
	}
	switch r := atoll.ParseRowReason(spec.Reason); {
	case r.Plan != "" && r.Plan == s.Recalled.Plan:
		return Wait{For: fmt.Sprintf("a decision on plan %s: %s", r.Plan, r.Text), Who: WhoConfirm, Since: since}
	case spec.Recall != nil:
		return Wait{}
	case spec.Phase == atoll.RowLeaving:
		return Wait{For: s.blocked[c].names() + " to become ready", Who: WhoAtoll, Since: since}
	case s.blocked[c].size() > 0:
		return Wait{For: s.blocked[c].names() + " to become ready, before its share shrinks", Who: WhoAtoll, Since: time.Unix(spec.Moving, 0)}
	case spec.Phase == atoll.RowRemoving:
		return s.waitRemoval(row, since)
	}
	return WaitOf(row)
}

func (s *step) waitRemoval(row Row, since time.Time) Wait {
	switch {
	case row.Status != nil && row.Status.State == atoll.RowRemoved && row.Status.Generation == row.Spec.Generation:
		return Wait{}
	case !row.Online:
		return Wait{For: "the cluster to come back and remove what it holds, or `atoll remove` to give it up", Who: WhoMember, Since: since}
	}
	return Wait{For: "the removal to be done" + NextCheckIn(row.CheckIn), Who: WhoAgent, Since: since}
}

// NextCheckIn tells why nothing is heard of a cluster that only checks in; empty for one
// that holds a stream.
func NextCheckIn(every time.Duration) string {
	if every == 0 {
		return ""
	}
	return " (the cluster checks in every " + atoll.Span(every) + ")"
}

// WaitOf says what a row that is Active waits for; For is empty when it is done.
func WaitOf(row Row) Wait {
	st, since := row.Status, time.Unix(row.Spec.Since, 0)
	behind := st == nil || st.Generation < row.Spec.Generation
	if st != nil && !behind {
		since = time.Unix(st.Since, 0)
	}
	switch {
	case !row.Online && st == nil:
		return Wait{For: "the cluster to connect", Who: WhoMember, Since: since} // it may never have
	case !row.Online && (behind || st.State != atoll.RowReady):
		return Wait{For: "the cluster to come back", Who: WhoMember, Since: since}
	case behind:
		return Wait{For: "the latest change to be applied" + NextCheckIn(row.CheckIn), Who: WhoAgent, Since: since}
	case unanswered(st):
		return Wait{For: detail(st, "a ResourceInterpreter to answer"), Who: WhoHub, Since: since}
	case st.State == atoll.RowProgressing:
		return Wait{For: detail(st, "items to become healthy"), Who: WhoAtoll, Since: since}
	case st.State == atoll.RowDegraded:
		return Wait{For: detail(st, "items that are not healthy"), Who: WhoUser, Since: since}
	case st.State == atoll.RowFailed && refusedThere(st):
		return Wait{For: detail(st, "the member's administrator"), Who: WhoMember, Since: since}
	case st.State == atoll.RowFailed:
		return Wait{For: detail(st, "items that could not be applied"), Who: WhoUser, Since: since}
	}
	if r := atoll.ParseRowReason(row.Spec.Reason); r.Word == atoll.RowNoCapacity {
		return Wait{For: "capacity of the cluster: " + r.Text, Who: WhoHub, Since: since}
	}
	return Wait{}
}

// refusedThere tells whether what is in the way is what the member's administrator does not
// allow the agent.
func refusedThere(st *atoll.RowStatus) bool {
	if st.Reason != "" {
		return st.Reason == atoll.DeniedByPolicy
	}
	return slices.ContainsFunc(st.Items, func(it atoll.ItemStatus) bool {
		return it.Health != atoll.Healthy && it.Reason == atoll.DeniedByPolicy
	})
}

// unanswered tells whether a script's failure is what is in the way.
func unanswered(st *atoll.RowStatus) bool {
	switch st.State {
	case atoll.RowProgressing:
		return slices.ContainsFunc(st.Items, func(it atoll.ItemStatus) bool { return it.Reason == atoll.InterpreterFailed })
	case atoll.RowFailed: // what detail names
		i := slices.IndexFunc(st.Items, func(it atoll.ItemStatus) bool { return it.Health != atoll.Healthy })
		return st.Reason == "" && i >= 0 && st.Items[i].Reason == atoll.InterpreterFailed
	}
	return false
}

// detail names what the agent reports, or the first item that is in the way.
func detail(st *atoll.RowStatus, otherwise string) string {
	reason, message := st.Reason, st.Message
	for _, it := range st.Items {
		if reason == "" && it.Health != atoll.Healthy {
			reason, message = it.Key.Kind+"/"+it.Key.Name+" "+it.Reason, it.Message
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
