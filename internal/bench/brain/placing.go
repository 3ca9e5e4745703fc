package brain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Cases that there are, in the order in which they are told.
func Cases() []Case {
	return slices.Concat(placing(), dividing(), rendering())
}

// choosing is the placement of the number: labels, a toleration, a spread over regions and
// zones, and the two resource scores.
const choosing = `{clusterAffinity: {labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, dev]}]}},
  clusterTolerations: [{key: dedicated, operator: Equal, value: tpu}], maxClusters: 50,
  spreadConstraints: [{spreadByField: region, minGroups: 3, maxGroups: 5}, {spreadByField: zone, maxSkew: 2}],
  scores: [{name: ResourceAvailable, resource: cpu}, {name: ResourceAvailable, resource: memory, full: 256Gi}]}`

const chosen = 50

// fleet of n clusters in 10 regions and 40 zones; every seventh has a taint.
func fleet(n int) []schedule.Cluster {
	out := make([]schedule.Cluster, n)
	for i := range out {
		name := fmt.Sprintf("cluster-%05d", i)
		out[i] = schedule.Cluster{
			ClusterView: atoll.ClusterView{
				Name: name, Region: fmt.Sprint("region-", i%10), Zone: fmt.Sprint("zone-", i%40), Provider: "p",
				Labels: map[string]string{"env": []string{"prod", "dev"}[i%2], "country": fmt.Sprint(i % 50)},
			},
			UID: "uid-" + name, Accepted: true,
			Resources: []schedule.Amount{{Name: "cpu", Total: 64_000, Free: int64(i*7919%64_000) + 1}, {Name: "memory", Total: 1 << 40, Free: int64(i*104729%1000+1) << 30}},
		}
		if i%7 == 0 {
			out[i].Taints = []v1alpha1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	return out
}

func chooseAmong(n int) (schedule.Input, error) {
	in := schedule.Input{Bundle: "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a", Clusters: fleet(n), Terse: true, Now: time.Now()}
	if err := yaml.UnmarshalStrict([]byte(choosing), &in.Placement); err != nil {
		return in, fmt.Errorf("placement: %w", err)
	}
	in.Filter = schedule.Compile(in.Placement)
	return in, nil
}

// holding is the input once what was decided is done, but for the clusters that are left
// out.
func holding(in schedule.Input, d schedule.Decision, without ...string) schedule.Input {
	in.Rows = map[string]atoll.RowSpec{}
	for _, v := range d.Verdicts {
		if !slices.Contains(without, v.Cluster) {
			in.Rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, Placement: v.Placement}
		}
	}
	return in
}

func expect(d schedule.Decision) error {
	if len(d.Verdicts) != chosen || d.Hungry {
		return fmt.Errorf("%d clusters were chosen: %s", len(d.Verdicts), d.Unmet)
	}
	return nil
}

func placing() []Case {
	const size = 10_000
	return []Case{
		{
			Name: "place", What: "place one Bundle", Goal: "< 5 ms, < 1 MB",
			How: "50 of 10,000 clusters by labels, taints, a spread over regions and zones, and two resource scores",
			Prepare: func() (func() error, error) {
				in, err := chooseAmong(size)
				return func() error { return expect(schedule.Schedule(in)) }, err
			},
		}, {
			Name: "cluster-changed", What: "a cluster changed, nothing follows", Goal: "< 50 µs",
			How: "one of the 50 reported: does it still fit, and does anything move",
			Prepare: func() (func() error, error) {
				in, err := chooseAmong(size)
				if err != nil {
					return nil, err
				}
				d := schedule.Schedule(in)
				in = holding(in, d)
				name := d.Verdicts[len(d.Verdicts)/2].Cluster
				c := &in.Clusters[slices.IndexFunc(in.Clusters, func(c schedule.Cluster) bool { return c.Name == name })]
				row := in.Rows[name]
				return func() error {
					if !in.Filter.Admits(c) || in.Filter.Judge(c, &row, v1alpha1.UnfitKeep, in.Now).Outcome != schedule.Placed || in.Filter.Moves(c, &row, &in, d.Standing) {
						return fmt.Errorf("cluster %s is not as it was", name)
					}
					return nil
				}, nil
			},
		}, {
			Name: "cluster-replaced", What: "a cluster went, another takes its place", Goal: "< 50 µs",
			How: "one of the 50 does not fit any more; the new one is found among the reserve of the last decision",
			Prepare: func() (func() error, error) {
				in, err := chooseAmong(size)
				if err != nil {
					return nil, err
				}
				d := schedule.Schedule(in)
				in = holding(in, d, d.Verdicts[0].Cluster)
				in.Clusters = slices.DeleteFunc(in.Clusters, func(c schedule.Cluster) bool {
					_, has := in.Rows[c.Name]
					return !has && !slices.Contains(d.Reserve, c.Name)
				})
				return func() error { return expect(schedule.Schedule(in)) }, nil
			},
		},
	}
}
