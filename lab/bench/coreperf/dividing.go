package coreperf

import (
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/schedule"
)

// clusterCount clusters share replicaCount replicas.
const clusterCount, replicaCount = 1000, 5000

// dividerCases are the division methods, without the steps before and after in an
// assignment: the free capacity of each cluster, its present replicas, the receivers of the
// result.
var dividerCases = []struct {
	name, what string
	how        schedule.DivisionMethod
	has        int64 // 1: clusters have zero to five already
}{
	{"divide-by-weight", "divide by weight", schedule.ByWeight, 0},
	{"divide-by-room", "divide by available replicas", schedule.ByFreeCapacity, 0},
	{"divide-on-top", "divide what comes on top", schedule.ByFreeCapacity, 1},
	{"divide-into-fewest", "divide, aggregated", schedule.Aggregated, 0},
}

// assignmentCase is an assignment over 1,000 clusters for a placement and a kind of
// workload.
type assignmentCase struct {
	name, what, scheduling, kind string
	// halfAssigned gives rows half of the replicas before.
	halfAssigned bool
}

var assignmentCases = []assignmentCase{
	{name: "assign-duplicated", what: "assign, Duplicated", scheduling: `{}`},
	{name: "assign-weights", what: "assign, static weights", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, weightPreference: {staticWeightList: [
  {targetCluster: {labelSelector: {matchLabels: {env: prod}}}, weight: 3}, {targetCluster: {labelSelector: {matchLabels: {env: dev}}}, weight: 2, minReplicas: 1, maxReplicas: 11}]}}`},
	{name: "assign-room", what: "assign, by available replicas", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`},
	{name: "assign-aggregated", what: "assign, aggregated", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}`},
	{name: "assign-ordinals", what: "assign, ranged ordinals", kind: "StatefulSet", scheduling: `{replicaSchedulingType: Divided, ordinals: {size: 100}}`},
	{name: "assign-more", what: "assign, what comes on top", kind: "Deployment", halfAssigned: true, scheduling: `{replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`},
}

func dividingCases() (out []Case) {
	for _, div := range dividerCases {
		claims := make([]schedule.ShareCandidate, clusterCount)
		for i := range claims {
			claims[i] = schedule.ShareCandidate{Cluster: fmt.Sprintf("cluster-%05d", i), Weight: int64(1 + i%7), Max: replicaCount, FreeCapacity: int64(10 + i%90), Current: div.has * int64(i%6)}
		}
		out = append(out, Case{Name: div.name, What: div.what, Goal: "< 200 µs", How: "5,000 replicas over 1,000 clusters", Prepare: func() (func() error, error) {
			return func() error {
				if shares, left := schedule.DivideReplicas(replicaCount, claims, div.how, "a seed"); len(shares) != clusterCount || left != 0 {
					return fmt.Errorf("%d clusters have a share, and %d replicas have no place", len(shares), left)
				}
				return nil
			}, nil
		}})
	}
	for _, div := range assignmentCases {
		how := "a workload of 5,000 replicas over 1,000 clusters"
		switch {
		case div.kind == "":
			how = "every cluster has what the template states: there is nothing to divide"
		case div.halfAssigned:
			how = "the same, where 2,500 run already"
		}
		out = append(out, Case{Name: div.name, What: div.what, How: how, Prepare: div.prepareWork})
	}
	return out
}

func (div assignmentCase) prepareWork() (func() error, error) {
	in := schedule.Input{BundleUID: "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a", Clusters: makeFleet(clusterCount), SkipExplanations: true, Now: time.Now()}
	for i := range in.Clusters {
		in.Clusters[i].Taints = nil
	}
	if err := yaml.UnmarshalStrict([]byte(div.scheduling), &in.Placement.ReplicaScheduling); err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	key := atoll.ItemKey{Group: "apps", Kind: div.kind, Namespace: "shop", Name: "web"}
	if div.kind != "" {
		in.Workloads = []schedule.Workload{{Key: key, Replicas: replicaCount, Requests: freecapacity.ReplicaRequests{CPU: 250, Memory: 1 << 28}}}
	}
	in.Filter = schedule.CompilePlacement(in.Placement)
	d := schedule.DecidePlacement(in)
	in = inputAfterDecision(in, d)
	rooms := map[string]freecapacity.NodeClasses{}
	for i := range in.Clusters {
		name := in.Clusters[i].Name
		if row := in.Rows[name]; div.halfAssigned {
			row.Assigned = map[string]int64{key.String(): int64(i % 6)}
			in.Rows[name] = row
		}
		rooms[name] = freecapacity.NodeClasses{
			{Nodes: int64(1 + i%9), CPU: 3500, Memory: 12 << 30, Pods: 90}, {Nodes: 3, CPU: 1500, Memory: 2 << 30, Pods: 60}, {Nodes: 1, CPU: 250, Memory: 1 << 29, Pods: 9},
		}
	}
	d = schedule.DecidePlacement(in).WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) {
		room, known := rooms[cluster]
		return room, known
	})
	return func() error {
		a := d.AssignReplicas(nil)
		if div.kind == "" {
			if a.CountShares() > 0 {
				return fmt.Errorf("%d clusters share what is duplicated", a.CountShares())
			}
			return nil
		}
		if a.CountShares() != clusterCount || len(a.Shortages) > 0 {
			return fmt.Errorf("%d clusters have a share, and %v have no place", a.CountShares(), a.Shortages)
		}
		return nil
	}, nil
}
