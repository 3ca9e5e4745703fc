package placer

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Reasons of a Bundle's condition PreferredGroup.
const (
	reasonInUse      = atoll.ReasonInUse
	reasonFallenBack = atoll.ReasonFallenBack
	reasonComesBack  = atoll.ReasonComesBack
)

// failbackState is the state of a Bundle that may return to other clusters. For a Bundle that is not
// in its placement's first group, its condition PreferredGroup holds the same, so that the hold time
// survives a restart of the hub.
type failbackState struct {
	// group in use. awaitsEarlier means that an earlier group is to be used again; earlierIsFull
	// means that only capacity prevents it.
	group                        string
	awaitsEarlier, earlierIsFull bool
	// overflows means that replicas lack a place in the chosen clusters, so that any fitting cluster
	// matters.
	overflows bool
	// better is the earlier group that is healthy, and since when. isRestored means that it
	// comes from the condition.
	better     schedule.PendingFailback
	isRestored bool
}

func failbackOf(d schedule.Decision, was failbackState) failbackState {
	return failbackState{group: d.Group, awaitsEarlier: d.AwaitsFailback, earlierIsFull: d.EarlierGroupFull, overflows: d.Overflows, better: d.PendingFailback, isRestored: was.isRestored && d.PendingFailback == was.better}
}

// restoredFailback reads the state from a Bundle's condition; empty when the Bundle was edited
// since.
func restoredFailback(b state.Bundle) failbackState {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundlePreferredGroup)
	if c == nil || c.Reason != string(reasonComesBack) || c.ObservedGeneration != b.Meta.Generation {
		return failbackState{}
	}
	better := schedule.ParsePendingFailback(c.Message)
	return failbackState{better: better, isRestored: better.Group != ""}
}

// writePreferredGroupCondition writes the condition PreferredGroup: which group is in use, and since when
// an earlier group is healthy. While scheduling is suspended, the last decision stays and so does the condition: the group of d is
// used after the suspension.
func (r *PlacementReconciler) writePreferredGroupCondition(ctx context.Context, b state.Bundle, d schedule.Decision) error {
	if d.Group == "" || r.SetCondition == nil || b.Spec.Suspension.SuspendsScheduling() {
		return nil
	}
	c := metav1.Condition{Type: v1alpha1.BundlePreferredGroup, Status: metav1.ConditionFalse, Reason: string(reasonFallenBack)}
	first := b.Spec.Placement.ClusterAffinities[0].AffinityName
	switch {
	case d.Group == first:
		if last := meta.FindStatusCondition(b.Status.Conditions, c.Type); atoll.IsUndetermined(last) || last.Reason == string(atoll.ReasonNoGroups) {
			return nil // the first group was always in use; the Bundle's status has it
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(reasonInUse), fmt.Sprintf("group %s is in use, the first of clusterAffinities", first)
	case d.PendingFailback.Group != "":
		c.Status, c.Reason = metav1.ConditionUnknown, string(reasonComesBack)
		c.Message = fmt.Sprintf("%s; it is used again from %s on if it stays well, and %s until then", d.PendingFailback, phrase.FormatTime(d.FailbackAt), d.Group)
	default:
		c.Message = fmt.Sprintf("group %s is in use; `atoll explain` shows why none is that comes before", d.Group)
	}
	return r.writeCondition(ctx, b, c)
}

// writeCondition writes a condition of a Bundle. After a conflict the next step writes it.
func (r *PlacementReconciler) writeCondition(ctx context.Context, b state.Bundle, c metav1.Condition) error {
	err := r.SetCondition(ctx, b, c)
	if apierrors.IsConflict(err) { // another writer changed the status
		r.index.requireAllRows(b.Ref.UID)
		r.bundleLoop.EnqueueAfter(b.Ref.UID, time.Second)
		return nil
	}
	return client.IgnoreNotFound(err)
}

// failbackOfBundle returns the state after the last step; without one, the state in the
// condition.
func (x *bundleIndex) failbackOfBundle(b state.Bundle) failbackState {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[b.Ref.UID]; e != nil && (e.filter != nil || e.failback != failbackState{}) {
		return e.failback
	}
	return restoredFailback(b)
}

// mayReturnOrOverflowTo reports whether the Bundle may return to the cluster, or overflow to it.
func (s *failbackState) mayReturnOrOverflowTo(f *schedule.CompiledPlacement, c *schedule.Cluster) bool {
	return f.FitsEarlierGroup(s.group, c) || s.overflows && f.AdmitsCluster(c)
}

// awaitsCapacityIn reports whether the Bundle waits for free capacity in the cluster, in an earlier
// group than the one in use, or in any place of an overflow.
func (x *bundleIndex) awaitsCapacityIn(uid string, c *schedule.Cluster) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	return e != nil && e.filter != nil && (e.failback.earlierIsFull || e.failback.overflows) && e.failback.mayReturnOrOverflowTo(e.filter, c)
}
