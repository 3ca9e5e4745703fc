// Package fleetlist lists a fleet without its objects: counts of clusters by a property, pages of slim clusters, slim Sources, and
// a search by names.
//
// Contract: pure. Nothing here reads a table, a clock or a right of a user. One request takes one pass over the rows, and
// memory for its answer alone. Clusters and Sources that are passed in are shared, and are not changed. An Index has one
// writer at a time, beside which nothing reads it; every other value may be read concurrently.
package fleetlist

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// State is the readiness of a cluster in one word.
type State uint8

// The states, those that need attention first.
const (
	NotReady State = iota
	Away
	Joining
	Removing
	Unknown
	Ready
	numStates
)

var stateNames = [numStates]string{"NotReady", "Away", "Joining", "Removing", "Unknown", "Ready"}

// String returns the name of the state, as answers have it.
func (s State) String() string { return stateNames[s] }

// MarshalText returns the name of the state.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// StateOf returns the state of a Cluster and the condition that gives it; nil where there is none.
func StateOf(c *v1alpha1.Cluster) (State, *metav1.Condition) {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	preferred := func(kind string) *metav1.Condition {
		if found := meta.FindStatusCondition(c.Status.Conditions, kind); found != nil {
			return found
		}
		return ready
	}
	switch {
	case c.Spec.Removal != nil:
		return Removing, preferred(v1alpha1.ClusterRemoving)
	case !c.Spec.Accepted:
		return Joining, preferred(v1alpha1.ClusterAccepted)
	case ready == nil:
		return Unknown, nil
	case ready.Status == metav1.ConditionTrue:
		return Ready, ready
	case ready.Status == metav1.ConditionFalse:
		return NotReady, ready
	case ready.Reason == string(atoll.ReasonNotDetermined):
		return Unknown, ready
	}
	return Away, ready
}

// Row is a Cluster in an Index, with its state.
type Row struct {
	Cluster *v1alpha1.Cluster
	// Sets are the ClusterSets that the cluster is in, by name.
	Sets  []string
	State State
	// condition gives the state; nil where there is none.
	condition *metav1.Condition
}

// NewRow returns the row of a Cluster that is in the ClusterSets.
func NewRow(c *v1alpha1.Cluster, sets []string) Row {
	state, condition := StateOf(c)
	return Row{Cluster: c, Sets: sets, State: state, condition: condition}
}

// Name returns the name of the cluster.
func (r *Row) Name() string { return r.Cluster.Name }

func (r *Row) stateReason() string {
	if r.condition == nil {
		return ""
	}
	return r.condition.Reason
}

func (r *Row) stateSince() time.Time {
	if r.condition == nil {
		return r.Cluster.CreationTimestamp.Time
	}
	return r.condition.LastTransitionTime.Time
}

// processTypes are conditions of a Cluster, in addition to its state, for which a person may have to act.
var processTypes = []string{v1alpha1.ClusterDraining, v1alpha1.ClusterRemoving}

// findProcesses returns the drain and the removal that are under way and are not the cluster's state already.
func (r *Row) findProcesses() (out []*metav1.Condition) {
	for i := range r.Cluster.Status.Conditions {
		c := &r.Cluster.Status.Conditions[i]
		if c.Status == metav1.ConditionTrue && c != r.condition && slices.Contains(processTypes, c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// WaitsForPerson reports whether a person must act before the state of the cluster, its drain or its removal ends.
func (r *Row) WaitsForPerson() bool {
	if r.State != Ready && isForPerson(r.stateReason()) {
		return true
	}
	return slices.ContainsFunc(r.findProcesses(), func(c *metav1.Condition) bool { return isForPerson(c.Reason) })
}

// isForPerson reports whether the actor of a reason is a person.
func isForPerson(reason string) bool {
	switch atoll.ActorOf(atoll.Reason(reason)) {
	case atoll.ActorNone, atoll.ActorAtoll, atoll.ActorAgent:
		return false
	}
	return true
}
