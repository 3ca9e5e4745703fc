package brain

import (
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// division over 1,000 clusters: how a placement states it, and of which kind of workload.
type division struct {
	name, what, scheduling, kind string
	// halved: rows have half of the replicas already.
	halved bool
}

var divisions = []division{
	{name: "divide-duplicated", what: "divide, Duplicated", scheduling: `{}`},
	{name: "divide-weights", what: "divide, static weights", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, weightPreference: {staticWeightList: [
  {targetCluster: {labelSelector: {matchLabels: {env: prod}}}, weight: 3}, {targetCluster: {labelSelector: {matchLabels: {env: dev}}}, weight: 2, minReplicas: 1, maxReplicas: 11}]}}`},
	{name: "divide-room", what: "divide, by available replicas", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`},
	{name: "divide-aggregated", what: "divide, aggregated", kind: "Deployment", scheduling: `{replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}`},
	{name: "divide-ordinals", what: "divide, ranged ordinals", kind: "StatefulSet", scheduling: `{replicaSchedulingType: Divided, ordinals: {size: 100}}`},
	{name: "divide-more", what: "divide, what comes on top", kind: "Deployment", halved: true, scheduling: `{replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`},
}

func dividing() (out []Case) {
	for _, div := range divisions {
		how := "a workload of 5,000 replicas over 1,000 clusters"
		switch {
		case div.kind == "":
			how = "every cluster has what the template states: there is nothing to divide"
		case div.halved:
			how = "the same, where 2,500 run already"
		}
		out = append(out, Case{Name: div.name, What: div.what, Goal: "< 200 µs", How: how, Prepare: div.prepare})
	}
	return out
}

func (div division) prepare() (func() error, error) {
	const clusters, replicas = 1000, 5000
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
