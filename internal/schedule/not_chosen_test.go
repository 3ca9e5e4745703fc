package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// comparedPair is a comparison of the option a, which was not chosen, with the chosen option b.
func comparedPair(a, b candidateOption, rules int) *choiceComparison {
	b.clusterIndex = 1
	in := &Input{Clusters: []Cluster{newCluster("a"), newCluster("b")}, Now: now}
	pool := &candidatePool{choiceRules: &choiceRules{}, input: in, options: []candidateOption{a, b}}
	pool.problem.rules = make([]spreadRule, rules)
	return &choiceComparison{candidatePool: pool, isChosen: []bool{false, true}}
}

// An option that lost to another one hears how both compare.
func TestExplainLossTo(t *testing.T) {
	const half, more = fullScore / 2, fullScore
	for _, tc := range []struct {
		name   string
		a, b   candidateOption
		rules  int
		change func(*choiceComparison)
		want   string
	}{
		{"a lower score", candidateOption{score: half}, candidateOption{score: more}, 0, nil,
			"it fits, and its score 500 of 1000 is below the lowest that was chosen, 1000 (b)"},
		{"a lower score under a spread", candidateOption{score: half}, candidateOption{score: more}, 1, nil,
			"it fits, and its score 500 of 1000 is below the lowest in whose place the spread lets it be, 1000 (b)"},
		{"an equal score of what runs", candidateOption{score: half}, candidateOption{score: half, priority: prioRunning}, 0, nil,
			"it fits and scores 500 of 1000 as b does, which runs it already and stays"},
		{"an equal score", candidateOption{score: half}, candidateOption{score: half}, 0, nil,
			"it fits and scores 500 of 1000 as b does, which was chosen: a hash of the Bundle and the cluster breaks ties"},
		{"a higher score than what runs", candidateOption{score: more}, candidateOption{score: half, priority: prioLocked}, 0, nil,
			"it fits and scores 1000 of 1000, more than b with 500, which stays: what runs moves only when the placement is edited, unless rescheduling.when is WhenBetter"},
		{"a higher score under several rules", candidateOption{score: more}, candidateOption{score: half}, 2, nil,
			"it fits and scores 1000 of 1000, more than b with 500: with several spreadConstraints the best is not always found"},
		{"less room", candidateOption{score: more}, candidateOption{score: half}, 0, func(w *choiceComparison) {
			w.capacityScores = []int64{1, 2}
			w.input.Workloads, w.input.UseFreeCapacity = []Workload{{Key: web.Key, Replicas: 9}}, true
			w.input.Placement = parsePlacement(t, "{replicaScheduling: {"+aggregated+"}}")
			w.input.Facts = fakeFacts{replicas: func(c *Cluster) (int64, bool) { return map[string]int64{"a": 2, "b": 7}[c.Name], true }}
		}, "it fits and scores 1000 of 1000; 9 replicas need room, which counts beside the scores: it has room for 2, b for 7 with a score of 500"},
		{"as much room", candidateOption{score: half}, candidateOption{score: more}, 0, func(w *choiceComparison) { w.capacityScores = []int64{2, 2} },
			"it fits, and its score 500 of 1000 is below the lowest that was chosen, 1000 (b)"},
	} {
		w := comparedPair(tc.a, tc.b, tc.rules)
		if tc.change != nil {
			tc.change(w)
		}
		if got := w.explainLossTo(0, 1); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// A cluster that runs the Bundle stays for want of a rule, of a gain, of time, or of rest.
func TestExplainStay(t *testing.T) {
	rule := &moveRule{minDwell: time.Hour, moveCost: 100_000}
	for _, tc := range []struct {
		name string
		rule *moveRule
		gain int64
		ran  time.Duration
		want string
	}{
		{"no rule", nil, fullScore, time.Hour, "what runs moves only when the placement is edited, unless rescheduling.when is WhenBetter"},
		{"not enough", rule, 100_000, time.Hour, "it would have to be better by more than the moveCost of 100"},
		{"too soon", rule, 100_001, 20 * time.Minute, "it moves on from " + now.Add(40*time.Minute).Format(time.RFC3339) + " at the earliest, by minDwell"},
		{"the dwell ends now", rule, 100_001, time.Hour, "it moves when nothing else of the Bundle is under way"},
	} {
		w := comparedPair(candidateOption{}, candidateOption{}, 0)
		w.moveRule = tc.rule
		w.input.Rows = map[string]atoll.RowSpec{"b": {UID: "uid-b", Phase: atoll.RowActive, Since: now.Add(-tc.ran).Unix()}}
		if got := w.explainStay(tc.gain, 1); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// An option that lost to none was left out by the spread: by a rule, for those that the spread needs, or since
// the choice among several rules is not complete.
func TestExplainNotChosenWithoutRival(t *testing.T) {
	for _, tc := range []struct {
		name      string
		exclusion classExclusion
		isFull    bool
		max       int
		filter    string
		want      string
	}{
		{"a rule", classExclusion{rule: "maxSkew is 1", rival: noClass}, true, 0, FilterSpread, "it fits and scores 500 of 1000; maxSkew is 1"},
		{"all are needed", classExclusion{rival: noClass}, true, 0, FilterSpread, "it fits and scores 500 of 1000; those that were chosen are all needed for the spread"},
		{"the spread", classExclusion{rival: noClass}, false, 0, FilterSpread, "it fits and scores 500 of 1000; the spread leaves it out"},
		{"a rule and a rival", classExclusion{rule: "maxGroups is 1", rival: 1}, false, 0, FilterSpread,
			"maxGroups is 1: it fits, and its score 500 of 1000 is below the lowest in whose place the spread lets it be, 1000 (b)"},
		{"a rival for one of maxClusters", classExclusion{rival: 1}, true, 1, FilterMost,
			"it fits, and its score 500 of 1000 is below the lowest in whose place the spread lets it be, 1000 (b)"},
		{"a rival for one that the spread bounds", classExclusion{rival: 1}, true, 2, FilterSpread,
			"it fits, and its score 500 of 1000 is below the lowest in whose place the spread lets it be, 1000 (b)"},
	} {
		w := comparedPair(candidateOption{score: fullScore / 2}, candidateOption{score: fullScore}, 1)
		w.chosen.isFull, w.maxClusters, w.problem.maxChosen = tc.isFull, tc.max, 1
		w.exclusions = map[int32]*classExclusion{0: &tc.exclusion}
		if filter, got := w.explainNotChosen(0); filter != tc.filter || got != tc.want {
			t.Errorf("%s: %s: %s\nwant %s: %s", tc.name, filter, got, tc.filter, tc.want)
		}
	}
}

// The search for a rival is bounded over all options together.
func TestFindRivalIsBounded(t *testing.T) {
	w := comparedPair(candidateOption{score: 1}, candidateOption{score: 2}, 0)
	w.worstByClass, w.chosen.options = []int32{1}, []int32{1}
	for _, tc := range []struct {
		tests int
		want  int32
	}{{0, 1}, {maxSwapTests - 1, 1}, {maxSwapTests, noClass}} {
		w.swapTests = tc.tests
		if got := w.findRival(0); got != tc.want {
			t.Errorf("after %d tests: %d, want %d", tc.tests, got, tc.want)
		}
	}
}

// A reader that may not see all clusters sees no counts of clusters in groups either.
func TestRedactedGroupsHaveNoCounts(t *testing.T) {
	p := threeGroups(nil)
	d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{newCluster("a", inCloud), newCluster("b", atHome, full)}, Now: now})
	if got, want := groupText(d.Groups[0])+"; "+groupText(d.Groups[1]),
		"own: no cluster fits in it: fit 0, healthy 0, labelSelector 1, taints 1; cloud in use: fit 1, healthy 1, labelSelector 1"; got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
	redacted := d.RedactCounts()
	if got, want := groupText(redacted.Groups[0])+"; "+groupText(redacted.Groups[1]), "own: no cluster fits in it: fit 0, healthy 0; cloud in use: fit 0, healthy 0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if d.Groups[1].Fit != 1 {
		t.Error("the decision itself is changed")
	}
}

// While a minimum of the spread is unmet, rows stay and remember how they were chosen: here by no choice.
func TestUnmetMinimumKeepsWhatRowsRemember(t *testing.T) {
	c, p := newCluster("a", locatedIn("eu", "", "")), parsePlacement(t, "{spreadConstraints: [{spreadByField: region, minGroups: 2}]}")
	row := activeRow(c, parsePlacement(t, "{}"))
	d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{c}, Rows: map[string]atoll.RowSpec{"a": row}, Now: now})
	v, _ := d.FindVerdict("a")
	if v.Outcome != OutcomeKept || v.RowReason != atoll.ReasonSpreadUnmet || v.PlacementFingerprint != row.PlacementFingerprint {
		t.Errorf("%s, %s, remembers %q, want %q", v, v.RowReason, v.PlacementFingerprint, row.PlacementFingerprint)
	}
}

// There is no reserve where clusters are of more than 256 kinds: it would be as large as the fleet.
func TestNoReserveOfTooManyKinds(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 1, spreadConstraints: [{spreadByField: zone}]}")
	for _, tc := range []struct{ kinds, want int }{{maxReserveKinds, maxReserveKinds - 1}, {maxReserveKinds + 1, 0}} {
		var clusters []Cluster
		for i := range tc.kinds {
			clusters = append(clusters, newCluster(fmt.Sprintf("c%03d", i), locatedIn("", fmt.Sprint("z", i), "")))
		}
		d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: clusters, SkipExplanations: true, Now: now})
		if got := len(d.ReserveClusters); got != tc.want || d.WantsMore {
			t.Errorf("%d kinds: %d in reserve, want %d", tc.kinds, got, tc.want)
		}
	}
}

// A row that was leaving when its cluster stopped to fit leaves in a rebalance, for the reason that it had.
func TestARebalanceLeavesWhatWasLeaving(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 1}")
	a := newCluster("a", func(c *Cluster) { c.Accepted = false })
	for _, tc := range []struct {
		name, reason string
		want         atoll.Reason
		text         string
	}{
		{"with a reason", atoll.RowReason{Reason: atoll.ReasonMovedToBetter, Text: "b is better"}.String(), atoll.ReasonMovedToBetter, "b is better"},
		{"without one", "", atoll.ReasonPlacementEdited, ""},
	} {
		w := newWorld(a, newCluster("b"))
		row, other := activeRow(a, p), activeRow(w.clusters["b"], p)
		row.Phase, row.Reason = atoll.RowLeaving, tc.reason
		w.rows["a"], w.rows["b"] = row, other
		v, _ := w.decideRebalance(p, now).FindVerdict("a")
		if v.Outcome != OutcomeLeaves || v.Filter != FilterRebalance || v.RowReason != tc.want || strings.TrimSpace(v.Reason) != tc.text {
			t.Errorf("%s: %s, %s", tc.name, v, v.RowReason)
		}
	}
}
