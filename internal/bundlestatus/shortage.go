package bundlestatus

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Reasons of the condition ReplicasPlaced.
const (
	ReasonAllPlaced = atoll.ReasonAllPlaced
	ReasonNoPlace   = atoll.ReasonNoPlace
	// ReasonOverridden: overrides have clusters run more than templates state.
	ReasonOverridden = atoll.ReasonOverridden
)

// shortage of places, as rows show it: what a workload states and what they are
// assigned.
type shortage struct {
	// known: the rows are about the latest Revision and have their assigned replicas.
	known bool
	short []schedule.Shortage
	// surplus are workloads of which overrides have clusters run more than the template
	// states: Unplaced is how many more, below 0.
	surplus []schedule.Shortage
}

// countShortage counts over all rows what each workload was assigned. Rows that are to go
// count: until they do, what they run has a place. While a rollout moves rows, the shortage is not
// known, and the condition stays as the last complete count set it.
func (in StatusInput) countShortage() (s shortage) {
	if len(in.Workloads) == 0 {
		s.known = in.Content != nil
		return s
	}
	assigned, complete := in.sumAssigned()
	if s.known = complete && len(assigned) > 0; !s.known {
		return s
	}
	for _, w := range in.Workloads {
		one := schedule.Shortage{Key: w.Key, Replicas: w.Replicas, Unplaced: w.Replicas - assigned[w.Key.String()]}
		switch {
		case one.Unplaced > 0:
			if in.ExplainShortage != nil && len(s.short) < mostNamed {
				one.Fit = in.ExplainShortage(&w)
			}
			s.short = append(s.short, one)
		case one.Unplaced < 0 && w.HasReplicaOverrides:
			s.surplus = append(s.surplus, one)
		}
	}
	return s
}

// sumAssigned sums what rows assign to each workload. complete is false where an Active row is of
// another Revision, or has no assigned replicas.
func (in StatusInput) sumAssigned() (assigned map[string]int64, complete bool) {
	assigned = map[string]int64{}
	for _, r := range in.Rows {
		active := r.Spec.Phase == atoll.RowActive
		switch {
		case r.Spec.Phase == atoll.RowRemoving || r.Spec.Phase == atoll.RowVacant:
			continue
		case active && (in.Latest == nil || r.Spec.Revision != in.Latest.Name):
			return assigned, false
		}
		for _, w := range in.Workloads {
			n, has := r.Spec.Assigned[w.Key.String()]
			if !has && active {
				return assigned, false
			}
			assigned[w.Key.String()] += n * int64(r.rowCount())
		}
	}
	return assigned, true
}

// lacksPlacesBySuspension reports whether chosen clusters have fewer replicas than a workload states while a suspension keeps their shares.
// Leaving rows stay as long as that. Nothing is known while an Active row has no share yet.
func (in StatusInput) lacksPlacesBySuspension() (lacks bool) {
	of := in.Bundle.Spec.Suspension
	if of == nil {
		return false
	}
	suspends := of.SuspendsScheduling() || of.SuspendsDispatching()
	for _, w := range in.Workloads {
		left := w.Replicas
		for _, r := range in.Rows {
			if !r.Spec.Phase.IsChosen() {
				continue
			}
			n, has := r.Spec.Assigned[w.Key.String()]
			if !has && r.Spec.Phase != atoll.RowPending {
				return false
			}
			left -= n * int64(r.rowCount())
			suspends = suspends || r.Suspended
		}
		lacks = lacks || left > 0
	}
	return lacks && suspends
}

// setLeavingWait sets for what a row waits that is to go once others take its place.
func (t *rowTally) setLeavingWait(in StatusInput, r Row, w *waitCause) {
	w.rank, w.reason, w.text = rankLeaving, atoll.ReasonWaitsForReplacements, "what replaces it to become ready"
	switch why := atoll.ParseRowReason(r.Spec.Reason); {
	case atoll.IsOrderReason(why.Reason):
		w.reason, w.text = why.Reason, why.Text
		return
	case atoll.IsBudgetReason(why.Reason):
		t.setBudgetWait(why.Reason, w)
		return
	}
	if !t.lacksPlaces || r.Spec.Phase != atoll.RowLeaving || !r.Spec.HoldsReplicas() {
		return
	}
	const places = "another place for its replicas"
	w.rank = rankHeldTurn
	if of := in.Bundle.Spec.Suspension; of.SuspendsChanges() {
		w.reason, w.text = atoll.ReasonDispatchingSuspended, places+": "+in.Halt.DescribeSuspendedCluster()
		return
	}
	w.reason, w.text = atoll.ReasonSchedulingSuspended, places+", while "+in.describeSchedulingSuspension()
}

const byWhom = "the policy's owner must act: with other bounds or weights, or with more clusters"

func (s shortage) placedCondition() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.BundleReplicasPlaced}
	if len(s.short) == 0 && len(s.surplus) > 0 {
		var sums []string
		for _, w := range s.surplus[:min(len(s.surplus), mostNamed)] {
			sums = append(sums, fmt.Sprintf("%d of %s/%s, whose template states %d", w.Replicas-w.Unplaced, w.Key.Kind, w.Key.Name, w.Replicas))
		}
		c.Status, c.Reason = metav1.ConditionTrue, string(ReasonOverridden)
		c.Message = "overrides set replicas of clusters: all together run " + strings.Join(sums, ", ")
		return c
	}
	if len(s.short) == 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(ReasonAllPlaced), "all replicas of divided workloads have a place"
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, string(ReasonNoPlace)
	c.Message = fmt.Sprintf("no place for %s: every cluster that fits is at its bounds, `atoll explain` shows at which; %s", s.shortageText(), byWhom)
	for i := range s.short {
		if one := &s.short[i]; one.Fit != "" {
			c.Message += fmt.Sprintf("; as to %s/%s, %s", one.Key.Kind, one.Key.Name, one.Fit)
		}
	}
	return c
}

// shortageText returns the count workload by workload, the first few.
func (s shortage) shortageText() string {
	var out []string
	for i, w := range s.short {
		if i == mostNamed {
			out = append(out, fmt.Sprintf("and %d more workloads", len(s.short)-mostNamed))
			break
		}
		out = append(out, fmt.Sprintf("%d of %d replicas of %s/%s", w.Unplaced, w.Replicas, w.Key.Kind, w.Key.Name))
	}
	return strings.Join(out, ", ")
}

// waitText returns the wait in few words; empty when nothing is short.
func (s shortage) waitText() string {
	if len(s.short) == 0 {
		return ""
	}
	return fmt.Sprintf("a place for %s; %s", s.shortageText(), "the policy's owner must act")
}
