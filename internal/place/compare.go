package place

import (
	"context"
	"reflect"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/schedule"
)

func (r *Reconciler) workClusters(ctx context.Context, q workqueue.TypedInterface[string]) {
	for {
		name, shutdown := q.Get()
		if shutdown {
			return
		}
		r.compare(ctx, name)
		q.Done(name)
	}
}

// compare a cluster with what it was, and look at the Bundles in which that makes
// a difference.
func (r *Reconciler) compare(ctx context.Context, name string) {
	c, ok := r.Clusters.Get(name)
	if !ok {
		r.rooms.forget(name)
		if was, known := r.index.gone(name); known {
			r.usage.forget(name, was.UID)
			r.touchAll(r.index.underWay(), name)
			r.touchRows(was.UID, name)
		}
		return
	}
	r.roomChanged(c)
	is := r.Views.Of(c)
	was, known := r.index.seen(is)
	if !known {
		was = schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}}
	}
	r.capacityChanged(was, is)
	r.reachable(is)
	r.failback(is)
	if known && same(was, is) {
		if !slices.Equal(was.Resources, is.Resources) {
			r.scored(name)
		}
		return
	}
	r.scored(name)
	r.touchAll(r.index.underWay(), name)
	if known && was.UID != is.UID {
		r.touchRows(was.UID, name)
	}
	r.touchAll(r.differs(was, is), name)
	if known && !reflect.DeepEqual(was.ClusterView, is.ClusterView) {
		r.revary(ctx, is)
	}
}

// same tells whether two states of a cluster are the same to every placement: what only
// scores look at is read when somebody chooses, and is no reason to choose again; of
// capacity those hear who wait for it.
func same(was, is schedule.Cluster) bool {
	was.Resources, is.Resources, was.Capacity, is.Capacity = nil, nil, nil, nil
	return reflect.DeepEqual(was, is)
}

func (r *Reconciler) touchAll(uids []string, cluster string) {
	for _, uid := range uids {
		r.touched(uid, cluster)
	}
}

// touched: the cluster's part in the Bundle may have changed.
func (r *Reconciler) touched(uid, cluster string) {
	r.add(uid, priorityUser, r.index.touch(uid, cluster))
}

func (r *Reconciler) touchRows(clusterUID, name string) {
	for _, row := range r.Rows.OfCluster(clusterUID) {
		r.touched(row.Bundle.UID, name)
	}
}

// reachable: a stream came or went; that matters where something waits.
func (r *Reconciler) reachable(c schedule.Cluster) {
	for _, row := range r.Rows.OfCluster(c.UID) {
		if after, yes := r.index.awaits(row.Bundle.UID, row.Cluster); yes {
			r.add(row.Bundle.UID, priorityUser, after)
		}
	}
}

// differs lists the Bundles whose verdict on the cluster is not what it was.
func (r *Reconciler) differs(was, is schedule.Cluster) (uids []string) {
	held, now := map[string]bool{}, time.Now()
	for _, uid := range []string{was.UID, is.UID} {
		for _, row := range r.Rows.OfCluster(uid) {
			held[row.Bundle.UID] = true
		}
	}
	var holding []entry
	r.index.mu.Lock()
	for _, e := range r.index.entries {
		if e.filter == nil {
			continue
		}
		if held[e.uid] {
			holding = append(holding, *e)
		} else if e.concerns(was, is) {
			uids = append(uids, e.uid)
		}
	}
	r.index.mu.Unlock()
	for _, e := range holding {
		var row *atoll.RowSpec
		if s, ok := r.Rows.Get(e.uid, is.Name); ok {
			row = &s.Spec
		}
		before, after := e.verdict(was, row, now), e.verdict(is, row, now)
		if row == nil && after.Outcome == schedule.Placed || row != nil && (before != after || e.filter.Chooses()) {
			uids = append(uids, e.uid)
		}
	}
	return uids
}

// concerns tells whether the change of a cluster without a row could give it one.
func (e *entry) concerns(was, is schedule.Cluster) bool {
	if e.filter.Chooses() && !e.hungry && !e.whole && !e.filter.Grouped() {
		return false
	}
	if e.filter.Admits(&is) {
		return true
	}
	// It counts, in the group that it was in, as one that could be chosen.
	if !e.filter.Chooses() {
		return false
	}
	return e.filter.Admits(&was)
}

// verdict on one cluster alone; comparable with others of the same time, which decides
// on evictions.
func (e entry) verdict(c schedule.Cluster, row *atoll.RowSpec, now time.Time) schedule.Verdict {
	return e.filter.Judge(&c, row, e.whenUnfit, now)
}

// revary: other override rules may target the cluster now, which only matters to
// Bundles that have rows there.
func (r *Reconciler) revary(ctx context.Context, c schedule.Cluster) {
	for _, row := range r.Rows.OfCluster(c.UID) {
		target, ok := r.Revisions.Latest(row.Bundle.UID)
		if !ok {
			continue
		}
		// A content that cannot be read is the step's to complain about.
		if content, err := r.Revisions.Content(ctx, row.Spec.Revision); err == nil && atoll.MayStay(row.Spec.Revision, target.Name, target.Spec.Base) {
			if _, variant := render.Rules(content, c.ClusterView); variant == row.Spec.Variant {
				continue
			}
		}
		r.touched(row.Bundle.UID, c.Name)
	}
}
