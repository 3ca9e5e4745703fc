package placer

import (
	"context"
	"reflect"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/schedule"
)

// handleClusterChange compares a cluster with its last state, and touches the Bundles for which the
// change matters.
func (r *PlacementReconciler) handleClusterChange(ctx context.Context, name string) {
	c, ok := r.Clusters.Get(name)
	if !ok {
		r.capacity.removeMember(name)
		if was, known := r.index.removeCluster(name); known {
			r.usage.removeMember(name, was.UID)
			r.touchBundles(r.index.bundlesStepping(), name)
			r.touchRows(was.UID, name)
		}
		return
	}
	r.freeCapacityChanged(c)
	is := r.Views.ViewOf(c)
	was, known := r.index.replaceCluster(is)
	if !known {
		was = schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}}
	}
	r.capacityChanged(was, is)
	r.connectionChanged(is)
	r.enqueueBundlesAwaitingConnection(is)
	if known && isSameForPlacement(was, is) {
		if !slices.Equal(was.Resources, is.Resources) {
			r.scoresChanged(name)
		}
		return
	}
	r.scoresChanged(name)
	r.touchBundles(r.index.bundlesStepping(), name)
	if known && was.UID != is.UID {
		r.touchRows(was.UID, name)
	}
	r.touchBundles(r.bundlesWithChangedVerdict(was, is), name)
	if known && !reflect.DeepEqual(was.ClusterView, is.ClusterView) {
		r.variantsChanged(ctx, is)
	}
}

// isSameForPlacement reports whether no placement distinguishes two states of a cluster.
// Resources only matter to scores, and capacity to the Bundles that wait for it.
func isSameForPlacement(was, is schedule.Cluster) bool {
	was.Resources, is.Resources, was.Capacity, is.Capacity = nil, nil, nil, nil
	return reflect.DeepEqual(was, is)
}

func (r *PlacementReconciler) touchBundles(uids []string, cluster string) {
	for _, uid := range uids {
		r.touchBundle(uid, cluster)
	}
}

// touchBundle reconciles a Bundle in which the cluster's part may have changed.
func (r *PlacementReconciler) touchBundle(uid, cluster string) {
	r.bundleLoop.EnqueueAfter(uid, r.index.touchCluster(uid, cluster))
}

func (r *PlacementReconciler) touchRows(clusterUID, name string) {
	for _, row := range r.Rows.ListOfCluster(clusterUID) {
		r.touchBundle(row.Bundle.UID, name)
	}
}

// connectionChanged reconciles the Bundles that wait for a cluster whose connection may have
// changed.
func (r *PlacementReconciler) connectionChanged(c schedule.Cluster) {
	for _, row := range r.Rows.ListOfCluster(c.UID) {
		if after, yes := r.index.isAwaited(row.Bundle.UID, row.Cluster); yes {
			r.bundleLoop.EnqueueAfter(row.Bundle.UID, after)
		}
	}
}

// bundlesWithChangedVerdict lists the Bundles whose verdict on the cluster changed.
func (r *PlacementReconciler) bundlesWithChangedVerdict(was, is schedule.Cluster) (uids []string) {
	held, now := map[string]bool{}, time.Now()
	for _, uid := range []string{was.UID, is.UID} {
		for _, row := range r.Rows.ListOfCluster(uid) {
			held[row.Bundle.UID] = true
		}
	}
	uids, holding := r.index.bundlesToReconsider(held, was, is)
	for _, e := range holding {
		if r.verdictChanged(e, was, is, now) {
			uids = append(uids, e.uid)
		}
	}
	return uids
}

// bundlesToReconsider lists the Bundles to which the change could give a row, and copies the entries of
// the held Bundles.
func (x *bundleIndex) bundlesToReconsider(held map[string]bool, was, is schedule.Cluster) (gaining []string, holding []bundleEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.entries {
		if e.filter == nil {
			continue
		}
		if held[e.uid] {
			holding = append(holding, *e)
		} else if e.couldGainRow(was, is) {
			gaining = append(gaining, e.uid)
		}
	}
	return gaining, holding
}

// verdictChanged reports whether a Bundle with a row on the cluster has another verdict on it.
func (r *PlacementReconciler) verdictChanged(e bundleEntry, was, is schedule.Cluster, now time.Time) bool {
	row, has := r.Rows.Get(e.uid, is.Name)
	if !has {
		return e.verdictOn(is, nil, now).Outcome == schedule.OutcomePlaced
	}
	return e.filter.LimitsClusters() || schedule.IsDrained(&was) != schedule.IsDrained(&is) || e.verdictOn(was, &row.Spec, now) != e.verdictOn(is, &row.Spec, now) || e.turns.changesStage(&was, &is)
}

// couldGainRow reports whether the change could give a row to a cluster without one.
func (e *bundleEntry) couldGainRow(was, is schedule.Cluster) bool {
	if e.filter.LimitsClusters() && !e.wantsMore && !e.needsAllRows && !e.filter.HasGroups() {
		return false
	}
	return e.changeMayAffectChoice(was, is)
}

// changeMayAffectChoice reports whether the cluster can be chosen, or could be: where the number of clusters
// is limited, a cluster that stops to fit gives its turn to another.
func (e *bundleEntry) changeMayAffectChoice(was, is schedule.Cluster) bool {
	return e.filter.AdmitsCluster(&is) || e.filter.LimitsClusters() && e.filter.AdmitsCluster(&was)
}

// verdictOn judges one cluster alone. Only verdicts of the same time are comparable, because
// time decides on evictions.
func (e bundleEntry) verdictOn(c schedule.Cluster, row *atoll.RowSpec, now time.Time) schedule.Verdict {
	return e.filter.JudgeCluster(&c, row, e.whenUnfit, now)
}

// variantsChanged touches the cluster in the Bundles whose rows there match other override rules
// now.
func (r *PlacementReconciler) variantsChanged(ctx context.Context, c schedule.Cluster) {
	for _, row := range r.Rows.ListOfCluster(c.UID) {
		target, ok := r.Revisions.LatestOfBundle(row.Bundle.UID)
		if !ok {
			continue
		}
		// The step reports a content that cannot be read.
		if content, err := r.Revisions.GetContent(ctx, row.Spec.Revision); err == nil && atoll.IsAcceptableRevision(row.Spec.Revision, target.Name, target.Spec.Base) {
			if _, variant := manifest.MatchRules(content, c.ClusterView); variant == row.Spec.Variant {
				continue
			}
		}
		r.touchBundle(row.Bundle.UID, c.Name)
	}
}
