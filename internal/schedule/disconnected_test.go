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
			if c.isWhole && n > 0 {
				row.HomeItems = []string{key.String()}
			}
			in.Rows[cl.Name] = row
		}
	}
	d := DecidePlacement(in).WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) {
		n, known := c.free[cluster]
		return freecapacity.NodeClasses{{Nodes: max(n, 0), Pods: 1}}, known
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
	const named = "{clusterAffinity: {clusterNames: [a, b]}"
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
		"divided, and all are disconnected":      {connectionCase{placement: "{" + divided + "}", replicas: 9, down: "a b c"}, "a=3 b=3 c=3", true},
		"more replicas":                          {connectionCase{placement: "{" + divided + "}", replicas: 12, down: "a", assigned: map[string]int64{"a": 2, "b": 2, "c": 2}}, "a=2 b=5 c=5", true},
		"the last connected one is lost":         {connectionCase{placement: named + ", " + divided + "}", replicas: 10, down: "a b", assigned: map[string]int64{"a": 2, "b": 8}}, "a=2 b=8", true},
		"all are disconnected, more replicas":    {connectionCase{placement: named + ", " + divided + "}", replicas: 12, down: "a b", assigned: map[string]int64{"a": 2, "b": 8}}, "a=4 b=8", true},
		"all are disconnected, fewer replicas":   {connectionCase{placement: named + ", " + divided + "}", replicas: 4, down: "a b", assigned: map[string]int64{"a": 2, "b": 8}}, "a=2 b=2", true},
		"a StatefulSet grows at home":            {connectionCase{placement: "{" + divided + "}", replicas: 5, isWhole: true, down: "a", assigned: map[string]int64{"a": 3, "b": 0, "c": 0}}, "a=5 b=0 c=0", true},
		"fewer replicas":                         {connectionCase{placement: "{" + divided + "}", replicas: 3, down: "a", assigned: map[string]int64{"a": 2, "b": 2, "c": 2}}, "a=1 b=1 c=1", true},
		"connected again":                        {connectionCase{placement: "{" + divided + "}", replicas: 12, assigned: map[string]int64{"a": 2, "b": 5, "c": 5}}, "a=4 b=4 c=4", false},
		"the only one with a weight":             {connectionCase{placement: byWeights(onlyA), replicas: 10, down: "a"}, "a=10 b=0 c=0", true},
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
			waits := d.AwaitsConnection || len(d.DisconnectedHolders) > 0
			if text := strings.Join(got, " ") + formatUnplaced(a); text != tc.want || waits != tc.waits {
				t.Errorf("%s, waits for a connection: %t; want %s, %t", text, waits, tc.want, tc.waits)
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
	if d.Choice.LowestScore < 0 {
		t.Errorf("the lowest score is %d", d.Choice.LowestScore)
	}
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

// decideWithDown decides a placement over clusters of which some are disconnected.
func decideWithDown(t *testing.T, uid, placement, down string, clusters []Cluster, change func(*Input, *fakeFacts)) Decision {
	t.Helper()
	facts := fakeFacts{connected: func(c *Cluster) bool { return !slices.Contains(strings.Fields(down), c.Name) }}
	in := Input{
		BundleUID: uid, Placement: parsePlacement(t, placement), Clusters: clusters, Rows: map[string]atoll.RowSpec{}, Now: now, UseFreeCapacity: true, AvoidDisconnected: true,
	}
	if change != nil {
		change(&in, &facts)
	}
	in.Facts = facts
	return DecidePlacement(in)
}

const ownAndNear = "clusterAffinities: [{affinityName: own, labelSelector: {matchLabels: {at: own}}}, {affinityName: near, labelSelector: {matchLabels: {at: near}}}]"

// TestGroupIsUsedByItsConnectedClusters checks that a disconnected favourite does not discredit its group:
// for new Bundles, for failback and for overflow. The UIDs break ties.
func TestGroupIsUsedByItsConnectedClusters(t *testing.T) {
	clusters := []Cluster{newCluster("a", withLabel("at", "own")), newCluster("b", withLabel("at", "own")), newCluster("c", withLabel("at", "near"))}
	for i := range 20 {
		uid := fmt.Sprint("b", i)
		d := decideWithDown(t, uid, "{maxClusters: 1, "+ownAndNear+"}", "a", clusters, nil)
		if got := formatOutcomes(d, OutcomePlaced); got != "b" || d.Group != "own" {
			t.Errorf("%s: a new Bundle is in %s of group %s", uid, got, d.Group)
		}
		d = decideWithDown(t, uid, "{maxClusters: 1, failback: {policy: WhenHealthy}, "+ownAndNear+"}", "a", clusters, func(in *Input, _ *fakeFacts) {
			in.Rows["c"] = inGroup(in.Placement, "near", clusters[2])
		})
		if d.PendingFailback.Group != "own" {
			t.Errorf("%s: group %s is in use, and %q waits to be used again", uid, d.Group, d.PendingFailback)
		}
		further := []Cluster{newCluster("a", withLabel("at", "own")), newCluster("m", withLabel("at", "near")), newCluster("n", withLabel("at", "near"))}
		places := map[string]int64{"a": 2, "m": 50, "n": 50}
		d = decideWithDown(t, uid, "{maxClusters: 1, "+ownAndNear+", replicaScheduling: {"+aggregated+", overflow: Allow}}", "m", further, func(in *Input, f *fakeFacts) {
			in.Workloads = []Workload{{Key: web.Key, Replicas: 10}}
			f.replicas = func(c *Cluster) (int64, bool) { return places[c.Name], true }
		})
		if got := formatOutcomes(d, OutcomePlaced); got != "a n" {
			t.Errorf("%s: replicas overflow to %s", uid, got)
		}
	}
}

// TestUnmetGroupBlocksNoOther checks that a Bundle goes to disconnected clusters of a later group, where
// connected ones can hold it in no group.
func TestUnmetGroupBlocksNoOther(t *testing.T) {
	clusters := []Cluster{
		newCluster("a", withLabel("at", "own"), locatedIn("eu", "", "")),
		newCluster("b", withLabel("at", "near"), locatedIn("eu", "", "")), newCluster("c", withLabel("at", "near"), locatedIn("us", "", "")),
	}
	for _, down := range []string{"", "b c", "c", "b", "a b c"} {
		d := decideWithDown(t, "b", "{spreadConstraints: [{spreadByField: region, minGroups: 2}], "+ownAndNear+"}", down, clusters, nil)
		if got := formatOutcomes(d, OutcomePlaced); got != "b c" || d.NoFit {
			t.Errorf("%q is disconnected: placed in %q, %s", down, got, d.UnmetSpread)
		}
		if why := d.Groups[0].Why; !strings.HasPrefix(why, "spreadConstraints[0] requires 2 groups by region") {
			t.Errorf("%q is disconnected: the first group is explained by %q", down, why)
		}
	}
}

// TestStatefulSetHasItsHomeWhereAllAreDisconnected checks a StatefulSet beside a Deployment that overflows.
func TestStatefulSetHasItsHomeWhereAllAreDisconnected(t *testing.T) {
	set := web.Key
	set.Kind = "StatefulSet"
	d := decideWithDown(t, "b", "{maxClusters: 2, replicaScheduling: {"+aggregated+", overflow: Allow}}", "a b", []Cluster{newCluster("a"), newCluster("b")}, func(in *Input, _ *fakeFacts) {
		in.Workloads = []Workload{{Key: set, Replicas: 3}}
	})
	if a := d.AssignReplicas(nil); len(a.Shortages) > 0 {
		t.Errorf("lacking %+v", a.Shortages)
	}
}

// TestReportedPlacesDoNotOutweighConnection checks that a minimum takes the disconnected cluster that it needs, and
// no other for its larger report.
func TestReportedPlacesDoNotOutweighConnection(t *testing.T) {
	clusters := []Cluster{newCluster("a", locatedIn("us", "", "")), newCluster("b", locatedIn("eu", "", "")), newCluster("c", locatedIn("eu", "", ""))}
	free := map[string]int64{"a": 1, "b": 50, "c": 5}
	d := decideWithDown(t, "b", "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}], replicaScheduling: {"+aggregated+"}}", "a b", clusters, func(in *Input, f *fakeFacts) {
		in.Workloads = []Workload{{Key: web.Key, Replicas: 20}}
		f.replicas = func(c *Cluster) (int64, bool) { return free[c.Name], true }
	})
	if got := formatOutcomes(d, OutcomePlaced); got != "a c" {
		t.Errorf("placed in %s", got)
	}
}

// TestMoveWaitsForConnection checks that a Bundle waits for the connection of a better cluster.
func TestMoveWaitsForConnection(t *testing.T) {
	clusters := []Cluster{newCluster("a", withCPUs(100, 100)), newCluster("b", withCPUs(100, 10))}
	for down, waits := range map[string]bool{"": false, "a": true} {
		d := decideWithDown(t, "b", "{maxClusters: 1, scores: [{name: ResourceAvailable, resource: cpu}], rescheduling: {when: WhenBetter, minDwell: 0s}}", down, clusters, func(in *Input, _ *fakeFacts) {
			in.Rows["b"] = activeRow(clusters[1], in.Placement)
		})
		if d.AwaitsConnection != waits || (formatOutcomes(d, OutcomePlaced) == "a") == waits {
			t.Errorf("%q is disconnected: placed in %s, waits %t", down, formatOutcomes(d, OutcomePlaced), d.AwaitsConnection)
		}
	}
}
