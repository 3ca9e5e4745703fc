package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// connectionCase is a decision over the clusters a, b and c, two of them in the region eu.
type connectionCase struct {
	placement string
	// replicas of a divided Deployment, or with isWhole of a StatefulSet; 0: copies alone.
	replicas int64
	isWhole  bool
	// assigned replicas of the rows that exist, down the disconnected clusters, free the free places of
	// clusters that report them.
	assigned map[string]int64
	down     string
	free     map[string]int64
	// unknown: it is not known which clusters are disconnected.
	unknown bool
}

func (c connectionCase) decidePlacement(t *testing.T) (Decision, ReplicaAssignment) {
	t.Helper()
	p := parsePlacement(t, c.placement)
	clusters := []Cluster{
		newCluster("a", withLabel("at", "own"), locatedIn("us", "", "")), newCluster("b", withLabel("at", "near"), locatedIn("eu", "", "")),
		newCluster("c", withLabel("at", "near"), locatedIn("eu", "", "")),
	}
	in := Input{
		BundleUID: "b", Placement: p, Clusters: clusters, Rows: map[string]atoll.RowSpec{}, Now: now, UseFreeCapacity: true, AvoidDisconnected: !c.unknown,
		Facts: fakeFacts{
			connected: func(cl *Cluster) bool { return !slices.Contains(strings.Fields(c.down), cl.Name) },
			replicas: func(cl *Cluster) (int64, bool) {
				n, known := c.free[cl.Name]
				return n + c.assigned[cl.Name], known
			},
		},
	}
	key := web.Key
	if c.isWhole {
		key.Kind = "StatefulSet"
	}
	if c.replicas > 0 {
		in.Workloads = []Workload{{Key: key, Replicas: c.replicas}}
	}
	for _, cl := range clusters {
		if n, has := c.assigned[cl.Name]; has {
			row := activeRow(cl, p)
			row.Assigned = map[string]int64{key.String(): n}
			in.Rows[cl.Name] = row
		}
	}
	d := DecidePlacement(in).WithFreeCapacity(func(cluster string) (freecapacity.Classes, bool) {
		n, known := c.free[cluster]
		return freecapacity.Classes{{Nodes: max(n, 0), Pods: 1}}, known
	})
	return d, d.AssignReplicas(nil)
}

const (
	twoGroups  = "{clusterAffinities: [{affinityName: own, labelSelector: {matchLabels: {at: own}}}, {affinityName: near, labelSelector: {matchLabels: {at: near}}}]}"
	twoRegions = "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]}"
)

// TestDisconnectedClustersGetNothingNew checks where new Bundles and new replicas go while clusters are
// disconnected, and which decisions wait for a connection.
func TestDisconnectedClustersGetNothingNew(t *testing.T) {
	const divided = "replicaScheduling: {replicaSchedulingType: Divided}"
	byWeights := func(list string) string {
		return "{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted, weightPreference: {staticWeightList: [" + list + "]}}}"
	}
	const onlyA = "{targetCluster: {clusterNames: [a]}, weight: 3}"
	for name, tc := range map[string]struct {
		connectionCase
		want  string // cluster=replicas of all holders
		waits bool   // for a connection
	}{
		"others are chosen":                      {connectionCase{placement: "{maxClusters: 2}", down: "a"}, "b=0 c=0", false},
		"fewer are chosen":                       {connectionCase{placement: "{maxClusters: 3}", down: "a"}, "b=0 c=0", true},
		"it is not known":                        {connectionCase{placement: "{maxClusters: 3}", down: "a", unknown: true}, "a=0 b=0 c=0", false},
		"all are disconnected":                   {connectionCase{placement: "{maxClusters: 3}", down: "a b c"}, "a=0 b=0 c=0", false},
		"a minimum needs it":                     {connectionCase{placement: twoRegions, down: "a b"}, "a=0 c=0", false},
		"a minimum needs it, with replicas":      {connectionCase{placement: strings.TrimSuffix(twoRegions, "}") + ", " + divided + "}", replicas: 6, down: "a b"}, "a=0 c=6", true},
		"what runs stays":                        {connectionCase{placement: "{maxClusters: 1}", down: "a", assigned: map[string]int64{"a": 0}}, "a=0", false},
		"what runs stays, and one more":          {connectionCase{placement: "{maxClusters: 3}", down: "a b", assigned: map[string]int64{"a": 0}}, "a=0 c=0", true},
		"a later group":                          {connectionCase{placement: twoGroups, down: "a"}, "b=0 c=0", false},
		"a copy for all":                         {connectionCase{placement: "{}", down: "a"}, "a=0 b=0 c=0", false},
		"divided evenly":                         {connectionCase{placement: "{" + divided + "}", replicas: 10, down: "a"}, "a=0 b=5 c=5", true},
		"divided, and it is not known":           {connectionCase{placement: "{" + divided + "}", replicas: 9, down: "a", unknown: true}, "a=3 b=3 c=3", false},
		"divided, and all are disconnected":      {connectionCase{placement: "{" + divided + "}", replicas: 9, down: "a b c"}, "a=3 b=3 c=3", false},
		"more replicas":                          {connectionCase{placement: "{" + divided + "}", replicas: 12, down: "a", assigned: map[string]int64{"a": 2, "b": 2, "c": 2}}, "a=2 b=5 c=5", true},
		"fewer replicas":                         {connectionCase{placement: "{" + divided + "}", replicas: 3, down: "a", assigned: map[string]int64{"a": 2, "b": 2, "c": 2}}, "a=1 b=1 c=1", true},
		"connected again":                        {connectionCase{placement: "{" + divided + "}", replicas: 12, assigned: map[string]int64{"a": 2, "b": 5, "c": 5}}, "a=4 b=4 c=4", false},
		"the only one with a weight":             {connectionCase{placement: byWeights(onlyA), replicas: 10, down: "a"}, "a=10 b=0 c=0", false},
		"another one with a weight":              {connectionCase{placement: byWeights(onlyA + ", {targetCluster: {clusterNames: [b]}, weight: 1}"), replicas: 8, down: "a"}, "a=0 b=8 c=0", true},
		"its report of free places counts not":   {connectionCase{placement: "{replicaScheduling: {" + aggregated + "}}", replicas: 5, down: "a", free: map[string]int64{"a": 9, "b": 3, "c": 0}}, "a=0 b=3 c=0 lacking 2", true},
		"a StatefulSet goes to a connected one":  {connectionCase{placement: "{" + divided + "}", replicas: 4, isWhole: true, down: "a b"}, "a=0 b=0 c=4", true},
		"a StatefulSet without replicas as well": {connectionCase{placement: byWeights("{targetCluster: {clusterNames: [a]}, weight: 99}, {targetCluster: {clusterNames: [c]}, weight: 1}"), replicas: 1, isWhole: true, down: "a"}, "a=0 b=0 c=1", true},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := tc.decidePlacement(t)
			var got []string
			for _, v := range d.Verdicts {
				if !v.IsHolder() {
					continue
				}
				replicas := int64(0)
				for _, n := range a.ShareOf(v.Cluster).Replicas {
					replicas += n
				}
				got = append(got, fmt.Sprintf("%s=%d", v.Cluster, replicas))
			}
			if text := strings.Join(got, " ") + formatUnplaced(a); text != tc.want || d.AwaitsConnection != tc.waits {
				t.Errorf("%s, waits for a connection: %t; want %s, %t", text, d.AwaitsConnection, tc.want, tc.waits)
			}
			for _, v := range d.Verdicts {
				if v.Outcome == OutcomeOut && v.Filter == FilterConnection && (v.ReasonCode() != atoll.ReasonClusterDisconnected || !strings.Contains(tc.down, v.Cluster)) {
					t.Errorf("verdict %+v", v)
				}
			}
		})
	}
}

// TestDisconnectedClusterIsExplained checks the verdicts of a choice and of a division.
func TestDisconnectedClusterIsExplained(t *testing.T) {
	d, _ := connectionCase{placement: "{maxClusters: 2}", down: "a"}.decidePlacement(t)
	v, _ := d.FindVerdict("a")
	if v.Outcome != OutcomeOut || v.Filter != FilterConnection || v.Reason != "it is disconnected, and gets nothing new" || v.ReasonCode() != atoll.ReasonClusterDisconnected {
		t.Errorf("of the choice: %+v", v)
	}
	d, _ = connectionCase{placement: twoGroups, down: "a"}.decidePlacement(t)
	if d.Groups[0].Why != "none of its clusters that fit is in touch" || !d.Groups[1].InUse {
		t.Errorf("of the groups: %+v", d.Groups)
	}
	d, _ = connectionCase{placement: twoRegions, down: "a b"}.decidePlacement(t)
	if v, _ = d.FindVerdict("b"); v.Filter != FilterConnection || v.Score < 0 || v.Score > fullScore {
		t.Errorf("of a cluster that the minimum does not need: %+v", v)
	}
	d, _ = connectionCase{placement: "{replicaScheduling: {replicaSchedulingType: Divided}}", replicas: 3, down: "a"}.decidePlacement(t)
	for _, v := range d.Verdicts {
		if v.Outcome != OutcomePlaced || v.GetsNothingNew != (v.Cluster == "a") {
			t.Errorf("of the division: %+v", v)
		}
	}
}
