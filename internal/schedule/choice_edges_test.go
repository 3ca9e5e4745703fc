package schedule

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Ties between equal clusters fall differently in every Bundle, and the same for the same Bundle, whatever the way
// of the choice.
func TestChoiceTiesFallDifferentlyPerBundle(t *testing.T) {
	for name, text := range map[string]string{
		"by score":                "{maxClusters: 1}",
		"of one group":            "{maxClusters: 1, spreadConstraints: [{spreadByField: zone}]}",
		"of two rules":            "{maxClusters: 1, spreadConstraints: [{spreadByField: zone}, {spreadByField: region}]}",
		"of one group at most":    "{maxClusters: 1, spreadConstraints: [{spreadByField: zone, maxGroups: 1}]}",
		"of one group, unbounded": "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]}",
		"of one group with skew":  "{maxClusters: 1, spreadConstraints: [{spreadByField: zone, maxSkew: 1}]}",
	} {
		chosen := map[string]int{}
		for bundle := range 60 {
			var clusters []Cluster
			for i := range 4 {
				clusters = append(clusters, newCluster(string(rune('a'+i)), locatedIn("r", fmt.Sprint("z", i), "")))
			}
			in := Input{BundleUID: fmt.Sprint("bundle", bundle), Placement: parsePlacement(t, text), Clusters: clusters, Now: now}
			first := formatOutcomes(DecidePlacement(in), OutcomePlaced)
			if again := formatOutcomes(DecidePlacement(in), OutcomePlaced); again != first {
				t.Errorf("%s: bundle %d is in %s, then in %s", name, bundle, first, again)
			}
			chosen[first]++
		}
		for _, c := range []string{"a", "b", "c", "d"} {
			if chosen[c] < 5 {
				t.Errorf("%s: of 60 Bundles %d are in %s: %v", name, chosen[c], c, chosen)
			}
		}
	}
}

// A reserve is for a terse decision that has all it wants and chooses by scores alone.
func TestReserveIsForFinishedChoices(t *testing.T) {
	clusters := []Cluster{newCluster("a", withCPUs(100, 50)), newCluster("b", withCPUs(100, 40)), newCluster("c", withCPUs(100, 30))}
	const one = "{maxClusters: 1" + byCPU
	for _, tc := range []struct {
		name, placement string
		change          func(*Input)
		want            string
	}{
		{"finished", one + "}", func(*Input) {}, "[b c]"},
		{"with explanations", one + "}", func(in *Input) { in.SkipExplanations = false }, "[]"},
		{"more are wanted", "{maxClusters: 4" + byCPU + "}", func(*Input) {}, "[]"},
		{"capacity counts", one + ", replicaScheduling: {" + aggregated + "}}", func(in *Input) {
			in.UseFreeCapacity, in.Workloads = true, []Workload{{Key: web.Key, Replicas: 2}}
			in.Facts = fakeFacts{replicas: func(*Cluster) (int64, bool) { return 9, true }}
		}, "[]"},
		{"replicas may overflow", one + ", replicaScheduling: {" + aggregated + ", overflow: Allow}}", func(*Input) {}, "[]"},
		{"rows are chosen from scratch", one + "}", func(in *Input) {
			in.Filter = PlacementTerms{Placement: in.Placement, Rebalance: now}.CompilePlacement()
			in.Rows = map[string]atoll.RowSpec{"a": activeRow(clusters[0], in.Placement)}
		}, "[]"},
	} {
		in := Input{BundleUID: "b", Placement: parsePlacement(t, tc.placement), Clusters: clusters, SkipExplanations: true, Now: now}
		tc.change(&in)
		if d := DecidePlacement(in); fmt.Sprint(d.ReserveClusters) != tc.want || len(d.Verdicts) == 0 {
			t.Errorf("%s: in reserve %v, want %s", tc.name, d.ReserveClusters, tc.want)
		}
	}
}

// The thresholds of a movable Bundle are the lowest score of its clusters and the highest of the others.
func TestScoreThresholdsOfADecision(t *testing.T) {
	at := func(name string, free int64) Cluster { return newCluster(name, withCPUs(100, free)) }
	for _, tc := range []struct {
		name     string
		max      int
		clusters []Cluster
		want     ScoreThresholds
	}{
		{"between", 2, []Cluster{at("a", 90), at("b", 80), at("c", 30), at("d", 20)}, ScoreThresholds{800_000, 300_000}},
		{"no others", 2, []Cluster{at("a", 90), at("b", 80)}, ScoreThresholds{800_000, math.MinInt64}},
	} {
		p := parsePlacement(t, fmt.Sprintf("{maxClusters: %d, rescheduling: {when: WhenBetter}%s}", tc.max, byCPU))
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: tc.clusters, Now: now})
		if d.ScoreThresholds == nil || *d.ScoreThresholds != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, d.ScoreThresholds, tc.want)
		}
		p.Rescheduling = nil
		if d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: tc.clusters, Now: now}); d.ScoreThresholds != nil {
			t.Errorf("%s: a Bundle that does not move has the thresholds %+v", tc.name, d.ScoreThresholds)
		}
	}
}

// A group breaks a hard maximum skew where it has more than the smallest group and the skew together.
func TestBreaksHardSkew(t *testing.T) {
	for _, tc := range []struct {
		name   string
		skew   int
		isSoft bool
		group  int32
		counts []int32
		want   bool
	}{
		{"as many as allowed", 1, false, 0, []int32{2, 1}, false}, {"one too many", 1, false, 0, []int32{3, 1}, true}, {"a wider skew", 2, false, 0, []int32{3, 1}, false},
		{"a soft skew", 1, true, 0, []int32{3, 1}, false}, {"no skew", 0, false, 0, []int32{3, 1}, false}, {"in no group", 1, false, noGroup, []int32{3, 1}, false}, {"the smaller group", 1, false, 1, []int32{3, 1}, false},
	} {
		groupOf := []int32{0, 1, noGroup}
		p := &choiceProblem{options: []candidateOption{{}, {}, {}}, maxChosen: unlimited, rules: []spreadRule{{groups: 2, skew: tc.skew, isSoft: tc.isSoft, groupOf: groupOf}}}
		to := int32(slices.Index(groupOf, tc.group))
		if got := newSolver(p).breaksHardSkew(0, (to+1)%3, to, [][]int32{tc.counts}); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// A group that has chosen clusters hears of its skew, and only one without any hears of maxGroups.
func TestRefuseBySpread(t *testing.T) {
	at := func(name string, free int64) Cluster {
		return newCluster(name, locatedIn("", name[:1], ""), withCPUs(100, free))
	}
	in := Input{
		BundleUID: "b", Placement: parsePlacement(t, "{spreadConstraints: [{spreadByField: zone, maxGroups: 2, maxSkew: 1}]"+byCPU+"}"), Now: now,
		Clusters: []Cluster{at("x1", 90), at("x2", 80), at("x3", 70), at("y1", 60), at("z1", 10)},
	}
	d := DecidePlacement(in)
	for cluster, want := range map[string]string{
		"x3": "it fits and scores 700 of 1000; maxSkew of spreadConstraints[0] is 1: zone x has 2, and another zone that counts has 1",
		"z1": "maxGroups of spreadConstraints[0] is 2, and zone z has none of those that were chosen (x, y)" +
			": it fits, and its score 100 of 1000 is below the lowest in whose place the spread lets it be, 600 (y1)",
	} {
		if v, _ := d.FindVerdict(cluster); v.Filter != FilterSpread || v.Reason != want {
			t.Errorf("%s: %s: %s\nwant %s", cluster, v.Filter, v.Reason, want)
		}
	}
}

// A PreferNoSchedule taint counts against a cluster unless it is tolerated. Other taints do not count.
func TestCountAvoidedTaints(t *testing.T) {
	prefer := func(key string) func(*Cluster) { return withTaint(key, "", corev1.TaintEffectPreferNoSchedule, 0) }
	f := CompilePlacement(v1alpha1.PlacementSpec{ClusterTolerations: []corev1.Toleration{{Key: "slow", Operator: corev1.TolerationOpExists}}})
	for _, tc := range []struct {
		name    string
		cluster Cluster
		want    int
	}{
		{"none", newCluster("a"), 0}, {"two", newCluster("a", prefer("old"), prefer("far")), 2}, {"one of two is tolerated", newCluster("a", prefer("slow"), prefer("far")), 1},
		{"another effect", newCluster("a", withTaint("old", "", corev1.TaintEffectNoSchedule, 0)), 0},
	} {
		if got := f.countAvoidedTaints(&tc.cluster); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Clusters show their plain scores also where free capacity decides.
func TestScoresStayPlainWhereCapacityDecides(t *testing.T) {
	rooms := map[string]int64{"a": 1, "b": 9, "c": 1}
	in := Input{
		BundleUID: "b", Placement: parsePlacement(t, "{maxClusters: 1, replicaScheduling: {"+aggregated+"}"+byCPU+"}"), UseFreeCapacity: true,
		Clusters:  []Cluster{newCluster("a", withCPUs(100, 90)), newCluster("b", withCPUs(100, 20)), newCluster("c", withCPUs(100, 10))},
		Workloads: []Workload{{Key: web.Key, Replicas: 8}}, Now: now, Facts: fakeFacts{replicas: func(c *Cluster) (int64, bool) { return rooms[c.Name], true }},
	}
	d := DecidePlacement(in)
	if got := formatOutcomes(d, OutcomePlaced); got != "b" || d.Choice.RoomFor != 8 || d.Choice.LowestScore != 200_000 || d.Choice.Lowest != "b" {
		t.Errorf("placed %s, %+v", got, d.Choice)
	}
	for cluster, want := range map[string]int64{"a": 900_000, "b": 200_000, "c": 100_000} {
		if v, _ := d.FindVerdict(cluster); v.Score != want {
			t.Errorf("%s scores %d, want %d", cluster, v.Score, want)
		}
	}
	if v, _ := d.FindVerdict("a"); v.Reason != "it fits and scores 900 of 1000; 8 replicas need room, which counts beside the scores: it has room for 1, b for 8 with a score of 200" {
		t.Errorf("a: %s", v.Reason)
	}
	in.Workloads[0].Replicas = 1
	if d := DecidePlacement(in); formatOutcomes(d, OutcomePlaced) != "a" || d.Choice.RoomFor != 0 {
		t.Errorf("one replica: placed %s, room for %d", formatOutcomes(d, OutcomePlaced), d.Choice.RoomFor)
	}
}

// A bound beyond what can be counted bounds no share, also on top of what runs.
func TestUncountableCapacityBoundsNoShare(t *testing.T) {
	c := newCluster("a", statesCapacity(t, "{replicas: 9223372036854775807}"))
	in := inputFor(t, parsePlacement(t, dividedPlacement), contentOf(t, "/"+deploymentJSON(12, "")), nil, c)
	row := activeRow(c, in.Placement)
	row.Assigned = map[string]int64{in.Workloads[0].Key.String(): 5}
	in.Rows = map[string]atoll.RowSpec{"a": row}
	if got := formatShares(DecidePlacement(in), in.Workloads[0]); got != "a=12" {
		t.Errorf("shares %s", got)
	}
}

// A row dwells from when it joined or last grew.
func TestMovesWaitForTheDwell(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 1, rescheduling: {when: WhenBetter, minDwell: 1h}"+byCPU+"}")
	for _, tc := range []struct {
		name         string
		since, grown time.Duration // ago
		want         string
		recheck      time.Duration
	}{
		{"joined long ago", 2 * time.Hour, 0, "b", 0}, {"joined an hour ago", time.Hour, 0, "b", 0}, {"joined lately", 59 * time.Minute, 0, "a", time.Minute}, {"grown lately", 2 * time.Hour, 50 * time.Minute, "a", 10 * time.Minute},
	} {
		a := newCluster("a", withCPUs(100, 10))
		row := activeRow(a, p)
		if row.Since = now.Add(-tc.since).Unix(); tc.grown > 0 {
			row.GrownAt = now.Add(-tc.grown).Unix()
		}
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: []Cluster{a, newCluster("b", withCPUs(100, 90))}, Rows: map[string]atoll.RowSpec{"a": row}, Now: now})
		var recheck time.Time
		if tc.recheck > 0 {
			recheck = now.Add(tc.recheck)
		}
		if got := formatOutcomes(d, OutcomePlaced); got != tc.want || !d.RecheckAt.Equal(recheck) {
			t.Errorf("%s: placed %s, again at %s; want %s, %s", tc.name, got, d.RecheckAt, tc.want, recheck)
		}
		if v, _ := d.FindVerdict("a"); tc.want == "b" && v.Reason != "cluster b scores 900 of 1000, and this one 100" {
			t.Errorf("%s: %s", tc.name, v.Reason)
		}
	}
}
