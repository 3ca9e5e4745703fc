package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// inZones states several zones, through the API object.
func inZones(zones ...string) func(*Cluster) {
	return func(c *Cluster) {
		view := atoll.ClusterViewOf(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Zones: zones}})
		c.Zone, c.Zones = view.Zone, view.Zones
	}
}

// wideZones are clusters of which some cover several zones. Scores fall in this order.
func wideZones() *simulatedFleet {
	return newWorld(
		newCluster("ab", inZones("a", "b"), withCPUs(100, 90)), newCluster("a1", inZones("a"), withCPUs(100, 80)),
		newCluster("bc", inZones("b", "c"), withCPUs(100, 70)), newCluster("c1", locatedIn("", "c", ""), withCPUs(100, 60)),
		newCluster("d1", inZones("d"), withCPUs(100, 50)), newCluster("none", withCPUs(100, 40)),
	)
}

// A cluster with several zones is in the group of each: it covers a minimum, uses up a maximum and counts for a skew in
// all of them. Filters match any of them.
func TestClustersWithSeveralZones(t *testing.T) {
	for _, tc := range []struct{ name, placement, want string }{
		{"a minimum is covered by few clusters", "{maxClusters: 2, spreadConstraints: [{spreadByField: zone, minGroups: 4}]" + byCPU + "}", ""},
		{"a minimum of three by two", "{maxClusters: 2, spreadConstraints: [{spreadByField: zone, minGroups: 3}]" + byCPU + "}", "ab bc"},
		{"a minimum of four by three", "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 4}]" + byCPU + "}", "ab bc d1"},
		{"a maximum counts each zone", "{spreadConstraints: [{spreadByField: zone, maxGroups: 2}]" + byCPU + "}", "a1 ab"},
		{"one zone takes no cluster with two", "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]" + byCPU + "}", "a1"},
		{"a skew", "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, maxSkew: 1}]" + byCPU + "}", "ab bc d1"},
		{"one without a zone is in none", "{spreadConstraints: [{spreadByField: zone}]}", "a1 ab bc c1 d1"},
		{"any zone matches", "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [b, x]}]}}}", "ab bc"},
		{"none may match", "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [b, x]}]}}}", "a1 c1 d1 none"},
		{"some zone is there", "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: Exists}]}}}", "a1 ab bc c1 d1"},
		{"no zone is there", "{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: DoesNotExist}]}}}", "none"},
		{"zones in an expression", `{celSelector: "'c' in cluster.zones || cluster.zone == 'd'"}`, "bc c1 d1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := formatOutcomes(wideZones().decideAndApply(parsePlacement(t, tc.placement)), OutcomePlaced); got != tc.want {
				t.Errorf("chosen: %s, want %s", got, tc.want)
			}
		})
	}
}

// Explain counts a cluster in each of its zones, and names the zones of one that is left out.
func TestSeveralZonesAreExplained(t *testing.T) {
	decide := func(w *simulatedFleet, placement string) Decision {
		return DecidePlacement(w.buildInput(parsePlacement(t, placement)))
	}
	d := decide(wideZones(), "{spreadConstraints: [{spreadByField: zone, maxGroups: 2}]"+byCPU+"}")
	var got []string
	for _, g := range d.Choice.Spread[0].Groups {
		got = append(got, fmt.Sprintf("%s %d of %d", g.Name, g.Chosen, g.Fit))
	}
	if text, want := strings.Join(got, ", "), "a 2 of 2, b 1 of 2, c 0 of 2, d 0 of 1"; text != want {
		t.Errorf("groups %s, want %s", text, want)
	}
	v, _ := d.FindVerdict("bc")
	if want := "maxGroups of spreadConstraints[0] is 2, and zone c has none of those that were chosen (a, b)"; v.Outcome != OutcomeOut || !strings.Contains(v.Reason, want) {
		t.Errorf("bc: %s %q, want %q", v.Outcome, v.Reason, want)
	}
	pairs := newWorld(newCluster("ab", inZones("a", "b"), withCPUs(100, 90)), newCluster("cd", inZones("c", "d"), withCPUs(100, 70)))
	d = decide(pairs, "{spreadConstraints: [{spreadByField: zone, maxGroups: 3}]"+byCPU+"}")
	if v, _ = d.FindVerdict("cd"); !strings.Contains(v.Reason, "maxGroups of spreadConstraints[0] is 3, and the cluster adds 2 groups to the 2 of those that were chosen") {
		t.Errorf("cd: %q", v.Reason)
	}
	d = decide(pairs, "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]"+byCPU+"}")
	if v, _ = d.FindVerdict("ab"); d.UnmetSpread == "" || v.Reason != d.UnmetSpread || !strings.Contains(v.Reason, "more groups than maxGroups") {
		t.Errorf("where no cluster can be chosen: %q, unmet %q", v.Reason, d.UnmetSpread)
	}
	if _, reason := matchesZone("a", newCluster("bc", inZones("b", "c"))); reason != `field zone="b,c" is not In ["a"]` {
		t.Errorf("the selector says %q", reason)
	}
}

// matchesZone judges a cluster by a selector of one zone.
func matchesZone(zone string, c Cluster) (Outcome, string) {
	p := v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{FieldSelector: &v1alpha1.FieldSelector{
		MatchExpressions: []v1alpha1.FieldRequirement{{Key: "zone", Operator: "In", Values: []string{zone}}},
	}}}
	v := DecidePlacement(Input{Placement: p, Clusters: []Cluster{c}, Now: now}).Verdicts[0]
	return v.Outcome, v.Reason
}

// A Bundle is near a cluster that shares one of several zones with it, and counts once.
func TestBundlesNearSeveralZones(t *testing.T) {
	at := func(zones ...string) atoll.ClusterView {
		return atoll.ClusterViewOf(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Zones: zones}})
	}
	near := [][]BundleClusters{{{at("a", "b")}, {at("b"), at("c")}, {at("d")}, {at("e", "f")}}}
	p := parsePlacement(t, "{maxClusters: 1, scores: [{name: Affinity, bundles: {names: [x], within: zone}}]}")
	for text, want := range map[string]int64{"a,b": 500, "b": 500, "c,d": 500, "f,x": 250, "a,b,c,d,e": 1000, "x,y": 0} {
		d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{newCluster("one", inZones(strings.Split(text, ",")...))}, Now: now, NearbyBundles: near})
		if got := toThousand(d.Verdicts[0].Score); got != want {
			t.Errorf("zones %s score %d, want %d", text, got, want)
		}
	}
}

// A lost cluster that would use more zones than the bound leaves keeps no copy beyond it.
func TestTheBoundOfLostCopiesCountsEachZone(t *testing.T) {
	bound := groupBound{constraint: &v1alpha1.SpreadConstraint{SpreadByField: v1alpha1.SpreadByZone}, most: 3, used: map[string]bool{}}
	one := newCluster("one", inZones("a", "b"))
	if bound.isExceededBy(&one) {
		t.Error("two of three zones are too many")
	}
	bound.useGroupsOf(&one)
	for zones, want := range map[string]bool{"a": false, "a,b": false, "b,c": false, "c": false, "c,d": true, "": false} {
		c := newCluster("other", inZones(strings.FieldsFunc(zones, func(r rune) bool { return r == ',' })...))
		if got := bound.isExceededBy(&c); got != want {
			t.Errorf("zones %q: exceeded %t", zones, got)
		}
	}
}

// randomSetProblem is a random problem in which options may be in several groups of a rule.
func randomSetProblem(r *rand.Rand, rules, most int) *choiceProblem {
	p := randomProblem(r, rules, most)
	for i := range p.rules {
		u := &p.rules[i]
		for at := range u.groupOf {
			if u.groups < 2 || r.IntN(3) > 0 {
				continue
			}
			var set []int32
			for _, g := range r.Perm(u.groups)[:2+r.IntN(min(u.groups, 3)-1)] {
				set = append(set, int32(g))
			}
			slices.Sort(set)
			known := slices.IndexFunc(u.sets, func(s []int32) bool { return slices.Equal(s, set) })
			if known < 0 {
				known, u.sets = len(u.sets), append(u.sets, set)
			}
			u.groupOf[at] = firstSet - int32(known)
		}
		// Every group has an option of its own, so that none is empty.
		for g := range u.groups {
			p.options = append(p.options, candidateOption{clusterIndex: int32(len(p.options)), rank: r.Uint64(), score: r.Int64N(6)})
			for j := range p.rules {
				if j == i {
					p.rules[j].groupOf = append(p.rules[j].groupOf, int32(g))
				} else {
					p.rules[j].groupOf = append(p.rules[j].groupOf, noGroup)
				}
			}
		}
	}
	return p
}

func TestFewOptionsInSeveralGroupsAreSolvedAsWellAsCanBe(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	solved := 0
	for solved < 1500 {
		p := randomSetProblem(r, 1, 6)
		if !p.hasSets() || len(p.options) > maxExhaustiveOptions {
			continue
		}
		solved++
		chosen, short := p.chooseOptions()
		got, want := worthOf(t, p, chosen), bestOf(p)
		if got != want {
			t.Fatalf("%s\nchosen %v is worth %v, and %v can be had", formatProblem(p), chosen, got, want)
		}
		if (len(short) > 0) != (want[0] < 0) {
			t.Fatalf("%s\nshort of %v where the best is %v", formatProblem(p), short, want)
		}
	}
}

// With many options nothing is broken that must hold, and what is found is mostly the best.
func TestOptionsInSeveralGroupsKeepTheRules(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	runs, best, short := 0, 0, 0
	for runs < 1500 {
		p := randomSetProblem(r, 1+runs%2, 5)
		if !p.hasSets() || len(p.options) > 12 {
			continue
		}
		runs++
		chosen, _ := newSolver(p).searchGreedily()
		got, want := worthOf(t, p, chosen), bestOf(p)
		if got == want {
			best++
		}
		if got[0] < want[0] {
			short++
		}
	}
	t.Logf("the best in %d of %d, groups missing that could be had in %d", best, runs, short)
	if best < runs*90/100 || short > runs/50 {
		t.Errorf("the best in %d of %d, groups missing that could be had in %d", best, runs, short)
	}
}

// A set is one class, and equal sets have one number.
func TestSetsAreNumberedOnce(t *testing.T) {
	p := newCandidatePool(CompilePlacement(parsePlacement(t, "{spreadConstraints: [{spreadByField: zone}]}")), &Input{})
	first := p.numberGroups(0, []string{"a", "b"})
	if got := p.numberGroups(0, []string{"b", "a"}); got != first || first != firstSet {
		t.Errorf("the same set has the numbers %d and %d", first, got)
	}
	if got := p.numberGroups(0, []string{"b", "c"}); got != firstSet-1 || len(p.groupIDs[0]) != 3 {
		t.Errorf("another set has the number %d of %d groups", got, len(p.groupIDs[0]))
	}
	if p.numberGroups(0, nil) != noGroup || p.numberGroups(0, []string{"c"}) != 2 {
		t.Error("a single group has no number of its own")
	}
}
