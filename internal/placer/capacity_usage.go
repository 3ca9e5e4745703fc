package placer

import (
	"context"
	"fmt"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// capacityUsage counts what rows use of the clusters that state a capacity. A cluster's rows are
// read at the first question about it, and changed rows later. Clusters without a capacity cost
// nothing.
//
// A step takes the capacity of its rows under the ledger's lock. It counts as used until the
// rows can be read or the write has failed, so that no two steps get the same capacity.
type capacityUsage struct {
	mu      sync.Mutex
	members map[string]*memberUsage // by cluster UID
	// freedCounts counts, by cluster name, how often capacity came free, so that a refused
	// Bundle can detect later releases.
	freedCounts map[string]uint64
	// crowdedClusters holds, by Bundle UID, the clusters for whose capacity a Bundle waits;
	// waitingBundles is its inverse. A Bundle that waits for many clusters is under anyCluster.
	crowdedClusters map[string][]string
	waitingBundles  map[string]map[string]bool
	// refusedRevisions holds, by Bundle UID, the revision that found no capacity in the crowded
	// clusters.
	refusedRevisions map[string]string
	// base counts the Bundles that a preview does not change; this index counts supposedBundles.
	base            *PlacementReconciler
	supposedBundles []string
}

type memberUsage struct {
	name string
	// isLoaded means that every row was read or is stale.
	isLoaded bool
	total    schedule.ResourceUsage
	byBundle map[string]schedule.ResourceUsage // by Bundle UID
	// staleBundles holds the rows that changed after they were read, by the number of the
	// change. Taken rows are not read before their write succeeds or fails.
	staleBundles map[string]uint64
	takenBundles map[string]bool
	changeCount  uint64
}

func newCapacityUsage() *capacityUsage {
	return &capacityUsage{
		members: map[string]*memberUsage{}, freedCounts: map[string]uint64{},
		crowdedClusters: map[string][]string{}, waitingBundles: map[string]map[string]bool{}, refusedRevisions: map[string]string{},
	}
}

// setUse records what a Bundle uses. freed means that it uses less of some resource.
func (m *memberUsage) setUse(bundle string, use schedule.ResourceUsage) (freed bool) {
	was, over := m.byBundle[bundle], m.total.IsSaturated()
	if m.total = m.total.AddTimes(was, -1).AddTimes(use, 1); len(use) == 0 {
		delete(m.byBundle, bundle)
	} else {
		m.byBundle[bundle] = use
	}
	if over { // a saturated sum cannot be reduced
		m.total = nil
		for _, use := range m.byBundle {
			m.total = m.total.AddTimes(use, 1)
		}
	}
	return len(was.SubtractUsage(use)) > 0
}

func (m *memberUsage) markStale(bundle string) {
	m.changeCount++
	m.staleBundles[bundle] = m.changeCount
}

// findMember returns the usage of a cluster and whether all of its rows are counted; nil before
// the first question.
func (u *capacityUsage) findMember(uid string) (m *memberUsage, loaded bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m = u.members[uid]
	return m, m != nil && m.isLoaded
}

// usedCapacity returns what other Bundles use of a cluster, and what this Bundle uses.
func (r *PlacementReconciler) usedCapacity(ctx context.Context, c *schedule.Cluster, bundle string) (others, own schedule.ResourceUsage, err error) {
	u := r.usage
	if err := r.refreshUsage(ctx, c); err != nil {
		return nil, nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.members[c.UID]
	if m == nil { // its Cluster was deleted
		return nil, nil, nil
	}
	own = m.byBundle[bundle]
	return m.total.AddTimes(own, -1), own, nil
}

// refreshUsage reads the stale rows of a cluster.
func (r *PlacementReconciler) refreshUsage(ctx context.Context, c *schedule.Cluster) error {
	u := r.usage
	m, loaded := u.findMember(c.UID)
	if !loaded {
		var err error
		if m, err = r.loadUsage(ctx, c); err != nil {
			return err
		}
	}
	freed := false
	for bundle, change := range u.copyStale(m) {
		use, err := r.rowUse(ctx, bundle, c)
		if err != nil {
			return fmt.Errorf("count what cluster %s holds: %w", c.Name, err)
		}
		freed = u.recordUse(m, bundle, change, use) || freed
	}
	if !loaded {
		u.markLoaded(m)
	}
	if freed {
		r.capacityFreed(c.Name)
	}
	return nil
}

// copyStale copies the stale rows of a cluster; nil: there are none.
func (u *capacityUsage) copyStale(m *memberUsage) map[string]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(m.staleBundles) == 0 {
		return nil
	}
	return maps.Clone(m.staleBundles)
}

// recordUse records what a stale row uses, unless the row changed again or is taken. freed means
// that it uses less of some resource.
func (u *capacityUsage) recordUse(m *memberUsage, bundle string, change uint64, use schedule.ResourceUsage) (freed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m.staleBundles[bundle] != change || m.takenBundles[bundle] {
		return false
	}
	delete(m.staleBundles, bundle)
	return m.setUse(bundle, use)
}

func (u *capacityUsage) markLoaded(m *memberUsage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m.isLoaded = true
}

// loadUsage starts to count a cluster, and marks its rows to be read.
func (r *PlacementReconciler) loadUsage(ctx context.Context, c *schedule.Cluster) (*memberUsage, error) {
	u := r.usage
	u.mu.Lock()
	m := u.members[c.UID]
	if m == nil {
		m = &memberUsage{name: c.Name, byBundle: map[string]schedule.ResourceUsage{}, staleBundles: map[string]uint64{}, takenBundles: map[string]bool{}}
		u.members[c.UID] = m
	}
	for _, bundle := range u.supposedBundles {
		m.markStale(bundle)
	}
	u.mu.Unlock()
	if based, err := r.copyBaseUsage(ctx, c, m); based || err != nil {
		return m, err
	}
	// From here on changed rows are marked; the list has the earlier ones.
	rows := r.Rows.ListOfCluster(c.UID)
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range rows {
		bundle := rows[i].Bundle.UID
		if _, known := m.byBundle[bundle]; !known && m.staleBundles[bundle] == 0 {
			m.markStale(bundle)
		}
	}
	return m, nil
}

// copyBaseUsage starts with the counts of the base, if it counts the cluster.
func (r *PlacementReconciler) copyBaseUsage(ctx context.Context, c *schedule.Cluster, m *memberUsage) (based bool, err error) {
	u := r.usage
	if u.base == nil {
		return false, nil
	}
	known := u.base.index.clustersNamed([]string{c.Name})
	if len(known) == 0 || known[0].UID != c.UID || len(known[0].Capacity) == 0 {
		return false, nil
	}
	if err := u.base.refreshUsage(ctx, c); err != nil {
		return false, err
	}
	of := u.base.usage
	of.mu.Lock()
	defer of.mu.Unlock()
	from := of.members[c.UID]
	if from == nil || from.total.IsSaturated() { // a saturated sum cannot be changed by rows
		return false, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	m.total = from.total
	for _, bundle := range u.supposedBundles {
		if use, has := from.byBundle[bundle]; has {
			m.byBundle[bundle] = use
		}
	}
	return true, nil
}

// rowUse returns what a Bundle's row uses of a cluster.
func (r *PlacementReconciler) rowUse(ctx context.Context, bundle string, c *schedule.Cluster) (schedule.ResourceUsage, error) {
	row, ok := r.Rows.Get(bundle, c.Name)
	if !ok || row.Spec.UID != c.UID || row.Spec.Phase == atoll.RowVacant || row.Spec.Revision == "" {
		return nil, nil
	}
	d, err := r.demandOf(ctx, row.Spec.Revision)
	if apierrors.IsNotFound(err) {
		return nil, nil // the content is lost
	}
	return d.UsageFor(row.Spec.Assigned), err
}

// demandOf reads the demand of a revision's content once.
func (r *PlacementReconciler) demandOf(ctx context.Context, revision string) (*schedule.Demand, error) {
	if d, ok := r.index.demandCache.Get(revision); ok {
		return d.(*schedule.Demand), nil
	}
	content, err := r.Revisions.GetContent(ctx, revision)
	if err != nil {
		return nil, err
	}
	d, err := schedule.DemandOf(content)
	if err == nil {
		r.index.demandCache.Add(revision, d)
	}
	return d, err
}

// markRowsStale marks rows to be read again. A deleted row uses nothing.
func (r *PlacementReconciler) markRowsStale(bundle string, clusters []string) {
	if !r.usage.hasMembers() {
		return
	}
	var freed []string
	for _, c := range r.index.clustersNamed(clusters) {
		if m, _ := r.usage.findMember(c.UID); m == nil {
			continue
		}
		_, there := r.Rows.Get(bundle, c.Name)
		if r.usage.recordRowChange(bundle, c.UID, there) {
			freed = append(freed, c.Name)
		}
	}
	for _, name := range freed {
		r.capacityFreed(name)
	}
}

// hasMembers reports whether any cluster is counted.
func (u *capacityUsage) hasMembers() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.members) > 0
}

func (u *capacityUsage) recordRowChange(bundle, cluster string, there bool) (freed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.members[cluster]
	if m == nil {
		return false
	}
	m.markStale(bundle)
	if there || !m.isLoaded || m.takenBundles[bundle] {
		return false
	}
	return m.setUse(bundle, nil)
}

// markRowStale marks one row to be counted again.
func (u *capacityUsage) markRowStale(bundle, cluster string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m := u.members[cluster]; m != nil {
		m.markStale(bundle)
	}
}

// removeMember drops the usage of a cluster. It counts as freed, so that decisions based on it
// are made again.
func (u *capacityUsage) removeMember(name, uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.members[uid] != nil {
		delete(u.members, uid)
		u.freedCounts[name]++
	}
}
