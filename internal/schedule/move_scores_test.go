package schedule

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/atoll"
)

// The facts about an unused fleet are zeros, and all of it is connected.
func TestNoFactsAreOfAnUnusedFleet(t *testing.T) {
	var facts NoFacts
	c := newCluster("a")
	if pods, rating := facts.AssignedPods(&c), facts.RatingOf(&c, "price"); pods != 0 || rating != 0 {
		t.Errorf("%d pods, rating %d", pods, rating)
	}
	if n, known := facts.FreeReplicas(&c); n != 0 || known {
		t.Errorf("%d replicas fit, known %t", n, known)
	}
	if others, own := facts.UsageOf(&c); others != nil || own != nil {
		t.Errorf("others use %v, this one %v", others, own)
	}
	if got := facts.ConnectionOf(&c); got != Connected {
		t.Errorf("connection %d", got)
	}
}

// A row may move where another cluster was better by more than the cost, or a cluster comes to be better than the
// lowest chosen one by more than the cost.
func TestScoreForMove(t *testing.T) {
	f := CompilePlacement(parsePlacement(t, "{maxClusters: 1, rescheduling: {when: WhenBetter, moveCost: 100}"+byCPU+"}"))
	row := atoll.RowSpec{Phase: atoll.RowActive}
	for _, tc := range []struct {
		name       string
		free       int64 // of 100
		row        *atoll.RowSpec
		thresholds *ScoreThresholds
		moves      bool
		score      int64
	}{
		{"the chosen one gets worse", 50, &row, &ScoreThresholds{HighestOther: 600_001}, true, 500_000},
		{"by no more than the cost", 50, &row, &ScoreThresholds{HighestOther: 600_000}, false, 500_000},
		{"another one gets better", 80, nil, &ScoreThresholds{LowestChosen: 699_999}, true, 800_000},
		{"by no more than the cost of another", 80, nil, &ScoreThresholds{LowestChosen: 700_000}, false, 800_000},
		{"the Bundle may not move now", 80, nil, nil, false, 0},
	} {
		c := newCluster("a", withCPUs(100, tc.free))
		moves, score := f.ScoreForMove(&c, tc.row, &Input{}, tc.thresholds)
		if moves != tc.moves || score != tc.score || f.CanMove(&c, tc.row, &Input{}, tc.thresholds) != tc.moves {
			t.Errorf("%s: moves %t, score %d; want %t, %d", tc.name, moves, score, tc.moves, tc.score)
		}
	}
	c := newCluster("a", withCPUs(100, 90))
	for name, text := range map[string]string{"no choice": "{}", "no rescheduling": "{maxClusters: 1" + byCPU + "}"} {
		if moves, score := CompilePlacement(parsePlacement(t, text)).ScoreForMove(&c, nil, &Input{}, &ScoreThresholds{}); moves || score != 0 {
			t.Errorf("%s: moves %t, score %d", name, moves, score)
		}
	}
}

// The clusters of other Bundles are not known for a single cluster. A newcomer then counts as the best it may be,
// and a running one as the worst, so that no move is missed.
func TestScoreForMoveAssumesTheNearestBundles(t *testing.T) {
	c, row := newCluster("a"), atoll.RowSpec{Phase: atoll.RowActive}
	for _, name := range []string{"Affinity", "AntiAffinity"} {
		f := CompilePlacement(parsePlacement(t, "{maxClusters: 1, rescheduling: {when: WhenBetter}, scores: [{name: "+name+", bundles: {names: [x]}}]}"))
		if _, score := f.ScoreForMove(&c, nil, &Input{}, &ScoreThresholds{}); score != fullScore {
			t.Errorf("%s: a newcomer scores %d", name, score)
		}
		if _, score := f.ScoreForMove(&c, &row, &Input{}, &ScoreThresholds{}); score != 0 {
			t.Errorf("%s: what runs scores %d", name, score)
		}
	}
}

// The score Steady is full where the Bundle runs, and nothing elsewhere.
func TestScoreForMoveOfSteadyBundles(t *testing.T) {
	f := CompilePlacement(parsePlacement(t, "{maxClusters: 1, rescheduling: {when: WhenBetter}, scores: [{name: Steady}]}"))
	c := newCluster("a")
	if _, score := f.ScoreForMove(&c, &atoll.RowSpec{Phase: atoll.RowActive}, &Input{}, &ScoreThresholds{}); score != fullScore {
		t.Errorf("where it runs: %d", score)
	}
	if _, score := f.ScoreForMove(&c, nil, &Input{}, &ScoreThresholds{}); score != 0 {
		t.Errorf("elsewhere: %d", score)
	}
}

// The load of a cluster that may be moved to includes no pods of the Bundle itself.
func TestScoreForMoveGoesByPodLoad(t *testing.T) {
	f := CompilePlacement(parsePlacement(t, "{maxClusters: 1, rescheduling: {when: WhenBetter}}"))
	c, in := newCluster("a", withPods(100, 100)), &Input{Facts: fakeFacts{pods: func(*Cluster) int64 { return 300 }}}
	if _, score := f.ScoreForMove(&c, nil, in, &ScoreThresholds{}); score != 250_000 {
		t.Errorf("300 pods for 100: %d", score)
	}
	row := atoll.RowSpec{Phase: atoll.RowActive, RequestedPods: 200}
	if _, score := f.ScoreForMove(&c, &row, in, &ScoreThresholds{}); score != 500_000 {
		t.Errorf("200 of them its own: %d", score)
	}
}

// The pods of a row are its own while it runs, and at least one.
func TestSubtractOwnPods(t *testing.T) {
	for _, tc := range []struct {
		name      string
		load      int64
		row       *atoll.RowSpec
		rest, own int64
	}{
		{"no row", 5, nil, 5, 0},
		{"a running row", 5, &atoll.RowSpec{Phase: atoll.RowActive, RequestedPods: 3}, 2, 3},
		{"a row without a phase", 5, &atoll.RowSpec{RequestedPods: 3}, 2, 3},
		{"a row that states no pods", 5, &atoll.RowSpec{Phase: atoll.RowActive}, 4, 1},
		{"a row that leaves", 5, &atoll.RowSpec{Phase: atoll.RowLeaving, RequestedPods: 3}, 5, 0},
		{"more pods than were counted", 2, &atoll.RowSpec{Phase: atoll.RowActive, RequestedPods: 3}, 0, 3},
	} {
		if rest, own := subtractOwnPods(tc.load, tc.row); rest != tc.rest || own != tc.own {
			t.Errorf("%s: %d and %d, want %d and %d", tc.name, rest, own, tc.rest, tc.own)
		}
	}
}

// People read memory in Gi, and all else in its unit, with one digit.
func TestAmountsAreShownInTheirUnits(t *testing.T) {
	for _, tc := range []struct {
		resource    string
		full        string
		total, free int64 // in units
		want        string
	}{
		{"cpu", "", 8, 3, "3 of 8 free"},
		{"memory", "", 8 << 30, 5<<30 + 1<<29, "5.5Gi of 8Gi free"},
		{"ephemeral-storage", "", 10 << 30, 1 << 30, "1Gi of 10Gi free"},
		{"hugepages-2Mi", "", 1 << 30, 1 << 29, "0.5Gi of 1Gi free"},
		{"nvidia.com/gpu", "", 4, 4, "4 of 4 free"},
		{"memory", ", full: 4Gi", 8 << 30, 2 << 30, "2Gi of 4Gi free"},
	} {
		c := newCluster("a", func(c *Cluster) {
			c.Resources = []ResourceAmount{{Name: corev1.ResourceName(tc.resource), Total: tc.total * 1000, Free: tc.free * 1000}}
		})
		p := parsePlacement(t, "{maxClusters: 1, scores: [{name: ResourceAvailable, resource: "+tc.resource+tc.full+"}]}")
		d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{c}, Now: now})
		if got := d.Verdicts[0].ScoreBreakdown.Components[0].Inputs; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.resource, got, tc.want)
		}
	}
}

// Bundles that a score selects are counted for this score alone, and none where the caller has none.
func TestNearbyBundlesOfEachScore(t *testing.T) {
	s := compileScores(parsePlacement(t, "{scores: [{name: Steady}, {name: Affinity, bundles: {names: [x]}}, {name: AntiAffinity, bundles: {names: [y]}}]}").Scores)
	a := newCluster("a")
	groups := s.countNearbyGroups([][]BundleClusters{nil, {{a.ClusterView}, {}}})
	if len(groups) != 3 || groups[1].bundles != 2 || groups[1].groups["a"] != 1 || groups[2].bundles != 0 {
		t.Errorf("%+v", groups)
	}
	if got := s.rules[1].scoreAffinity(&a, clusterFacts{nearby: groups}); got != fullScore/2 {
		t.Errorf("one of two is near: %d", got)
	}
	if got := s.rules[2].scoreAntiAffinity(&a, clusterFacts{nearby: groups}); got != fullScore {
		t.Errorf("none is near: %d", got)
	}
	if steady := compileScores(parsePlacement(t, "{scores: [{name: Steady}]}").Scores); steady.countNearbyGroups(nil) != nil {
		t.Error("a score without Bundles counts some")
	}
}
