package coreperf

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/schedule"
)

// AllCases returns all cases, in the order of the report.
func AllCases() []Case {
	return slices.Concat(placingCases(), dividingCases(), rolloutCases(), renderingCases())
}

// choosingPolicy is the placement of the number: labels, a toleration, a spread over
// regions and zones, and the two resource scores.
const choosingPolicy = `{clusterAffinity: {labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, dev]}]}},
  clusterTolerations: [{key: dedicated, operator: Equal, value: tpu}], maxClusters: 50,
  spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 5}, {spreadByField: zone, maxSkew: 2}],
  scores: [{name: ResourceAvailable, resource: cpu}, {name: ResourceAvailable, resource: memory, full: 256Gi}]}`

const chosenCount = 50

// makeFleet returns n clusters in 10 regions and 40 zones; every seventh has a taint.
func makeFleet(n int) []schedule.Cluster {
	out := make([]schedule.Cluster, n)
	for i := range out {
		name := fmt.Sprintf("cluster-%05d", i)
		out[i] = schedule.Cluster{
			ClusterView: atoll.ClusterView{
				Name: name, Region: fmt.Sprint("region-", i%10), Zone: fmt.Sprint("zone-", i%40), Provider: "p",
				Labels: map[string]string{"env": []string{"prod", "dev"}[i%2], "country": fmt.Sprint(i % 50)},
			},
			UID: "uid-" + name, Accepted: true,
			Resources: []schedule.ResourceAmount{{Name: "cpu", Total: 64_000, Free: int64(i*7919%64_000) + 1}, {Name: "memory", Total: 1 << 40, Free: int64(i*104729%1000+1) << 30}},
		}
		if i%7 == 0 {
			out[i].Taints = []v1alpha1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	return out
}

func newChoiceInput(n int) (schedule.Input, error) {
	in := schedule.Input{BundleUID: "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a", Clusters: makeFleet(n), SkipExplanations: true, Now: time.Now()}
	if err := yaml.UnmarshalStrict([]byte(choosingPolicy), &in.Placement); err != nil {
		return in, fmt.Errorf("placement: %w", err)
	}
	in.Filter = schedule.CompilePlacement(in.Placement)
	return in, nil
}

// inputAfterDecision returns the input after the decision is carried out, without some
// clusters.
func inputAfterDecision(in schedule.Input, d schedule.Decision, without ...string) schedule.Input {
	in.Rows = map[string]atoll.RowSpec{}
	for _, v := range d.Verdicts {
		if !slices.Contains(without, v.Cluster) {
			in.Rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint}
		}
	}
	return in
}

func checkChosenCount(d schedule.Decision) error {
	if len(d.Verdicts) != chosenCount || d.WantsMore {
		return fmt.Errorf("%d clusters were chosen: %s", len(d.Verdicts), d.UnmetSpread)
	}
	return nil
}

// newDecisionCase is a decision over clusters without taints, with the division of its replicas.
func newDecisionCase(name, what, how, placement string, replicas int64, size int) Case {
	return Case{Name: name, What: what, Goal: "< 2 ms", How: how, Prepare: func() (func() error, error) {
		in := schedule.Input{BundleUID: "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a", Clusters: makeFleet(size), SkipExplanations: true, Now: time.Now()}
		for i := range in.Clusters {
			in.Clusters[i].Taints = nil
		}
		if err := yaml.UnmarshalStrict([]byte(placement), &in.Placement); err != nil {
			return nil, fmt.Errorf("placement: %w", err)
		}
		in.Filter = schedule.CompilePlacement(in.Placement)
		if replicas > 0 {
			in.Workloads = []schedule.Workload{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Replicas: replicas, Requests: freecapacity.ReplicaRequests{CPU: 250}}}
		}
		free := freecapacity.NodeClasses{{Nodes: 3, CPU: 3500, Memory: 12 << 30, Pods: 90}}
		return func() error {
			d := schedule.DecidePlacement(in).WithFreeCapacity(func(string) (freecapacity.NodeClasses, bool) { return free, true })
			if a := d.AssignReplicas(nil); d.NoFit || len(a.Shortages) > 0 || (a.CountShares() > 0) != (replicas > 0) {
				return fmt.Errorf("%d clusters have a share, and %v have no place", a.CountShares(), a.Shortages)
			}
			return nil
		}, nil
	}}
}

func placingCases() []Case {
	const size = 10_000
	return []Case{
		{
			Name: "place", What: "place one Bundle", Goal: "< 2 ms, < 1 MB",
			How: "50 of 10,000 clusters by labels, taints, a spread over regions and zones, and two resource scores",
			Prepare: func() (func() error, error) {
				in, err := newChoiceInput(size)
				return func() error { return checkChosenCount(schedule.DecidePlacement(in)) }, err
			},
		},
		newDecisionCase("place-everywhere", "place on all clusters", "10,000 of 10,000 clusters", "{}", 0, size),
		newDecisionCase("place-labels", "place by labels", "200 of 10,000 clusters", "{clusterAffinity: {labelSelector: {matchLabels: {env: prod, country: '6'}}}}", 0, size),
		newDecisionCase("place-best", "place on the best", "50 of 10,000 clusters by one resource score", "{maxClusters: 50, scores: [{name: ResourceAvailable, resource: cpu}]}", 0, size),
		newDecisionCase("place-weights", "place and divide by weights", "50,000 replicas over 10,000 clusters",
			"{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {labelSelector: {matchLabels: {env: prod}}}, weight: 3}, {targetCluster: {labelSelector: {matchLabels: {env: dev}}}, weight: 1}]}}}", 50_000, size),
		newDecisionCase("place-aggregated", "place and divide, aggregated", "50,000 replicas over 10,000 clusters", "{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}", 50_000, size),
		{
			Name: "cluster-changed", What: "a cluster changed, nothing follows", Goal: "< 50 µs",
			How: "one of the 50 reported: does it still fit, and does anything move",
			Prepare: func() (func() error, error) {
				in, err := newChoiceInput(size)
				if err != nil {
					return nil, err
				}
				d := schedule.DecidePlacement(in)
				in = inputAfterDecision(in, d)
				name := d.Verdicts[len(d.Verdicts)/2].Cluster
				c := &in.Clusters[slices.IndexFunc(in.Clusters, func(c schedule.Cluster) bool { return c.Name == name })]
				row := in.Rows[name]
				return func() error {
					if !in.Filter.AdmitsCluster(c) || in.Filter.JudgeCluster(c, &row, v1alpha1.UnfitKeep, in.Now).Outcome != schedule.OutcomePlaced || in.Filter.CanMove(c, &row, &in, d.ScoreThresholds) {
						return fmt.Errorf("cluster %s is not as it was", name)
					}
					return nil
				}, nil
			},
		}, {
			Name: "cluster-replaced", What: "a cluster went, another takes its place", Goal: "< 50 µs",
			How: "one of the 50 does not fit any more; the new one is found among the reserve of the last decision",
			Prepare: func() (func() error, error) {
				in, err := newChoiceInput(size)
				if err != nil {
					return nil, err
				}
				d := schedule.DecidePlacement(in)
				in = inputAfterDecision(in, d, d.Verdicts[0].Cluster)
				in.Clusters = slices.DeleteFunc(in.Clusters, func(c schedule.Cluster) bool {
					_, has := in.Rows[c.Name]
					return !has && !slices.Contains(d.ReserveClusters, c.Name)
				})
				return func() error { return checkChosenCount(schedule.DecidePlacement(in)) }, nil
			},
		},
	}
}
