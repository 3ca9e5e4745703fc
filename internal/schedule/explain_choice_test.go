package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

func groupText(g AffinityGroup) string {
	s := g.Name
	if g.InUse {
		s += " in use"
	} else {
		s += ": " + g.Why
	}
	s += fmt.Sprintf(": fit %d, healthy %d", g.Fit, g.Healthy)
	for _, r := range g.Refused {
		s += fmt.Sprintf(", %s %d", r.Filter, r.Clusters)
	}
	if g.Again != nil {
		s += ", again " + g.Again.Sub(now).String()
	}
	return s
}

// Each cluster that could be chosen says what its score is made of; parts and taints give
// the score.
func TestRatings(t *testing.T) {
	w := newWorld(newCluster("a", withCPUs(100, 40), withPods(50, 50)), newCluster("b", withCPUs(100, 80), withTaint("slow", "", "PreferNoSchedule", 0)), newCluster("c"))
	w.load = map[string]int64{"a": 50}
	p := parsePlacement(t, "{maxClusters: 1, scores: [{name: Balance, weight: 3}, {name: ResourceAvailable, resource: cpu}, {name: Property, weight: 2, property: {name: price, from: '10', to: '0'}}]}")
	a := w.clusters["a"]
	a.Properties = map[string]string{"price": "5"}
	w.clusters["a"] = a
	d := DecidePlacement(w.buildInput(p))
	if got := fmt.Sprint(d.Choice.Scores); got != "[{Balance 3} {ResourceAvailable cpu 1} {Property price 2}]" {
		t.Errorf("by %s", got)
	}
	for name, want := range map[string]string{
		// Balance: 50 pods for 50 is 500; 40 of 100 free; 5 is half of the way.
		"a": "[{500000 50 pods assigned, 50 fit} {400000 40 of 100 free} {500000 5}] 0",
		"b": "[{1000000 0 pods assigned, 110 fit} {800000 80 of 100 free} {0 no such property that may be read}] 1",
		"c": "[{1000000 0 pods assigned, 110 fit} {0 not reported} {0 no such property that may be read}] 0",
	} {
		v, _ := d.FindVerdict(name)
		if got := fmt.Sprint(v.ScoreBreakdown.Components, v.ScoreBreakdown.AvoidedTaints); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		sum := (3*v.ScoreBreakdown.Components[0].Points + v.ScoreBreakdown.Components[1].Points + 2*v.ScoreBreakdown.Components[2].Points) / 6
		if sum -= 200_000 * int64(v.ScoreBreakdown.AvoidedTaints); sum != v.Score {
			t.Errorf("%s: its parts give %d, and it scores %d", name, sum, v.Score)
		}
	}
	in := w.buildInput(p)
	in.SkipExplanations = true
	if d := DecidePlacement(in); d.Choice != nil || d.Groups != nil {
		t.Error("a terse decision explains itself")
	} else if v, _ := d.FindVerdict(d.Verdicts[0].Cluster); v.ScoreBreakdown != nil {
		t.Error("a terse decision says what scores are made of")
	}
}

// Why a cluster that fits was not chosen.
func TestWhyNot(t *testing.T) {
	for _, tc := range []struct {
		name, placement string
		world           func() *simulatedFleet
		runs            string // clusters that run the Bundle already
		of, filter      string
		want            string
	}{
		{"below", "{maxClusters: 2" + byCPU + "}", sixZones, "", "us-c1", FilterMost,
			"it fits, and its score 450 of 1000 is below the lowest that was chosen, 950 (eu-a2)"},
		{"a tie", "{maxClusters: 2}", func() *simulatedFleet { return newWorld(newCluster("a"), newCluster("b"), newCluster("c")) }, "", "", FilterMost,
			"as * does, which was chosen: a hash of the Bundle and the cluster breaks ties"},
		{"by less than is shown", "{maxClusters: 1" + byCPU + "}", func() *simulatedFleet {
			return newWorld(newCluster("a", withCPUs(65_536, 32_769)), newCluster("b", withCPUs(65_536, 32_770)))
		},
			"", "a", FilterMost, "its score 500.015 of 1000 is below the lowest that was chosen, 500.030 (b)"},
		{"what runs stays", "{maxClusters: 1" + byCPU + "}", sixZones, "us-c1", "eu-a1", FilterMost,
			"scores 1000 of 1000, more than us-c1 with 450, which stays: what runs moves only when the placement is edited, unless rescheduling.when is WhenBetter"},
		{"what runs is worth its moveCost", "{maxClusters: 1, rescheduling: {when: WhenBetter, moveCost: 600}" + byCPU + "}", sixZones, "us-c1", "eu-a1", FilterMost,
			"which stays: it would have to be better by more than the moveCost of 600"},
		{"what runs dwells", "{maxClusters: 1, rescheduling: {when: WhenBetter, minDwell: 1h}" + byCPU + "}", sixZones, "us-c1", "eu-a1", FilterMost,
			"which stays: it moves on from " + now.Add(30*time.Minute).UTC().Format(time.RFC3339) + " at the earliest, by minDwell"},
		{"maxGroups", "{spreadConstraints: [{spreadByField: region, maxGroups: 1}]" + byCPU + "}", sixZones, "", "us-a1", FilterSpread,
			"it fits and scores 650 of 1000; maxGroups of spreadConstraints[0] is 1, and region us has none of those that were chosen (eu)"},
		{"maxGroups, and what runs stays", "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]" + byCPU + "}", func() *simulatedFleet {
			return newWorld(newCluster("a", locatedIn("eu", "x", "p"), withCPUs(100, 90)), newCluster("b", locatedIn("eu", "y", "p"), withCPUs(100, 10)))
		}, "b", "a", FilterSpread,
			"maxGroups of spreadConstraints[0] is 1, and zone x has none of those that were chosen (y): it fits and scores 900 of 1000, more than b with 100, which stays: what runs moves only when the placement is edited, unless rescheduling.when is WhenBetter"},
		{"maxSkew", "{spreadConstraints: [{spreadByField: zone, maxSkew: 1}]" + byCPU + "}", sixZones, "", "eu-a3", FilterSpread,
			"maxSkew of spreadConstraints[0] is 1: zone eu-a has 2, and another zone that counts has 1"},
		{"minGroups needs all", "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]" + byCPU + "}", sixZones, "", "us-c1", FilterMost,
			"its score 450 of 1000 is below the lowest in whose place the spread lets it be, 650 (us-a1)"},
		{"minGroups and another group", "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]" + byCPU + "}", sixZones, "", "eu-a2", FilterMost,
			"its score 950 of 1000 is below the lowest in whose place the spread lets it be, 1000 (eu-a1)"},
		{"spread by cluster", "{spreadConstraints: [{spreadByField: cluster, maxGroups: 2}]" + byCPU + "}", sixZones, "", "us-c1", FilterSpread,
			"below the lowest that was chosen, 950 (eu-a2)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p := tc.world(), parsePlacement(t, tc.placement)
			if tc.runs != "" {
				c := w.clusters[tc.runs]
				w.rows[tc.runs] = atoll.RowSpec{UID: c.UID, Phase: atoll.RowActive, Since: now.Add(-30 * time.Minute).Unix(), PlacementFingerprint: CompilePlacement(p).placementFingerprint}
			}
			d := DecidePlacement(w.buildInput(p))
			found := false
			for _, v := range d.Verdicts {
				if v.Outcome != OutcomeOut || tc.of != "" && v.Cluster != tc.of {
					continue
				}
				found = true
				reason := v.Reason
				for _, chosen := range strings.Fields(formatOutcomes(d, OutcomePlaced)) {
					if tc.of == "" {
						reason = strings.ReplaceAll(reason, " as "+chosen+" does", " as * does")
					}
				}
				if v.Filter != tc.filter || !strings.Contains(reason, tc.want) {
					t.Errorf("%s: %s: %s, want %s: %s", v.Cluster, v.Filter, reason, tc.filter, tc.want)
				}
			}
			if !found {
				t.Errorf("nothing is left out: %s", formatOutcomes(d, OutcomePlaced))
			}
		})
	}
}

// Clusters in the same groups share one search for the cluster whose place they could take. So each cluster
// of a large fleet is compared with a chosen one.
func TestEachClusterOfALargeFleetIsCompared(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: region, minGroups: 3}]}")
	d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: fleetOf(4000), Now: now})
	compared, other := 0, ""
	for _, v := range d.Verdicts {
		switch {
		case strings.Contains(v.Reason, "which was chosen: a hash of the Bundle and the cluster breaks ties"):
			compared++
		case strings.HasPrefix(v.Reason, "it fits"):
			other = v.String()
		}
	}
	// 3636 clusters have no taint, and three of them are chosen.
	if compared != 3633 || other != "" {
		t.Errorf("%d of 3633 clusters are compared with a chosen one, and one says %q", compared, other)
	}
}

// Groups of a spread are counted, and one without a chosen cluster says why.
func TestSpreadGroupsSayWhy(t *testing.T) {
	w := sixZones()
	w.clusters["ap"] = newCluster("ap", locatedIn("ap", "ap-a", ""), func(c *Cluster) { c.Accepted = false })
	d := DecidePlacement(w.buildInput(parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: region, minGroups: 2}, {spreadByField: zone, maxGroups: 2}]"+byCPU+"}")))
	if c := d.Choice; c.Fit != 12 || c.Chosen != 3 || c.MaxClusters != 3 || c.Lowest != "us-a1" || c.LowestScore != 650_000 || len(c.Spread) != 2 {
		t.Fatalf("%+v", c)
	}
	var got []string
	for _, s := range d.Choice.Spread {
		for _, g := range s.Groups {
			got = append(got, fmt.Sprintf("%s %s: %d of %d of %d: %s", s.SpreadField, g.Name, g.Chosen, g.Fit, g.Clusters, g.Why))
		}
	}
	for i, want := range []string{
		"region ap: 0 of 0 of 1: none of its clusters fits",
		"region eu: 2 of 7 of 7: ",
		"region us: 1 of 5 of 5: ",
		"zone ap-a: 0 of 0 of 1: none of its clusters fits",
		"zone eu-a: 2 of 3 of 3: ",
		"zone eu-b: 0 of 2 of 2: its best is eu-b1: it fits",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("%q, want %q", got[min(i, len(got)-1)], want)
		}
	}
	hidden := d.RedactCounts()
	if hidden.Choice.Fit != 0 || hidden.Choice.Chosen != 3 {
		t.Errorf("redacted counts still show %+v", hidden.Choice)
	}
	for _, s := range hidden.Choice.Spread {
		for _, g := range s.Groups {
			if g.Chosen == 0 || g.Clusters+g.Fit > 0 {
				t.Errorf("redacted counts still show %+v", g)
			}
		}
	}
	if d.Choice.Fit != 12 || len(d.Choice.Spread[0].Groups) != 3 {
		t.Error("the decision itself is changed")
	}
}

// A decision with explanations is the same as one without. Every cluster that is left out
// has a reason, and a score that is described as lower than another is lower.
func TestExplainingDecidesTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for range 400 {
		w := newWorld()
		for i := range 3 + r.IntN(14) {
			name := fmt.Sprint("c", i)
			zone := string(rune('a' + r.IntN(4)))
			w.clusters[name] = newCluster(name, locatedIn(map[bool]string{true: "x", false: "y"}[zone < "c"], zone, ""), withCPUs(100, int64(r.IntN(100))))
		}
		text := fmt.Sprintf("{maxClusters: %d, spreadConstraints: [{spreadByField: zone, minGroups: %d, maxSkew: %d}, {spreadByField: region, maxGroups: %d}]%s}",
			1+r.IntN(6), 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(2), byCPU)
		p := parsePlacement(t, text)
		in := w.buildInput(p)
		said := DecidePlacement(in)
		in.SkipExplanations = true
		if a, b := formatOutcomes(said, OutcomePlaced), formatOutcomes(DecidePlacement(in), OutcomePlaced); a != b {
			t.Fatalf("%s: explained %s, terse %s", text, a, b)
		}
		for _, v := range said.Verdicts {
			if v.Outcome == OutcomeOut && (v.Reason == "" || v.Filter == "") {
				t.Errorf("%s: %s is left out without a word", text, v.Cluster)
			}
			if _, after, ok := strings.Cut(v.Reason, " is below "); ok {
				for _, o := range said.Verdicts {
					if strings.HasSuffix(after, "("+o.Cluster+")") && (o.Score <= v.Score || o.Outcome != OutcomePlaced) {
						t.Errorf("%s: %s with %d: %s (%d, %s)", text, v.Cluster, v.Score, v.Reason, o.Score, o.Outcome)
					}
				}
			}
		}
	}
}
