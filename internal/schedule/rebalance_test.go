package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// decideRebalance decides for a Bundle that was to be placed from scratch at a time, and does
// what is decided.
func (w *simulatedFleet) decideRebalance(p v1alpha1.PlacementSpec, at time.Time, away ...string) Decision {
	in := w.buildInput(p)
	in.Filter = PlacementTerms{Placement: p, Rebalance: at}.CompilePlacement()
	in.Facts = fakeFacts{
		pods:      func(c *Cluster) int64 { return w.load[c.Name] },
		connected: func(c *Cluster) bool { return !strings.Contains(strings.Join(away, " "), c.Name) },
	}
	d := DecidePlacement(in)
	for _, v := range d.Verdicts {
		row, has := w.rows[v.Cluster]
		switch v.Outcome {
		case OutcomePlaced, OutcomeKept:
			row.UID, row.Phase, row.PlacementFingerprint = v.UID, atoll.RowActive, v.PlacementFingerprint
			w.rows[v.Cluster] = row
		case OutcomeLeaves:
			if row.Phase = atoll.RowLeaving; has {
				w.rows[v.Cluster] = row
			}
		}
	}
	return d
}

// setFreeCPUs sets what a cluster has left of 100 CPUs.
func (w *simulatedFleet) setFreeCPUs(name string, n int64) {
	w.clusters[name] = newCluster(name, withCPUs(100, n))
}

// A cluster's own rows of the Bundle do not count against it, nor for it: a row's pods, or 1 if it
// states none.
func TestARebalanceDoesNotCountItsOwnPods(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 1}") // by Balance
	for name, tc := range map[string]struct {
		pods, a, b int64
		want       string
	}{
		"without its own there are fewer": {20, 25, 10, "a"},
		"without its own there are more":  {20, 31, 10, "b"},
		"it states none":                  {0, 11, 11, "a"},
	} {
		w := newWorld(newCluster("a"))
		w.decideAndApply(p)
		row := w.rows["a"]
		row.RequestedPods = tc.pods
		w.rows["a"] = row
		w.clusters["b"] = newCluster("b")
		w.load["a"], w.load["b"] = tc.a, tc.b
		if d := w.decideRebalance(p, now); formatOutcomes(d, OutcomePlaced) != tc.want {
			t.Errorf("%s: %s", name, formatGroupDecision(d))
		}
	}
}

// A rebalance chooses by scores alone, once: afterwards what was chosen stays, whatever
// scores come to and however often the same is asked for.
func TestARebalanceChoosesFromScratchOnce(t *testing.T) {
	for _, placementText := range []string{
		"{maxClusters: 1" + byCPU + "}",
		"{maxClusters: 1, rescheduling: {when: WhenBetter, minDwell: 24h, moveCost: 1000}" + byCPU + "}",
		"{maxClusters: 1, scores: [{name: ResourceAvailable, resource: cpu}, {name: Steady, weight: 100}]}",
	} {
		p := parsePlacement(t, placementText)
		w := newWorld(newCluster("a", withCPUs(100, 50)), newCluster("b", withCPUs(100, 40)))
		w.decideAndApply(p)
		w.setFreeCPUs("b", 100)
		if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != "a" {
			t.Fatalf("%s: without a rebalance it went to %s", placementText, formatOutcomes(d, OutcomePlaced))
		}
		d := w.decideRebalance(p, now)
		if formatOutcomes(d, OutcomePlaced) != "b" || formatOutcomes(d, OutcomeLeaves) != "a" {
			t.Fatalf("%s: %s", placementText, formatGroupDecision(d))
		}
		v, _ := d.FindVerdict("a")
		if v.RowReason != atoll.ReasonRebalanced || v.Filter != FilterRebalance || v.Reason != "others were chosen from scratch; it scores 500 of 1000" && !strings.Contains(placementText, "Steady") {
			t.Errorf("%s: a %s, %s", placementText, v, v.RowReason)
		}
		w.setFreeCPUs("a", 100)
		w.setFreeCPUs("b", 1)
		if d := w.decideRebalance(p, now); formatOutcomes(d, OutcomePlaced) != "b" || formatOutcomes(d, OutcomeLeaves) != "a" {
			t.Errorf("%s: under way, it turned round: %s", placementText, formatGroupDecision(d))
		}
		w.removeLeavingRows()
		if d := w.decideRebalance(p, now); formatOutcomes(d, OutcomePlaced) != "b" {
			t.Errorf("%s: the same rebalance moved it again: %s", placementText, formatGroupDecision(d))
		}
		if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != "b" {
			t.Errorf("%s: without the annotation it moved: %s", placementText, formatGroupDecision(d))
		}
		if d := w.decideRebalance(p, now.Add(-time.Minute)); formatOutcomes(d, OutcomePlaced) != "b" {
			t.Errorf("%s: an older rebalance moved it: %s", placementText, formatGroupDecision(d))
		}
		if d := w.decideRebalance(p, now.Add(time.Millisecond)); formatOutcomes(d, OutcomePlaced) != "a" {
			t.Errorf("%s: a later rebalance did not: %s", placementText, formatGroupDecision(d))
		}
	}
}

// Nothing moves without a better place: neither for the tie of equal scores, nor because the
// Bundle itself is the surplus of its cluster.
func TestARebalanceMovesNothingInVain(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 2}")
	for seed := range 50 {
		pods := int64(seed) // 0 counts as 1
		w := newWorld()
		for i := range 6 {
			w.clusters[fmt.Sprint("c", i)] = newCluster(fmt.Sprint("c", i))
		}
		in := w.buildInput(p)
		in.BundleUID = fmt.Sprint("bundle", seed)
		first := DecidePlacement(in)
		for _, v := range first.Verdicts {
			if v.Outcome == OutcomePlaced {
				w.rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint, RequestedPods: pods}
				w.load[v.Cluster] = max(pods, 1)
			}
		}
		in = w.buildInput(p)
		in.BundleUID = fmt.Sprint("other", seed) // another order of equals
		in.Filter = PlacementTerms{Placement: p, Rebalance: now}.CompilePlacement()
		if d := DecidePlacement(in); formatOutcomes(d, OutcomePlaced) != formatOutcomes(first, OutcomePlaced) {
			t.Fatalf("%s moved to %s", formatOutcomes(first, OutcomePlaced), formatOutcomes(d, OutcomePlaced))
		}
		one := strings.Fields(formatOutcomes(first, OutcomePlaced))[0]
		w.load[one]++
		if d := DecidePlacement(in); strings.Contains(formatOutcomes(d, OutcomePlaced), one) {
			t.Fatalf("%s has another Bundle, and it stays there: %s", one, formatOutcomes(d, OutcomePlaced))
		}
	}
}

// Clusters that drifted are left by a rebalance where the hub says that they did; what
// only their agent reports, and that they are not accepted, takes nothing away.
func TestARebalanceLeavesWhatDrifted(t *testing.T) {
	prod := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")})
	for _, tc := range []struct {
		name string
		was  Cluster
		now  Cluster
		want Outcome
	}{
		{"a label", newCluster("a", withLabel("env", "prod")), newCluster("a"), OutcomeLeaves},
		{"a taint", newCluster("a", withLabel("env", "prod")), newCluster("a", withLabel("env", "prod"), withTaint("full", "", corev1.TaintEffectNoSchedule, 0)), OutcomeLeaves},
		{"not accepted", newCluster("a", withLabel("env", "prod")), newCluster("a", func(c *Cluster) { c.Accepted = false }), OutcomeKept},
		{"nothing", newCluster("a", withLabel("env", "prod")), newCluster("a", withLabel("env", "prod")), OutcomePlaced},
	} {
		for _, text := range []string{"{}", "{maxClusters: 2}"} {
			p := parsePlacement(t, text)
			p.ClusterAffinity = prod.ClusterAffinity
			w := newWorld(tc.was, newCluster("b", withLabel("env", "prod")))
			w.decideAndApply(p)
			w.clusters["a"] = tc.now
			if v, _ := w.decideAndApply(p).FindVerdict("a"); v.Outcome == OutcomeLeaves {
				t.Fatalf("%s: it leaves without a rebalance", tc.name)
			}
			d := w.decideRebalance(p, now)
			v, _ := d.FindVerdict("a")
			if v.Outcome != tc.want || tc.want == OutcomeLeaves && v.RowReason != atoll.ReasonRebalanced {
				t.Errorf("%s, %s: %s %s, want %s", tc.name, text, v, v.RowReason, tc.want)
			}
			if again, _ := w.decideRebalance(p, now).FindVerdict("a"); again.Outcome != tc.want {
				t.Errorf("%s, %s: then %s", tc.name, text, again)
			}
		}
	}
	// A kind that a cluster does not serve any more is what its agent says.
	w := newWorld(newCluster("a"), newCluster("b"))
	terms := PlacementTerms{Kinds: []string{FormatKindName("x.io/v1", "Thing")}, Rebalance: now}
	serves := newCluster("a")
	serves.APIs = &ServedAPIs{}
	w.rows["a"] = activeRow(serves, v1alpha1.PlacementSpec{})
	w.clusters["a"] = serves
	in := w.buildInput(v1alpha1.PlacementSpec{})
	in.Filter = terms.CompilePlacement()
	if v, _ := DecidePlacement(in).FindVerdict("a"); v.Outcome != OutcomeKept {
		t.Errorf("what an agent reports: %s", v)
	}
}

// A rebalance that cannot be had changes nothing, is not forgotten, and is done when it can.
func TestARebalanceThatCannotBeHadWaits(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]"+byCPU+"}")
	w := newWorld(newCluster("a", locatedIn("eu", "", ""), withCPUs(100, 50)), newCluster("b", locatedIn("us", "", ""), withCPUs(100, 50)))
	w.decideAndApply(p)
	w.clusters["b"] = newCluster("b", locatedIn("eu", "", ""), withCPUs(100, 50))
	w.clusters["c"] = newCluster("c", locatedIn("eu", "", ""), withCPUs(100, 100))
	d := w.decideRebalance(p, now)
	if d.UnmetSpread == "" || formatOutcomes(d, OutcomeKept) != "a b" {
		t.Fatalf("unmet %q: %s", d.UnmetSpread, formatGroupDecision(d))
	}
	w.clusters["d"] = newCluster("d", locatedIn("us", "", ""), withCPUs(100, 10))
	if d := w.decideRebalance(p, now); formatOutcomes(d, OutcomePlaced) != "c d" || formatOutcomes(d, OutcomeLeaves) != "a b" {
		t.Errorf("then %s", formatGroupDecision(d))
	}
	// Nothing fits any more: what runs is kept.
	q := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")})
	w = newWorld(newCluster("a", withLabel("env", "prod")))
	w.decideAndApply(q)
	w.clusters["a"] = newCluster("a")
	if d := w.decideRebalance(q, now); !d.NoFit || formatOutcomes(d, OutcomeKept) != "a" {
		t.Errorf("nothing fits: %s", formatGroupDecision(d))
	}
}

// A rebalance leaves a cluster that lost the field over which the placement spreads.
func TestARebalanceLeavesAClusterWithoutTheSpreadField(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]"+byCPU+"}")
	w := newWorld(newCluster("a", locatedIn("eu", "", ""), withCPUs(100, 50)), newCluster("b", locatedIn("us", "", ""), withCPUs(100, 50)))
	w.decideAndApply(p)
	w.clusters["a"] = newCluster("a", withCPUs(100, 50))
	w.clusters["c"] = newCluster("c", locatedIn("eu", "", ""), withCPUs(100, 10))
	d := w.decideRebalance(p, now)
	if got := formatOutcomes(d, OutcomePlaced); got != "b c" {
		t.Errorf("placed in %s", got)
	}
	v, _ := d.FindVerdict("a")
	if v.Outcome != OutcomeLeaves || v.Filter != FilterSpread || v.ReasonCode() != atoll.ReasonRebalanced || v.Reason != "it has no region, over which spreadConstraints[0] spreads" {
		t.Errorf("%+v", v)
	}
}

// Nothing moves to a cluster that is away, however good it looks.
func TestARebalanceMovesNothingToADisconnectedCluster(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 1"+byCPU+"}")
	w := newWorld(newCluster("a", withCPUs(100, 50)))
	w.decideAndApply(p)
	w.setFreeCPUs("b", 100)
	w.setFreeCPUs("c", 60)
	if d := w.decideRebalance(p, now, "b"); formatOutcomes(d, OutcomePlaced) != "c" {
		t.Errorf("b is away: %s", formatGroupDecision(d))
	}
	w.removeLeavingRows()
	if d := w.decideRebalance(p, now.Add(time.Second), "b", "a"); formatOutcomes(d, OutcomePlaced) != "c" {
		t.Errorf("all others are away: %s", formatGroupDecision(d))
	}
}

// A rebalance uses the first group in which a cluster in touch fits, whatever failback says.
func TestARebalanceGoesBackToTheFirstGroup(t *testing.T) {
	p := threeGroups(nil)
	a, c := newCluster("a", atHome), newCluster("c", inCloud)
	start := func() *simulatedFleet {
		w := newWorld(a, c)
		w.rows["c"] = inGroup(p, "cloud", c)
		return w
	}
	if d := start().decideAndApply(p); formatGroupDecision(d) != "c=Placed" || d.Group != "cloud" {
		t.Fatalf("without a rebalance: %s in %s", formatGroupDecision(d), d.Group)
	}
	w := start()
	if d := w.decideRebalance(p, now, "a"); formatGroupDecision(d) != "c=Placed" || d.Group != "cloud" {
		t.Errorf("a is away: %s in %s", formatGroupDecision(d), d.Group)
	}
	w = start()
	if d := w.decideRebalance(p, now); formatGroupDecision(d) != "a=Placed c=Leaves" || d.Group != "own" {
		t.Errorf("%s in %s", formatGroupDecision(d), d.Group)
	}
	if d := w.decideRebalance(p, now); formatGroupDecision(d) != "a=Placed c=Leaves" || d.Group != "own" {
		t.Errorf("under way: %s in %s", formatGroupDecision(d), d.Group)
	}
	// An earlier group that cannot give what is asked for is not used.
	p.SpreadConstraints = []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByCluster, MinGroups: 2}}
	w = newWorld(a, c, newCluster("d", inCloud))
	w.rows["c"], w.rows["d"] = inGroup(p, "cloud", c), inGroup(p, "cloud", newCluster("d"))
	if d := w.decideRebalance(p, now); formatGroupDecision(d) != "c=Placed d=Placed" || d.Group != "cloud" {
		t.Errorf("the first group is too small: %s in %s", formatGroupDecision(d), d.Group)
	}
}

// Replicas that follow room are divided as if the workload ran nowhere; what each is to
// come to is then what it has, also while it has more.
func TestARebalanceDividesFromScratch(t *testing.T) {
	web := web
	web.Requests, web.Replicas = freecapacity.ReplicaRequests{CPU: 1000}, 12
	key := web.Key.String()
	for _, tc := range []struct{ how, first, want string }{
		// From scratch a has room for its own 10, and b and c for 20 each.
		{"weightPreference: {dynamicWeight: AvailableReplicas}", "a=10 b=2 c=0", "a=2 b=5 c=5"},
		{"replicaDivisionPreference: Aggregated", "a=10 b=2 c=0", "12 in one"},
	} {
		p := parsePlacement(t, "{replicaScheduling: {replicaSchedulingType: Divided, "+tc.how+"}}")
		rows := map[string]atoll.RowSpec{}
		for name, n := range map[string]int64{"a": 10, "b": 2, "c": 0} {
			r := activeRow(newCluster(name), p)
			r.Assigned = map[string]int64{key: n}
			rows[name] = r
		}
		in := Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}, Workloads: []Workload{web}, Rows: rows, Now: now}
		rooms := map[string]freecapacity.NodeClasses{"a": {}, "b": parseRoom(t, "1 cpu=18000m memory=1Mi pods=50"), "c": parseRoom(t, "1 cpu=20000m memory=1Mi pods=50")}
		shown := func(a ReplicaAssignment) string {
			one := func(c string) int64 { return a.ShareOf(c).AssignedReplicas()[key] }
			if strings.Contains(tc.how, "Aggregated") && (one("b") == 12 || one("c") == 12) {
				return "12 in one"
			}
			return fmt.Sprintf("a=%d b=%d c=%d", one("a"), one("b"), one("c"))
		}
		if got := shown(DecidePlacement(in).WithFreeCapacity(knownRoom(rooms).lookUp).AssignReplicas(nil)); got != tc.first {
			t.Fatalf("%s: without a rebalance %s, want %s", tc.how, got, tc.first)
		}
		in.Filter = PlacementTerms{Placement: p, Rebalance: now}.CompilePlacement()
		d := DecidePlacement(in).WithFreeCapacity(knownRoom(rooms).lookUp)
		a := d.AssignReplicas(nil)
		if got := shown(a); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.how, got, tc.want)
		}
		// Growing rows have grown, shrinking ones wait: the next division leaves all as it is.
		for _, v := range d.Verdicts {
			r, share := rows[v.Cluster], a.ShareOf(v.Cluster)
			if !share.FromScratch {
				t.Errorf("%s: the share of %s is not marked as divided from scratch", tc.how, v.Cluster)
			}
			if n := share.AssignedReplicas()[key]; n < r.Assigned[key] {
				r.ShrinkTo = map[string]int64{key: n}
			} else {
				r.Assigned = map[string]int64{key: n}
			}
			r.PlacementFingerprint = v.PlacementFingerprint
			rows[v.Cluster] = r
		}
		again := DecidePlacement(in).WithFreeCapacity(knownRoom{"a": parseRoom(t, "1 cpu=90000m memory=1Mi pods=500"), "b": {}, "c": {}}.lookUp).AssignReplicas(nil)
		if got := shown(again); got != tc.want {
			t.Errorf("%s: under way it became %s, want %s", tc.how, got, tc.want)
		}
	}
}
