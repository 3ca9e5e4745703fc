package brain

import (
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// clusters and replicas that are divided among them.
const clusters, replicas = 1000, 5000

// alone are the ways to divide, without what comes before and after in an assignment: how
// much fits on the nodes of each cluster, what each has, whom it is told.
var alone = []struct {
	name, what string
	how        schedule.Method
	has        int64 // 1: clusters have none to five already
}{
	{"divide-by-weight", "divide by weight", schedule.ByWeight, 0},
	{"divide-by-room", "divide by available replicas", schedule.ByRoom, 0},
	{"divide-on-top", "divide what comes on top", schedule.ByRoom, 1},
	{"divide-into-fewest", "divide, aggregated", schedule.Aggregated, 0},
}

// assignment over 1,000 clusters: how a placement states it, and of which kind of workload.
type assignment struct {
	name, what, scheduling, kind string
	// halved: rows have half of the replicas already.
	halved bool
}

var assignments = []assignment{
	{name: "assign-duplicated", what: "assign, Duplicated", scheduling: `{}`},
	{name: "assign-weights", what: "assign, static weights", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, weightPreference: {staticWeightList: [
  {targetCluster: {labelSelector: {matchLabels: {env: prod}}}, weight: 3}, {targetCluster: {labelSelector: {matchLabels: {env: dev}}}, weight: 2, minReplicas: 1, maxReplicas: 11}]}}`},
	{name: "assign-room", what: "assign, by available replicas", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`},
	{name: "assign-aggregated", what: "assign, aggregated", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}`},
	{name: "assign-ordinals", what: "assign, ranged ordinals", kind: "StatefulSet", scheduling: `{replicaSchedulingType: Divided, ordinals: {size: 100}}`},
	{name: "assign-more", what: "assign, what comes on top", kind: "Deployment", halved: true, scheduling: `{replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`},
}

func dividing() (out []Case) {
	for _, div := range alone {
		claims := make([]schedule.Claim, clusters)
		for i := range claims {
			claims[i] = schedule.Claim{Cluster: fmt.Sprintf("cluster-%05d", i), Weight: int64(1 + i%7), Max: replicas, Room: int64(10 + i%90), Has: div.has * int64(i%6)}
		}
		out = append(out, Case{Name: div.name, What: div.what, Goal: "< 200 µs", How: "5,000 replicas over 1,000 clusters", Prepare: func() (func() error, error) {
			return func() error {
				if shares, left := schedule.Divide(replicas, claims, div.how, "a seed"); len(shares) != clusters || left != 0 {
					return fmt.Errorf("%d clusters have a share, and %d replicas have no place", len(shares), left)
				}
				return nil
			}, nil
		}})
	}
	for _, div := range assignments {
		how := "a workload of 5,000 replicas over 1,000 clusters"
		switch {
		case div.kind == "":
			how = "every cluster has what the template states: there is nothing to divide"
		case div.halved:
			how = "the same, where 2,500 run already"
		}
		out = append(out, Case{Name: div.name, What: div.what, How: how, Prepare: div.prepare})
	}
	return out
}

func (div assignment) prepare() (func() error, error) {
	in := schedule.Input{Bundle: "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a", Clusters: fleet(clusters), Terse: true, Now: time.Now()}
	for i := range in.Clusters {
		in.Clusters[i].Taints = nil
	}
	if err := yaml.UnmarshalStrict([]byte(div.scheduling), &in.Placement.ReplicaScheduling); err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	key := atoll.ItemKey{Group: "apps", Kind: div.kind, Namespace: "shop", Name: "web"}
	if div.kind != "" {
		in.Workloads = []schedule.Workload{{Key: key, Replicas: replicas, Requests: atoll.Requests{CPU: 250, Memory: 1 << 28}}}
	}
	in.Filter = schedule.Compile(in.Placement)
	d := schedule.Schedule(in)
	in = holding(in, d)
	rooms := map[string]atoll.Room{}
	for i := range in.Clusters {
		name := in.Clusters[i].Name
		if row := in.Rows[name]; div.halved {
			row.Assigned = map[string]int64{key.String(): int64(i % 6)}
			in.Rows[name] = row
		}
		rooms[name] = atoll.Room{
			{Nodes: int64(1 + i%9), CPU: 3500, Memory: 12 << 30, Pods: 90}, {Nodes: 3, CPU: 1500, Memory: 2 << 30, Pods: 60}, {Nodes: 1, CPU: 250, Memory: 1 << 29, Pods: 9},
		}
	}
	d = schedule.Schedule(in).WithRoom(func(cluster string) (atoll.Room, bool) { room, known := rooms[cluster]; return room, known })
	return func() error {
		a := d.Assign(nil)
		if div.kind == "" {
			if a.Shares != nil {
				return fmt.Errorf("%d clusters share what is duplicated", len(a.Shares))
			}
			return nil
		}
		if len(a.Shares) != clusters || len(a.Short) > 0 {
			return fmt.Errorf("%d clusters have a share, and %v have no place", len(a.Shares), a.Short)
		}
		return nil
	}, nil
}
