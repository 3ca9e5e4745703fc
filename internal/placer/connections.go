package placer

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// reconnectGrace is how long after the start of Run a cluster counts as connected that was
// connected before the hub went down. No Bundle fails back on that ground alone before it ends.
const reconnectGrace = 2 * time.Minute

// massLossWindow is how long after a loss of many clusters decisions still count on the lost ones.
const massLossWindow = 10 * time.Minute

// massLoss recognizes that more than half of the connected clusters were lost at once. The hub itself may
// be cut off then, and silence says nothing about the clusters.
type massLoss struct {
	// since is the first loss that counts, last the last one. connectedBefore is the most that were
	// connected since then.
	since, last     time.Time
	connectedBefore int
}

// recordLoss records that a cluster was lost. connectedBefore includes it.
func (m *massLoss) recordLoss(now time.Time, connectedBefore int) {
	if now.Sub(m.last) > massLossWindow || now.Sub(m.since) > massLossWindow && !m.isUnderway(now, connectedBefore) {
		m.since, m.connectedBefore = now, connectedBefore
	}
	m.last, m.connectedBefore = now, max(m.connectedBefore, connectedBefore)
}

// recordStart counts the clusters that were ready before the hub started as lost, until they connect.
func (x *bundleIndex) recordStart(now time.Time, wereReady int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.losses = massLoss{since: now, last: now, connectedBefore: wereReady}
}

// isUnderway reports whether decisions cannot tell which clusters are disconnected.
func (m *massLoss) isUnderway(now time.Time, connected int) bool {
	return now.Sub(m.last) <= massLossWindow && 2*connected < m.connectedBefore
}

// avoidsDisconnected reports whether disconnected clusters get nothing new. They do while most of the
// fleet was lost at once.
func (r *Reconciler) avoidsDisconnected(now time.Time) bool {
	x := r.index
	if r.previewed != nil {
		x = r.previewed.index
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.losses.isUnderway(now, len(x.connected))
}

// setFailback records the state after a step. The caller holds the lock.
func (x *bundleIndex) setFailback(e *bundleEntry, is failbackState) {
	if e.failback = is; is.awaitsEarlier || is.overflows || is.awaitsConnection {
		x.connectionWaits[e.uid] = struct{}{}
	} else {
		delete(x.connectionWaits, e.uid)
	}
}

// notBackBefore is when a Bundle may go back to an earlier group.
func (r *Reconciler) notBackBefore(was failbackState) time.Time {
	if !was.isRestored {
		return time.Time{}
	}
	return r.reconnectDeadline()
}

// connectedOrLost records whether the cluster is connected. When that changed, it returns the
// Bundles whose decision may differ: those that wait for an earlier group with this cluster, that
// overflow, or that left out a disconnected cluster.
func (x *bundleIndex) connectedOrLost(c *schedule.Cluster, well bool, now time.Time) (uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.connected[c.Name] == well {
		return nil
	}
	if well {
		x.connected[c.Name] = true
	} else {
		x.losses.recordLoss(now, len(x.connected))
		delete(x.connected, c.Name)
	}
	for uid := range x.connectionWaits {
		if e := x.entries[uid]; e != nil && e.filter != nil && e.failback.concernsConnection(e.filter, c, well) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// concernsConnection reports whether it matters to the Bundle that the cluster connected, or was lost.
func (s *failbackState) concernsConnection(f *schedule.Filter, c *schedule.Cluster, connected bool) bool {
	return s.concernsCluster(f, c) || connected && s.awaitsConnection && f.AdmitsCluster(c)
}

// availabilityChanged reconciles the Bundles that wait for a cluster to connect or disconnect.
func (r *Reconciler) availabilityChanged(c schedule.Cluster) {
	for _, uid := range r.index.connectedOrLost(&c, r.Clusters.IsOnline(c.UID), time.Now()) {
		r.enqueueNow(uid)
	}
}

// isConnected reports whether a cluster counts as connected: it is or, shortly after the start of
// Run, was ready. A cluster that a preview supposes counts as connected.
func (r *Reconciler) isConnected(c *schedule.Cluster) bool {
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
func (r *Reconciler) reconnectDeadline() time.Time {
	return time.Unix(0, r.startedAt.Load()).Add(reconnectGrace)
}
