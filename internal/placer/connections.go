package placer

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// reconnectGrace is how long after the start of Run a cluster counts as connected that was
// connected before the hub went down. No Bundle fails back on that ground alone before it ends.
const reconnectGrace = 2 * time.Minute

// lossWindow is how long a lost cluster may count as undecided.
const lossWindow = 10 * time.Minute

// recentLosses are the clusters that were lost within lossWindow and are not back. While they outnumber
// the connected ones, the hub itself may be cut off, and silence is no evidence about them.
type recentLosses struct {
	at map[string]time.Time
	// queue holds the losses in their order, also of clusters that are back.
	queue []clusterLoss
}

type clusterLoss struct {
	cluster string
	at      time.Time
}

func (l *recentLosses) add(cluster string, now time.Time) {
	l.removeOld(now)
	l.at[cluster] = now
	l.queue = append(l.queue, clusterLoss{cluster, now})
}

func (l *recentLosses) removeOld(now time.Time) {
	for len(l.queue) > 0 && now.Sub(l.queue[0].at) > lossWindow {
		if old := l.queue[0]; l.at[old.cluster].Equal(old.at) {
			delete(l.at, old.cluster)
		}
		l.queue = l.queue[1:]
	}
}

// mayBeHubOutage reports whether the loss of the cluster may be one of the hub's own connection.
func (l *recentLosses) mayBeHubOutage(cluster string, connected int, now time.Time) bool {
	l.removeOld(now)
	_, lost := l.at[cluster]
	return lost && len(l.at) > connected
}

// connectionWait is for which connections a Bundle waits.
type connectionWait struct {
	// newcomers: fitting clusters without a row. held are clusters whose shares may change, by name.
	newcomers bool
	held      []string
	// oldCopies are clusters whose copies end, and for which others wait, by name.
	oldCopies []string
}

func (w connectionWait) isEmpty() bool { return !w.newcomers && len(w.held)+len(w.oldCopies) == 0 }

// oldCopiesAwaited returns the clusters whose copies others wait for, after a step.
func oldCopiesAwaited(s *stepInput, out rollout.Output) (names []string) {
	for c, row := range s.rollout.Rows {
		spec := &row.Spec
		if next, changes := out.Changes[c]; changes {
			spec = next
		}
		if spec != nil && !spec.Phase.IsChosen() && slices.Contains(out.BlockingClusters, c) {
			names = append(names, c)
		}
	}
	slices.Sort(names)
	return names
}

// setFailback records the state after a step. The caller holds the lock.
func (x *bundleIndex) setFailback(e *bundleEntry, is failbackState) {
	if e.failback = is; is.awaitsEarlier || is.overflows || !e.connectionWait.isEmpty() {
		x.connectionWaits[e.uid] = struct{}{}
	} else {
		delete(x.connectionWaits, e.uid)
	}
}

// earliestFailback is when a Bundle may go back to an earlier group.
func (r *PlacementReconciler) earliestFailback(was failbackState) time.Time {
	if !was.isRestored {
		return time.Time{}
	}
	return r.reconnectDeadline()
}

// recordConnection records whether the cluster is connected. When that changed, it returns the
// Bundles whose decision may differ: those that wait for this cluster, that overflow, and those whose
// step may have read the connection before. holds reports whether a Bundle has a row on the cluster.
func (x *bundleIndex) recordConnection(c *schedule.Cluster, well bool, now time.Time, holds func(uid string) bool) (uids []string, changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.connected[c.Name] == well {
		return nil, false
	}
	if well {
		x.connected[c.Name] = true
		delete(x.losses.at, c.Name)
	} else {
		delete(x.connected, c.Name)
		x.losses.add(c.Name, now)
	}
	uids = slices.Collect(maps.Keys(x.stepsUnderway))
	for uid := range x.connectionWaits {
		if e := x.entries[uid]; e != nil && e.filter != nil && e.concernsConnection(c, well, holds) && !x.stepsUnderway[uid] {
			uids = append(uids, uid)
		}
	}
	return uids, true
}

// recordStartConnection records the connections at the start of the hub. A cluster that was ready before counts as
// lost now.
func (x *bundleIndex) recordStartConnection(c *schedule.Cluster, connected, wasReady bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if connected {
		x.connected[c.Name] = true
	} else if wasReady {
		x.losses.add(c.Name, now)
	}
}

// treatsDisconnectAsHubOutage reports whether decisions count on a cluster although it is not connected.
func (x *bundleIndex) treatsDisconnectAsHubOutage(cluster string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.losses.mayBeHubOutage(cluster, len(x.connected), now)
}

// outageEnd returns when decisions stop counting on a cluster that may be lost by an outage of the hub; zero
// when they do not.
func (x *bundleIndex) outageEnd(cluster string, now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.losses.mayBeHubOutage(cluster, len(x.connected), now) {
		return time.Time{}
	}
	return x.losses.at[cluster].Add(lossWindow + time.Second)
}

// concernsConnection reports whether it matters to the Bundle that the cluster connected, or was lost.
func (e *bundleEntry) concernsConnection(c *schedule.Cluster, connected bool, holds func(uid string) bool) bool {
	if e.failback.mayReturnOrOverflowTo(e.filter, c) {
		return true
	}
	if _, ends := slices.BinarySearch(e.connectionWait.oldCopies, c.Name); ends {
		return true
	}
	_, held := slices.BinarySearch(e.connectionWait.held, c.Name)
	return connected && (held || e.connectionWait.newcomers && e.filter.AdmitsCluster(c) && !holds(e.uid))
}

// enqueueBundlesAwaitingConnection reconciles the Bundles that wait for a cluster to connect or disconnect, or for rows of others there.
func (r *PlacementReconciler) enqueueBundlesAwaitingConnection(c schedule.Cluster) {
	holds := func(uid string) bool {
		_, has := r.Rows.Get(uid, c.Name)
		return has
	}
	uids, changed := r.index.recordConnection(&c, r.Clusters.IsOnline(c.UID), time.Now(), holds)
	for _, uid := range uids {
		r.enqueueAllRows(uid)
	}
	if !changed || !r.dependencies.hasLoaded() {
		return
	}
	for _, row := range r.Rows.ListOfCluster(c.UID) {
		r.wakeDependents(row.Bundle.UID, []string{c.Name})
	}
}

// connectionOf returns the connection of a cluster for decisions.
func (r *PlacementReconciler) connectionOf(c *schedule.Cluster) schedule.Connection {
	of := r
	if r.previewed != nil {
		of = r.previewed
	}
	switch {
	case r.isConnected(c):
		return schedule.Connected
	case of.index.treatsDisconnectAsHubOutage(c.Name, time.Now()):
		return schedule.Uncertain
	}
	return schedule.Disconnected
}

// uncertainUntil is when the hub can decide that a cluster that holds no stream is disconnected: after the
// grace period for agents, and lossWindow after it was lost together with most others. Zero or past: it can.
func (r *PlacementReconciler) uncertainUntil(c *v1alpha1.Cluster) time.Time {
	of := r
	if r.previewed != nil {
		of = r.previewed
	}
	until := of.index.outageEnd(c.Name, time.Now())
	if isReady(c) && of.reconnectDeadline().After(until) {
		return of.reconnectDeadline()
	}
	return until
}

// isConnected reports whether a cluster counts as connected: it is or, shortly after the start of
// Run, was ready. A cluster that a preview supposes counts as connected.
func (r *PlacementReconciler) isConnected(c *schedule.Cluster) bool {
	if r.Clusters.IsOnline(c.UID) {
		return true
	}
	if r.previewed != nil {
		if _, exists := r.previewed.Clusters.Get(c.Name); !exists {
			return true
		}
	}
	if !time.Now().Before(r.reconnectDeadline()) {
		return false
	}
	known, ok := r.Clusters.Get(c.Name)
	return ok && isReady(known)
}

func isReady(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterReady)
}

// reconnectDeadline is when the grace period for agents ends; before Run it is in the past.
func (r *PlacementReconciler) reconnectDeadline() time.Time {
	return time.Unix(0, r.startedAt.Load()).Add(reconnectGrace)
}
