package offline

import "atoll.dev/atoll/internal/schedule"

// fleetFacts are the facts about the fleet of the files, for one decision.
type fleetFacts struct {
	schedule.NoFacts
	fleet     *fleetState
	scope     schedule.PlacementScope
	workloads []schedule.Workload
}

// AssignedPods returns the pods that earlier decisions assigned to a cluster.
func (f *fleetFacts) AssignedPods(c *schedule.Cluster) int64 { return f.fleet.load[c.Name] }

// RatingOf returns the rating of a cluster by the ClusterScores of the files.
func (f *fleetFacts) RatingOf(c *schedule.Cluster, measure string) int64 {
	return f.scope.RatingOf(&f.fleet.ratings, c, measure, f.fleet.now)
}

// FreeReplicas returns how many replicas the capacity that is left of a cluster fits.
func (f *fleetFacts) FreeReplicas(c *schedule.Cluster) (replicas int64, known bool) {
	left, known := f.fleet.freeCapacity[c.Name]
	return schedule.CountFittingWorkloads(left, f.workloads, nil), known
}

// UsageOf returns what earlier decisions use of a cluster.
func (f *fleetFacts) UsageOf(c *schedule.Cluster) (others, own schedule.ResourceUsage) {
	return f.fleet.used[c.Name], nil
}
