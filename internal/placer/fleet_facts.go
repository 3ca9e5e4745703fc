package placer

import (
	"time"

	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// fleetFacts are the facts of the tables during one decision.
type fleetFacts struct {
	schedule.NoFacts
	r        *PlacementReconciler
	reserved map[string]int64
	scope    schedule.PlacementScope
	usage    usageReader
	// freeReplicas is schedule.FleetFacts' for the workloads of a step; nil: not known.
	freeReplicas func(c *schedule.Cluster) (replicas int64, known bool)
}

// factsFor returns the facts for scores and failback of a Bundle.
func (r *PlacementReconciler) factsFor(b state.Bundle, reserved map[string]int64) *fleetFacts {
	return &fleetFacts{r: r, reserved: reserved, scope: schedule.PlacementScope{Namespace: b.Ref.Namespace, Source: b.Spec.Source.Kind}}
}

// AssignedPods returns the load of a cluster: assigned pods plus reserved pods.
func (f *fleetFacts) AssignedPods(c *schedule.Cluster) int64 {
	return f.r.Rows.RequestedPodsOf(c.UID) + f.reserved[c.Name]
}

// RatingOf returns the rating of a cluster for the Bundle.
func (f *fleetFacts) RatingOf(c *schedule.Cluster, measure string) int64 {
	return f.scope.RatingOf(f.r.Scores, c, measure, time.Now())
}

// FreeReplicas returns the free capacity of a cluster for the workloads of the step.
func (f *fleetFacts) FreeReplicas(c *schedule.Cluster) (replicas int64, known bool) {
	if f.freeReplicas == nil {
		return 0, false
	}
	return f.freeReplicas(c)
}

// UsageOf returns what is used of a cluster in a step.
func (f *fleetFacts) UsageOf(c *schedule.Cluster) (others, own schedule.ResourceUsage) {
	if f.usage.demand == nil {
		return nil, nil
	}
	return f.usage.usageOf(c)
}

// ConnectionOf returns what is known of the connection of a cluster.
func (f *fleetFacts) ConnectionOf(c *schedule.Cluster) schedule.Connection {
	return f.r.connectionOf(c)
}
