package place

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Reasons of a Bundle's condition PreferredGroup.
const (
	reasonInUse      = "InUse"
	reasonFallenBack = "FallenBack"
	reasonComesBack  = "ComesBack"
)

// reconnect is how long after the begin of Run a cluster is taken to be in touch that was
// when the hub went down: its agent has to find the hub again. No Bundle goes back by that
// alone before it is over.
const reconnect = 2 * time.Minute

// failback is what the index remembers of a Bundle that is not in the first of its
// placement's groups. Its condition PreferredGroup says the same, so that the hold time
// goes on where the hub starts again.
type failback struct {
	// group in use; waits tells whether an earlier one is to be used again at some time,
	// and full whether one would be, had it room.
	group       string
	waits, full bool
	// better group that is well, since when. restored: by what an earlier hub said.
	better   schedule.Better
	restored bool
}

func failbackOf(d schedule.Decision, was failback) failback {
	return failback{group: d.Group, waits: d.FailsBack, full: d.EarlierFull, better: d.Better, restored: was.restored && d.Better == was.better}
}

// restored is what the condition of a Bundle says of it; nothing where it was edited since.
func restored(b state.Bundle) failback {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundlePreferredGroup)
	if c == nil || c.Reason != reasonComesBack || c.ObservedGeneration != b.Meta.Generation {
		return failback{}
	}
	better := schedule.ParseBetter(c.Message)
	return failback{better: better, restored: better.Group != ""}
}

// sayGroup in the Bundle's status: which group is used in place of a better one, and since
// when that one could be used again.
func (r *Reconciler) sayGroup(ctx context.Context, b state.Bundle, d schedule.Decision) error {
	if d.Group == "" || r.Say == nil {
		return nil
	}
	c := metav1.Condition{Type: v1alpha1.BundlePreferredGroup, Status: metav1.ConditionFalse, Reason: reasonFallenBack}
	first := b.Spec.Placement.ClusterAffinities[0].AffinityName
	switch {
	case d.Group == first:
		if meta.FindStatusCondition(b.Status.Conditions, c.Type) == nil {
			return nil // it was never anything else
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonInUse, fmt.Sprintf("group %s is in use, the first of clusterAffinities", first)
	case d.Better.Group != "":
		c.Status, c.Reason = metav1.ConditionUnknown, reasonComesBack
		c.Message = fmt.Sprintf("%s; it is used again from %s on if it stays well, and %s until then", d.Better, d.BetterAt.UTC().Format(time.RFC3339), d.Group)
	default:
		c.Message = fmt.Sprintf("group %s is in use; `atoll explain` says why none is that comes before", d.Group)
	}
	err := r.Say(ctx, b, c)
	if apierrors.IsConflict(err) { // others write the status too, from what they read
		r.index.whole(b.Ref.UID)
		r.add(b.Ref.UID, priorityUser, time.Second)
		return nil
	}
	return client.IgnoreNotFound(err)
}

// note what a step came to; the caller holds the lock.
func (x *index) noteFailback(e *entry, is failback) {
	if e.failback = is; is.waits {
		x.failing[e.uid] = struct{}{}
	} else {
		delete(x.failing, e.uid)
	}
}

// came tells whether the cluster is in touch now and was not, or the other way round, and
// which Bundles wait for an earlier group that it is of.
func (x *index) came(c *schedule.Cluster, well bool) (uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.well[c.Name] == well {
		return nil
	}
	if well {
		x.well[c.Name] = true
	} else {
		delete(x.well, c.Name)
	}
	for uid := range x.failing {
		if e := x.entries[uid]; e != nil && e.filter != nil && e.filter.Earlier(e.failback.group, c) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// failback looks at the Bundles that wait for a cluster to be in touch, or out of it.
func (r *Reconciler) failback(c schedule.Cluster) {
	for _, uid := range r.index.came(&c, r.Clusters.Online(c.UID)) {
		r.now(uid)
	}
}

// healthy clusters may be failed back to: those in touch, and shortly after the start of
// Run those that were.
func (r *Reconciler) healthy(c *schedule.Cluster) bool {
	if r.Clusters.Online(c.UID) {
		return true
	}
	if !time.Now().Before(r.reconnected()) {
		return false
	}
	known, ok := r.Clusters.Get(c.Name)
	return ok && meta.IsStatusConditionTrue(known.Status.Conditions, v1alpha1.ClusterReady)
}

// reconnected is when agents have had the time to find this hub; long ago before Run.
func (r *Reconciler) reconnected() time.Time { return time.Unix(0, r.begun.Load()).Add(reconnect) }

// notBackBefore is when a Bundle may go back to an earlier group.
func (r *Reconciler) notBackBefore(was failback) time.Time {
	if !was.restored {
		return time.Time{}
	}
	return r.reconnected()
}

// failback of a Bundle, as its last step found it, or is supposed to have, or an earlier hub
// said.
func (x *index) failback(b state.Bundle) failback {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[b.Ref.UID]; e != nil && (e.filter != nil || e.failback != failback{}) {
		return e.failback
	}
	return restored(b)
}

// awaitsRoomIn tells whether the Bundle waits for room in the cluster, in a group that comes
// before the one that is in use.
func (x *index) awaitsRoomIn(uid string, c *schedule.Cluster) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	return e != nil && e.filter != nil && e.failback.full && e.filter.Earlier(e.failback.group, c)
}
