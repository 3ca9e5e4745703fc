package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// fleetLoad has assigned pods and free replicas by cluster name.
type fleetLoad struct {
	schedule.NoFacts
	pods, free map[string]int64
}

func (f fleetLoad) AssignedPods(c *schedule.Cluster) int64 { return f.pods[c.Name] }

func (f fleetLoad) FreeReplicas(c *schedule.Cluster) (int64, bool) { return f.free[c.Name], true }

// chosenBundle is a Bundle whose placement chose among the clusters; nothing runs yet.
func chosenBundle(p v1alpha1.PlacementSpec, clusters []schedule.Cluster, change func(*schedule.Input)) Bundle {
	in := schedule.Input{BundleUID: "b", Placement: p, Clusters: clusters, Now: testTime}
	if change != nil {
		change(&in)
	}
	return Bundle{
		Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}, Latest: "r", Numbers: map[string]int64{"r": 1}, Content: &atoll.Content{},
		Spec: v1alpha1.BundleSpec{Placement: p}, Rows: map[string]rollout.Row{}, Decision: schedule.DecidePlacement(in),
	}
}

func explainWholeBundle(b Bundle) Explanation {
	return Explain(ExplanationInput{Object: atoll.ItemKey{Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "web"}, Exists: true, Bundles: []Bundle{b}, Now: testTime})
}

func freeCluster(name, zone string, cpus int64) schedule.Cluster {
	c := testCluster(name, map[string]string{"at": zone})
	c.Zone, c.Resources = zone, []schedule.ResourceAmount{{Name: corev1.ResourceCPU, Total: 100_000, Free: cpus * 1000}}
	return c
}

var cpuScores = []v1alpha1.Score{{Name: v1alpha1.ScoreBalance, Weight: 3}, {Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Weight: 1}}

// Why this cluster and not that one: scores by part, groups of the spread, and why others
// are left out.
func TestChoiceIsTold(t *testing.T) {
	clusters := []schedule.Cluster{freeCluster("a1", "a", 90), freeCluster("a2", "a", 80), freeCluster("b1", "b", 10), freeCluster("c1", "c", 70), freeCluster("off", "d", 100)}
	clusters[3].Taints = []v1alpha1.Taint{{Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule}}
	clusters[4].Accepted = false
	b := chosenBundle(v1alpha1.PlacementSpec{
		MaxClusters: 2, Scores: cpuScores,
		SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByZone, MinGroups: 2}},
		DecisionGroups:    []v1alpha1.DecisionGroup{{GroupName: "canary", LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"at": "b"}}}},
	}, clusters, func(in *schedule.Input) {
		in.Facts = fleetLoad{pods: map[string]int64{"a1": 10}}
	})
	e := explainWholeBundle(b)
	checkGolden(t, "choice", e.FormatText(false))
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"choice":{"most":2,"fit":4,"chosen":2,"scores":[{"name":"Balance","weight":3},{"name":"ResourceAvailable cpu","weight":1}]`,
		// Balance: 110 pods for 10 are 916.666; of CPU 90 of 100.
		`"score":{"total":912.499,"parts":[{"points":916.666,"of":"10 pods assigned, 110 fit"},{"points":900,"of":"90 of 100 free"}]}`,
		`"avoided":1`, `{"name":"d","clusters":1,"fit":0,"chosen":0,"why":"none of its clusters fits"}`, `"group":"canary"`,
	} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("the JSON lacks %s:\n%s", part, raw)
		}
	}
}

// A large fleet is explained in a screen or two, with the number of further lines and the way to
// see them.
func TestChoiceOfALargeFleetIsBounded(t *testing.T) {
	var clusters []schedule.Cluster
	for i := range 3000 {
		clusters = append(clusters, freeCluster(fmt.Sprintf("c%04d", i), fmt.Sprintf("z%03d", i%300), int64(i%100)))
	}
	for i := range 500 {
		c := testCluster(fmt.Sprintf("x%04d", i), nil)
		c.Accepted = false // each with its own reason
		clusters = append(clusters, c)
	}
	b := chosenBundle(v1alpha1.PlacementSpec{
		MaxClusters: 100, Scores: cpuScores, SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByZone, MinGroups: 50}},
	}, clusters, nil)
	e := explainWholeBundle(b)
	text := e.FormatText(false)
	if lines := strings.Count(text, "\n"); lines > 250 {
		t.Errorf("%d lines", lines)
	}
	for _, more := range []string{
		"and 80 more that were chosen; --all shows them, --cluster NAME one, -o json all",
		"and 2880 more that fit and were not; --all", "more with chosen clusters; --all", "more without; --all",
		"and 480 clusters for 480 reasons more; --all",
	} {
		if !strings.Contains(text, more) {
			t.Errorf("lacks %q:\n%s", more, text)
		}
	}
	if all := e.FormatText(true); strings.Count(all, "c2999") == 0 || strings.Contains(all, "--all") || !strings.Contains(all, "x0499") {
		t.Errorf("with --all something is left to a count")
	}
	one, _ := e.FilterCluster("c0007")
	if text := one.FormatText(false); !strings.Contains(text, "c0007") || strings.Contains(text, "c0008 ") {
		t.Errorf("of one cluster:\n%s", text)
	}
}

// Groups of clusterAffinities show which is in use and why the others are not.
func TestAffinityGroupsAreTold(t *testing.T) {
	group := func(name, zone string) v1alpha1.ClusterAffinityTerm {
		return v1alpha1.ClusterAffinityTerm{AffinityName: name, ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"at": zone}}}}
	}
	p := v1alpha1.PlacementSpec{
		ClusterAffinities: []v1alpha1.ClusterAffinityTerm{group("own", "a"), group("near", "b"), group("cloud", "c"), group("far", "d")},
		ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated},
	}
	b := chosenBundle(p, []schedule.Cluster{freeCluster("b1", "b", 1), freeCluster("c1", "c", 1)}, func(in *schedule.Input) {
		in.Workloads = []schedule.Workload{{Key: webKey, Replicas: 10}}
		in.UseFreeCapacity, in.Facts = true, fleetLoad{free: map[string]int64{"b1": 4, "c1": 12}}
	})
	text := explainWholeBundle(b).FormatText(false)
	for _, line := range []string{
		"Groups of clusterAffinities, the most preferred first:",
		"    own: not in use: no cluster fits in it; refused: 2 by labelSelector\n",
		"    near: not in use: it has room for 4 of 10 replicas; 1 cluster fits; refused: 1 by labelSelector\n",
		"    cloud: in use; 1 cluster fits, known room for 10 of 10 replicas; refused: 1 by labelSelector\n",
		"    far: not in use: it comes after cloud, and no cluster fits in it; refused: 2 by labelSelector\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("lacks %q:\n%s", line, text)
		}
	}
}

// Groups and clusters that take overflow are shown as such.
func TestExplainOverflow(t *testing.T) {
	p := v1alpha1.PlacementSpec{MaxClusters: 1, Scores: cpuScores, ReplicaScheduling: v1alpha1.ReplicaScheduling{
		ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated, Overflow: v1alpha1.OverflowAllow,
	}}
	beyond := func(in *schedule.Input) {
		in.Workloads = []schedule.Workload{{Key: webKey, Replicas: 10}}
		in.UseFreeCapacity, in.Facts = true, fleetLoad{free: map[string]int64{"a1": 8, "b1": 3, "c1": 9}}
	}
	clusters := []schedule.Cluster{freeCluster("a1", "a", 50), freeCluster("b1", "b", 40), freeCluster("c1", "c", 1)}
	e := explainWholeBundle(chosenBundle(p, clusters, beyond))
	var steps []string
	for _, c := range e.Bundles[0].Clusters {
		steps = append(steps, fmt.Sprint(c.Cluster, " ", c.OverflowStep, " ", c.ReasonCode))
	}
	if got, want := strings.Join(steps, ", "), "a1 1 TakesOverflow, b1 0 NotChosen, c1 0 Fits"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if text := e.FormatText(false); !strings.Contains(text, "takes overflow (step 1)") {
		t.Errorf("no overflow in\n%s", text)
	}
	p.MaxClusters, p.Scores = 0, nil
	for _, zone := range []string{"a", "b"} {
		p.ClusterAffinities = append(p.ClusterAffinities, v1alpha1.ClusterAffinityTerm{AffinityName: "in-" + zone, ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"at": zone}}}})
	}
	text := explainWholeBundle(chosenBundle(p, clusters, beyond)).FormatText(false)
	if line := "    in-b: takes overflow: it takes the replicas that have no place in in-a; 1 cluster fits"; !strings.Contains(text, line) {
		t.Errorf("lacks %q:\n%s", line, text)
	}
}

// An unfinished object has its wait, the time since then and the person that must act, also
// without a row.
func TestWhatWaitsSaysSinceWhenAndWho(t *testing.T) {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(testTime.Add(-d)) }
	spread := v1alpha1.PlacementSpec{SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByZone, MinGroups: 3}}}
	for name, tc := range map[string]struct {
		bundle func() Bundle
		want   string
	}{
		"no cluster fits": {func() Bundle {
			b := chosenBundle(v1alpha1.PlacementSpec{}, nil, nil)
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BundleScheduled, Status: metav1.ConditionFalse, LastTransitionTime: ago(5 * time.Minute)}}
			return b
		}, "No cluster fits the placement for 5m; there is no cluster that you may see; to act: the policy's owner, or a person that labels and taints clusters."},
		"no cluster fits any more, which is not reported yet": {func() Bundle {
			b := chosenBundle(v1alpha1.PlacementSpec{}, nil, nil)
			b.Created = testTime.Add(-time.Hour)
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BundleScheduled, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
			return b
		}, "No cluster fits the placement; there is no"},
		"a spread that cannot be had": {func() Bundle {
			b := chosenBundle(spread, []schedule.Cluster{freeCluster("a1", "a", 1), freeCluster("b1", "b", 1)}, nil)
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BundleScheduled, Status: metav1.ConditionFalse, LastTransitionTime: ago(3 * time.Hour)}}
			return b
		}, "Nothing comes and what runs is kept as it is for 3h: spreadConstraints[0] requires 3 groups by zone, and the clusters that fit give 2; to act: the policy's owner"},
		"replicas without a place": {func() Bundle {
			b := chosenBundle(v1alpha1.PlacementSpec{}, []schedule.Cluster{freeCluster("a1", "a", 1)}, nil)
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BundleReplicasPlaced, Status: metav1.ConditionFalse, LastTransitionTime: ago(10 * time.Minute)}}
			b.Output.Shortages = []schedule.Shortage{{Key: webKey, Replicas: 10, Unplaced: 3}}
			return b
		}, "3 of 10 replicas of Deployment/web have no place for 10m: every cluster that fits is at its bounds; to act: the policy's owner."},
		"no revision": {func() Bundle {
			b := chosenBundle(v1alpha1.PlacementSpec{}, []schedule.Cluster{freeCluster("a1", "a", 1)}, nil)
			b.Latest, b.Numbers, b.Content, b.Created = "", nil, nil, testTime.Add(-time.Minute)
			b.Status.WaitsFor = "its first revision; no person has to act"
			return b
		}, "Waits for 60s for its first revision; no person has to act."},
		"what the Bundle waits for as a whole": {func() Bundle {
			b := shopBundle()
			b.Output.Waits = nil
			b.Status.WaitsFor = "kind Widget to be readable; the hub's administrator must act"
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, LastTransitionTime: ago(2 * time.Minute)}}
			return b
		}, "Waits for 2m for kind Widget to be readable; the hub's administrator must act."},
	} {
		if text := explainWholeBundle(tc.bundle()).FormatText(false); !strings.Contains(text, tc.want) {
			t.Errorf("%s lacks %q:\n%s", name, tc.want, text)
		}
	}
}

// A name that no cluster has differs from one that does not fit, also where it is the only one;
// weights that match no cluster are no bounds.
func TestNamesAndWeightsThatMatchNobody(t *testing.T) {
	named := v1alpha1.PlacementSpec{MaxClusters: 1, ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"a1", "a9"}}}
	text := explainWholeBundle(chosenBundle(named, []schedule.Cluster{freeCluster("a1", "a", 1), freeCluster("b1", "b", 1)}, nil)).FormatText(false)
	for _, line := range []string{"\n  Not in:\n    a9: named by the placement, and no cluster that you may see\n", "\n    b1: not named in clusterNames [clusterNames]\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("lacks %q:\n%s", line, text)
		}
	}
	named.ClusterAffinity.ClusterNames = []string{"a9"}
	text = explainWholeBundle(chosenBundle(named, []schedule.Cluster{freeCluster("a1", "a", 1)}, nil)).FormatText(false)
	if !strings.Contains(text, "a9: named by the placement, and no") || !strings.Contains(text, "Chosen: 0 of 0 candidates, at most 1.\n") || strings.Contains(text, "Scores are") {
		t.Errorf("says\n%s", text)
	}

	p := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, WeightPreference: &v1alpha1.ClusterPreferences{
		StaticWeightList: []v1alpha1.StaticClusterWeight{{TargetCluster: v1alpha1.ClusterAffinity{ClusterNames: []string{"a9"}}, Weight: 1}},
	}}}
	b := chosenBundle(p, []schedule.Cluster{freeCluster("a1", "a", 1)}, func(in *schedule.Input) { in.Workloads = []schedule.Workload{{Key: webKey, Replicas: 10}} })
	b.Output.Shortages = []schedule.Shortage{{Key: webKey, Replicas: 10, Unplaced: 10}}
	text = explainWholeBundle(b).FormatText(false)
	if !strings.Contains(text, "No entry of staticWeightList matches a cluster that is chosen, so that replicas are divided evenly; to act: the policy's owner.\n") {
		t.Errorf("says\n%s", text)
	}
	earlier := schedule.PlacementTerms{Placement: p, SummedWeights: true}.CompilePlacement()
	b = chosenBundle(p, []schedule.Cluster{freeCluster("a1", "a", 1)}, func(in *schedule.Input) {
		in.Workloads, in.Filter = []schedule.Workload{{Key: webKey, Replicas: 10}}, earlier
	})
	b.Output.Shortages = []schedule.Shortage{{Key: webKey, Replicas: 10, Unplaced: 10}}
	text = explainWholeBundle(b).FormatText(false)
	if !strings.Contains(text, "No entry of staticWeightList matches a cluster that is chosen, so that each keeps the replicas that it has; to act: the policy's owner.\n") ||
		!strings.Contains(text, "10 of 10 replicas of Deployment/web have no place.\n") || strings.Contains(text, "at its bounds") {
		t.Errorf("by the rule of earlier versions says\n%s", text)
	}
}

// An impossible spread is reported once above the clusters, and its kept clusters are called kept.
// The placement's author must act, and the person that states full capacities.
func TestWhatCannotBeHadIsNotRepeated(t *testing.T) {
	const unmet = "spreadConstraints[0] requires 3 groups by zone, and the clusters that fit give 1"
	p := v1alpha1.PlacementSpec{SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByZone, MinGroups: 3}}}
	text := explainWholeBundle(chosenBundle(p, []schedule.Cluster{freeCluster("a1", "a", 1), freeCluster("a2", "a", 2)}, nil)).FormatText(false)
	if !strings.Contains(text, "kept as it is: "+unmet+"; to act") || strings.Count(text, unmet) != 1 || !strings.Contains(text, "    a: 2 fit\n") || !strings.Contains(text, "Chosen: 0 of 2 candidates.") {
		t.Errorf("says\n%s", text)
	}
	b := chosenBundle(v1alpha1.PlacementSpec{}, []schedule.Cluster{freeCluster("a1", "a", 1)}, nil)
	b.Spec.Source.Kind = v1alpha1.SourceAnnotation
	b.Output.Shortages = []schedule.Shortage{{Key: webKey, Replicas: 10, Unplaced: 3}}
	if text := explainWholeBundle(b).FormatText(false); !strings.Contains(text, "its bounds; to act: the annotation's author.") {
		t.Errorf("says\n%s", text)
	}
}
