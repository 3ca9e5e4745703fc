package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// rebalance decides for a Bundle that was to be placed from scratch at a time, and does
// what is decided.
func (w *world) rebalance(p v1alpha1.PlacementSpec, at time.Time, away ...string) Decision {
	in := w.input(p)
	in.Filter = Terms{Placement: p, Rebalance: at}.Compile()
	in.Healthy = func(c *Cluster) bool { return !strings.Contains(strings.Join(away, " "), c.Name) }
	d := Schedule(in)
	for _, v := range d.Verdicts {
		row, has := w.rows[v.Cluster]
		switch v.Outcome {
		case Placed, Kept:
			row.UID, row.Phase, row.Placement = v.UID, atoll.RowActive, v.Placement
			w.rows[v.Cluster] = row
		case Leaves:
			if row.Phase = atoll.RowLeaving; has {
				w.rows[v.Cluster] = row
			}
		}
	}
	return d
}

// free sets what a cluster has left of 100 CPUs.
func (w *world) free(name string, n int64) { w.clusters[name] = cluster(name, cpus(100, n)) }

// What a cluster runs of the Bundle itself does not count against it, nor for it: a row's
// pods, or 1 where it states none.
func TestARebalanceDoesNotCountItsOwnPods(t *testing.T) {
	p := placement(t, "{maxClusters: 1}") // by Balance
	for name, tc := range map[string]struct {
		pods, a, b int64
		want       string
	}{
		"without its own there are fewer": {20, 25, 10, "a"},
		"without its own there are more":  {20, 31, 10, "b"},
		"it states none":                  {0, 11, 11, "a"},
	} {
		w := newWorld(cluster("a"))
		w.decide(p)
		row := w.rows["a"]
		row.Pods = tc.pods
		w.rows["a"] = row
		w.clusters["b"] = cluster("b")
		w.load["a"], w.load["b"] = tc.a, tc.b
		if d := w.rebalance(p, now); outcomes(d, Placed) != tc.want {
			t.Errorf("%s: %s", name, told(d))
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
		p := placement(t, placementText)
		w := newWorld(cluster("a", cpus(100, 50)), cluster("b", cpus(100, 40)))
		w.decide(p)
		w.free("b", 100)
		if d := w.decide(p); outcomes(d, Placed) != "a" {
			t.Fatalf("%s: without a rebalance it went to %s", placementText, outcomes(d, Placed))
		}
		d := w.rebalance(p, now)
		if outcomes(d, Placed) != "b" || outcomes(d, Leaves) != "a" {
			t.Fatalf("%s: %s", placementText, told(d))
		}
		v, _ := d.Verdict("a")
		if v.Word != atoll.RowRebalanced || v.Filter != FilterRebalance || v.Reason != "others were chosen from scratch; it scores 500 of 1000" && !strings.Contains(placementText, "Steady") {
			t.Errorf("%s: a %s, %s", placementText, v, v.Word)
		}
		w.free("a", 100)
		w.free("b", 1)
		if d := w.rebalance(p, now); outcomes(d, Placed) != "b" || outcomes(d, Leaves) != "a" {
			t.Errorf("%s: under way, it turned round: %s", placementText, told(d))
		}
		w.gone()
		if d := w.rebalance(p, now); outcomes(d, Placed) != "b" {
			t.Errorf("%s: the same rebalance moved it again: %s", placementText, told(d))
		}
		if d := w.decide(p); outcomes(d, Placed) != "b" {
			t.Errorf("%s: without the annotation it moved: %s", placementText, told(d))
		}
		if d := w.rebalance(p, now.Add(-time.Minute)); outcomes(d, Placed) != "b" {
			t.Errorf("%s: an older rebalance moved it: %s", placementText, told(d))
		}
		if d := w.rebalance(p, now.Add(time.Millisecond)); outcomes(d, Placed) != "a" {
			t.Errorf("%s: a later rebalance did not: %s", placementText, told(d))
		}
	}
}

// Where nothing is better, nothing moves: neither for the tie of equal scores, nor because
// the Bundle itself is what its cluster holds more than others.
func TestARebalanceMovesNothingInVain(t *testing.T) {
	p := placement(t, "{maxClusters: 2}")
	for seed := range 50 {
		pods := int64(seed) // 0 counts as 1
		w := newWorld()
		for i := range 6 {
			w.clusters[fmt.Sprint("c", i)] = cluster(fmt.Sprint("c", i))
		}
		in := w.input(p)
		in.Bundle = fmt.Sprint("bundle", seed)
		first := Schedule(in)
		for _, v := range first.Verdicts {
			if v.Outcome == Placed {
				w.rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Phase: atoll.RowActive, Placement: v.Placement, Pods: pods}
				w.load[v.Cluster] = max(pods, 1)
			}
		}
		in = w.input(p)
		in.Bundle = fmt.Sprint("other", seed) // another order of equals
		in.Filter = Terms{Placement: p, Rebalance: now}.Compile()
		if d := Schedule(in); outcomes(d, Placed) != outcomes(first, Placed) {
			t.Fatalf("%s moved to %s", outcomes(first, Placed), outcomes(d, Placed))
		}
		one := strings.Fields(outcomes(first, Placed))[0]
		w.load[one]++
		if d := Schedule(in); strings.Contains(outcomes(d, Placed), one) {
			t.Fatalf("%s has another Bundle, and it stays there: %s", one, outcomes(d, Placed))
		}
	}
}

// Clusters that drifted are left by a rebalance where the hub says that they did; what
// only their agent reports, and that they are not accepted, takes nothing away.
func TestARebalanceLeavesWhatDrifted(t *testing.T) {
	prod := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")})
	for _, tc := range []struct {
		name string
		was  Cluster
		now  Cluster
		want Outcome
	}{
		{"a label", cluster("a", label("env", "prod")), cluster("a"), Leaves},
		{"a taint", cluster("a", label("env", "prod")), cluster("a", label("env", "prod"), taint("full", "", corev1.TaintEffectNoSchedule, 0)), Leaves},
		{"not accepted", cluster("a", label("env", "prod")), cluster("a", func(c *Cluster) { c.Accepted = false }), Kept},
		{"nothing", cluster("a", label("env", "prod")), cluster("a", label("env", "prod")), Placed},
	} {
		for _, text := range []string{"{}", "{maxClusters: 2}"} {
			p := placement(t, text)
			p.ClusterAffinity = prod.ClusterAffinity
			w := newWorld(tc.was, cluster("b", label("env", "prod")))
			w.decide(p)
			w.clusters["a"] = tc.now
			if v, _ := w.decide(p).Verdict("a"); v.Outcome == Leaves {
				t.Fatalf("%s: it leaves without a rebalance", tc.name)
			}
			d := w.rebalance(p, now)
			v, _ := d.Verdict("a")
			if v.Outcome != tc.want || tc.want == Leaves && v.Word != atoll.RowRebalanced {
				t.Errorf("%s, %s: %s %s, want %s", tc.name, text, v, v.Word, tc.want)
			}
			if again, _ := w.rebalance(p, now).Verdict("a"); again.Outcome != tc.want {
				t.Errorf("%s, %s: then %s", tc.name, text, again)
			}
		}
	}
	// A kind that a cluster does not serve any more is what its agent says.
	w := newWorld(cluster("a"), cluster("b"))
	terms := Terms{Kinds: []string{KindName("x.io/v1", "Thing")}, Rebalance: now}
	serves := cluster("a")
	serves.APIs = &APIs{}
	w.rows["a"] = row(serves, v1alpha1.PlacementSpec{})
	w.clusters["a"] = serves
	in := w.input(v1alpha1.PlacementSpec{})
	in.Filter = terms.Compile()
	if v, _ := Schedule(in).Verdict("a"); v.Outcome != Kept {
		t.Errorf("what an agent reports: %s", v)
	}
}

// A rebalance that cannot be had changes nothing, is not forgotten, and is done when it can.
func TestARebalanceThatCannotBeHadWaits(t *testing.T) {
	p := placement(t, "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]"+byCPU+"}")
	w := newWorld(cluster("a", where("eu", "", ""), cpus(100, 50)), cluster("b", where("us", "", ""), cpus(100, 50)))
	w.decide(p)
	w.clusters["b"] = cluster("b", where("eu", "", ""), cpus(100, 50))
	w.clusters["c"] = cluster("c", where("eu", "", ""), cpus(100, 100))
	d := w.rebalance(p, now)
	if d.Unmet == "" || outcomes(d, Kept) != "a b" {
		t.Fatalf("unmet %q: %s", d.Unmet, told(d))
	}
	w.clusters["d"] = cluster("d", where("us", "", ""), cpus(100, 10))
	if d := w.rebalance(p, now); outcomes(d, Placed) != "c d" || outcomes(d, Leaves) != "a b" {
		t.Errorf("then %s", told(d))
	}
	// Nothing fits any more: what runs is kept.
	q := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")})
	w = newWorld(cluster("a", label("env", "prod")))
	w.decide(q)
	w.clusters["a"] = cluster("a")
	if d := w.rebalance(q, now); !d.NoFit || outcomes(d, Kept) != "a" {
		t.Errorf("nothing fits: %s", told(d))
	}
}

// Nothing moves to a cluster that is away, however good it looks.
func TestARebalanceMovesNothingToWhoIsAway(t *testing.T) {
	p := placement(t, "{maxClusters: 1"+byCPU+"}")
	w := newWorld(cluster("a", cpus(100, 50)))
	w.decide(p)
	w.free("b", 100)
	w.free("c", 60)
	if d := w.rebalance(p, now, "b"); outcomes(d, Placed) != "c" {
		t.Errorf("b is away: %s", told(d))
	}
	w.gone()
	if d := w.rebalance(p, now.Add(time.Second), "b", "a"); outcomes(d, Placed) != "c" {
		t.Errorf("all others are away: %s", told(d))
	}
}

// A rebalance uses the first group in which a cluster in touch fits, whatever failback says.
func TestARebalanceGoesBackToTheFirstGroup(t *testing.T) {
	p := ladder(nil)
	a, c := cluster("a", atHome), cluster("c", inCloud)
	start := func() *world {
		w := newWorld(a, c)
		w.rows["c"] = inGroup(p, "cloud", c)
		return w
	}
	if d := start().decide(p); told(d) != "c=Placed" || d.Group != "cloud" {
		t.Fatalf("without a rebalance: %s in %s", told(d), d.Group)
	}
	w := start()
	if d := w.rebalance(p, now, "a"); told(d) != "c=Placed" || d.Group != "cloud" {
		t.Errorf("a is away: %s in %s", told(d), d.Group)
	}
	w = start()
	if d := w.rebalance(p, now); told(d) != "a=Placed c=Leaves" || d.Group != "own" {
		t.Errorf("%s in %s", told(d), d.Group)
	}
	if d := w.rebalance(p, now); told(d) != "a=Placed c=Leaves" || d.Group != "own" {
		t.Errorf("under way: %s in %s", told(d), d.Group)
	}
	// An earlier group that cannot give what is asked for is not used.
	p.SpreadConstraints = []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByCluster, MinGroups: 2}}
	w = newWorld(a, c, cluster("d", inCloud))
	w.rows["c"], w.rows["d"] = inGroup(p, "cloud", c), inGroup(p, "cloud", cluster("d"))
	if d := w.rebalance(p, now); told(d) != "c=Placed d=Placed" || d.Group != "cloud" {
		t.Errorf("the first group is too small: %s in %s", told(d), d.Group)
	}
}

// Replicas that follow room are divided as if the workload ran nowhere; what each is to
// come to is then what it has, also while it has more.
func TestARebalanceDividesFromScratch(t *testing.T) {
	web := web
	web.Requests, web.Replicas = atoll.Requests{CPU: 1000}, 12
	key := web.Key.String()
	for _, tc := range []struct{ how, first, want string }{
		// From scratch a has room for its own 10, and b and c for 20 each.
		{"weightPreference: {dynamicWeight: AvailableReplicas}", "a=10 b=2 c=0", "a=2 b=5 c=5"},
		{"replicaDivisionPreference: Aggregated", "a=10 b=2 c=0", "12 in one"},
	} {
		p := placement(t, "{replicaScheduling: {replicaSchedulingType: Divided, "+tc.how+"}}")
		rows := map[string]atoll.RowSpec{}
		for name, n := range map[string]int64{"a": 10, "b": 2, "c": 0} {
			r := row(cluster(name), p)
			r.Assigned = map[string]int64{key: n}
			rows[name] = r
		}
		in := Input{Bundle: "b", Placement: p, Clusters: []Cluster{cluster("a"), cluster("b"), cluster("c")}, Workloads: []Workload{web}, Rows: rows, Now: now}
		rooms := map[string]atoll.Room{"a": {}, "b": room(t, "1 cpu=18000m memory=1Mi pods=50"), "c": room(t, "1 cpu=20000m memory=1Mi pods=50")}
		shown := func(a Assignment) string {
			one := func(c string) int64 { return a.Of(c).Assigned()[key] }
			if strings.Contains(tc.how, "Aggregated") && (one("b") == 12 || one("c") == 12) {
				return "12 in one"
			}
			return fmt.Sprintf("a=%d b=%d c=%d", one("a"), one("b"), one("c"))
		}
		if got := shown(Schedule(in).WithRoom(known(rooms).of).Assign(nil)); got != tc.first {
			t.Fatalf("%s: without a rebalance %s, want %s", tc.how, got, tc.first)
		}
		in.Filter = Terms{Placement: p, Rebalance: now}.Compile()
		d := Schedule(in).WithRoom(known(rooms).of)
		a := d.Assign(nil)
		if got := shown(a); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.how, got, tc.want)
		}
		// What grows has grown, what shrinks waits: the next division leaves all as it is.
		for _, v := range d.Verdicts {
			r, share := rows[v.Cluster], a.Of(v.Cluster)
			if !share.Anew {
				t.Errorf("%s: the share of %s is not said to be anew", tc.how, v.Cluster)
			}
			if n := share.Assigned()[key]; n < r.Assigned[key] {
				r.Due = map[string]int64{key: n}
			} else {
				r.Assigned = map[string]int64{key: n}
			}
			r.Placement = v.Placement
			rows[v.Cluster] = r
		}
		again := Schedule(in).WithRoom(known{"a": room(t, "1 cpu=90000m memory=1Mi pods=500"), "b": {}, "c": {}}.of).Assign(nil)
		if got := shown(again); got != tc.want {
			t.Errorf("%s: under way it became %s, want %s", tc.how, got, tc.want)
		}
	}
}
