package statemetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/state"
)

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	Subscribe(fn func(uid string))
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	Subscribe(fn func(name string))
}

// Rows is the table of rows.
type Rows interface {
	SubscribeTransitions(fn func([]state.RowTransition))
}

// Tables are what is counted.
type Tables struct {
	Bundles  Bundles
	Clusters Clusters
	Rows     Rows
}

// StateCollector counts the objects of the tables. It is a prometheus.Collector.
type StateCollector struct {
	tables  Tables
	seconds *prometheus.HistogramVec
	sums    *prometheus.Desc

	mu          sync.Mutex
	bundles     *conditionTable
	clusters    *conditionTable
	rows        rowCounts
	perBundle   map[string]v1alpha1.BundleClusters
	clusterSums [len(clusterStates)]int64
	changes     map[string]*change // by Bundle UID
	// rollouts has the reason of each rollout that waits, by Bundle UID.
	rollouts     map[string]string
	rolloutWaits *prometheus.Desc
}

// clusterStates are the labels of clusterSums.
var clusterStates = [...]string{"Desired", "Updated", "Ready", "Disconnected", "Removing"}

// New makes a Collector and subscribes it to the tables, which must be empty.
func New(t Tables) *StateCollector {
	c := &StateCollector{
		tables: t, seconds: metrictable.ChangeSeconds.NewHistogramVec(), sums: metrictable.BundleClusters.NewDesc(),
		bundles:  newConditionTable(atoll.NormalStatuses("Bundle"), metrictable.Bundles, metrictable.BundleOldestWait),
		clusters: newConditionTable(atoll.NormalStatuses("Cluster"), metrictable.Clusters, metrictable.ClusterOldestWait),
		rows:     newRowCounts(), perBundle: map[string]v1alpha1.BundleClusters{}, changes: map[string]*change{},
		rollouts: map[string]string{}, rolloutWaits: metrictable.RolloutWaits.NewDesc(),
	}
	for _, stage := range []string{stageBound, stageOrdered, stageApplied, stageHealthy, stageShown} {
		c.seconds.WithLabelValues(stage)
	}
	t.Bundles.Subscribe(c.updateBundle)
	t.Clusters.Subscribe(c.updateCluster)
	t.Rows.SubscribeTransitions(c.updateRows)
	return c
}

// updateBundle reads under the lock, so that of two calls the later one counts the newer Bundle.
func (c *StateCollector) updateBundle(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, exists := c.tables.Bundles.Get(uid)
	c.bundles.update(uid, b.Status.Conditions)
	before, now := c.perBundle[uid], b.Status.Clusters
	for i, n := range clusterCountsByState(now) {
		c.clusterSums[i] += n - clusterCountsByState(before)[i]
	}
	delete(c.rollouts, uid)
	if r := b.Status.Rollout; r != nil && r.Reason != "" {
		c.rollouts[uid] = reasonMetricLabel(r.Reason)
	}
	if c.perBundle[uid] = now; !exists {
		delete(c.perBundle, uid)
		delete(c.changes, uid)
	}
}

func clusterCountsByState(b v1alpha1.BundleClusters) [len(clusterStates)]int64 {
	return [...]int64{int64(b.Desired), int64(b.Updated), int64(b.Ready), int64(b.Away), int64(b.Removing)}
}

func (c *StateCollector) updateCluster(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var conditions []metav1.Condition
	if cluster, exists := c.tables.Clusters.Get(name); exists {
		conditions = cluster.Status.Conditions
	}
	c.clusters.update(name, conditions)
}

func (c *StateCollector) updateRows(changes []state.RowTransition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range changes {
		c.rows.countTransition(m)
		c.measureRowTransition(m)
	}
}

// Describe is prometheus.Collector's.
func (c *StateCollector) Describe(out chan<- *prometheus.Desc) {
	c.seconds.Describe(out)
	for _, d := range []*prometheus.Desc{c.sums, c.bundles.total, c.bundles.oldest, c.clusters.total, c.clusters.oldest, c.rows.total, c.rows.oldest, c.rows.driftedTotal, c.rolloutWaits} {
		out <- d
	}
}

// Collect is prometheus.Collector's.
func (c *StateCollector) Collect(out chan<- prometheus.Metric) {
	c.seconds.Collect(out)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.bundles.collectGauges(out, now)
	c.clusters.collectGauges(out, now)
	c.rows.collectGauges(out, now)
	for i, label := range clusterStates {
		out <- prometheus.MustNewConstMetric(c.sums, prometheus.GaugeValue, float64(c.clusterSums[i]), label)
	}
	waits := map[string]int{}
	for _, reason := range c.rollouts {
		waits[reason]++
	}
	for reason, n := range waits {
		out <- prometheus.MustNewConstMetric(c.rolloutWaits, prometheus.GaugeValue, float64(n), reason)
	}
}
