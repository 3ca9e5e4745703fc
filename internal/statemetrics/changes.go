package statemetrics

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// The stages of a user's change.
const (
	stageBound   = "bound"
	stageOrdered = "ordered"
	stageApplied = "applied"
	stageHealthy = "healthy"
	stageShown   = "shown"
)

// change is a user's change of one Bundle that is not shown yet.
type change struct {
	revision string
	start    time.Time
	// rows that are ordered and not healthy, by cluster; true: applied.
	rows map[string]bool
}

// BeginChange records that this hub wrote the Revision of a change that it saw at a time. A
// change of the same Bundle that is under way is no longer measured.
func (c *StateCollector) BeginChange(bundle, revision string, start time.Time) {
	c.observeStage(stageBound, start)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[bundle] = &change{revision: revision, start: start, rows: map[string]bool{}}
}

// EndChangeIfReady records that the statuses of a Bundle and of its templates are written. It ends the
// Bundle's change if they show its Revision as ready.
func (c *StateCollector) EndChangeIfReady(bundle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	under := c.changes[bundle]
	if under == nil {
		return
	}
	b, exists := c.tables.Bundles.Get(bundle)
	isReady := meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BundleReady) && b.Status.Revision == under.revision
	if isReady {
		c.observeStage(stageShown, under.start)
	}
	if isReady || !exists {
		delete(c.changes, bundle)
	}
}

// measureRowTransition measures a row of a change. The caller holds the lock.
func (c *StateCollector) measureRowTransition(m state.RowTransition) {
	under := c.changes[m.Bundle]
	if under == nil {
		return
	}
	if m.After.Revision != under.revision || m.After.Phase != atoll.RowActive {
		delete(under.rows, m.Cluster)
		return
	}
	if m.Before.Revision != under.revision || m.Before.Phase != atoll.RowActive {
		c.observeStage(stageOrdered, under.start)
		under.rows[m.Cluster] = false
	}
	applied, isAwaited := under.rows[m.Cluster]
	if !isAwaited || !m.After.IsReported || m.After.ReportedGeneration != m.After.Generation || !m.After.Applied {
		return
	}
	if !applied {
		c.observeStage(stageApplied, under.start)
		under.rows[m.Cluster] = true
	}
	if m.After.State == atoll.RowReady {
		c.observeStage(stageHealthy, under.start)
		delete(under.rows, m.Cluster)
	}
}

func (c *StateCollector) observeStage(stage string, start time.Time) {
	c.seconds.WithLabelValues(stage).Observe(time.Since(start).Seconds())
}
