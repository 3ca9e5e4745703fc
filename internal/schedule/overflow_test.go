package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// overflowWorld is a fleet in which every decision is carried out at once.
type overflowWorld struct {
	placement v1alpha1.PlacementSpec
	clusters  []Cluster
	// places for replicas of the Bundle in all, by cluster; a cluster that is not listed does not report.
	places  map[string]int64
	down    map[string]bool
	rows    map[string]atoll.RowSpec
	desired int64
	// age counts the steps, for rows to have a time.
	age int64
	// avoids: disconnected clusters get nothing new, also without overflow.
	avoids bool
}

func (w *overflowWorld) buildInput() Input {
	return Input{
		BundleUID: "b", Placement: w.placement, Clusters: w.clusters, Rows: maps.Clone(w.rows), Now: now, UseFreeCapacity: true,
		AvoidDisconnected: w.avoids, Workloads: []Workload{{Key: web.Key, Replicas: w.desired}},
		Facts: fakeFacts{
			connected: func(c *Cluster) bool { return !w.down[c.Name] },
			replicas: func(c *Cluster) (int64, bool) {
				room, known := w.freeCapacity(c.Name)
				return CountFittingWorkloads(room, []Workload{{Key: web.Key, Replicas: w.desired}}, w.rows[c.Name].Assigned), known
			},
		},
	}
}

func (w *overflowWorld) freeCapacity(cluster string) (freecapacity.NodeClasses, bool) {
	n, known := w.places[cluster]
	return freecapacity.NodeClasses{{Nodes: max(n-w.rows[cluster].Assigned[web.Key.String()], 0), Pods: 1}}, known
}

func (w *overflowWorld) decideOnce() (Decision, ReplicaAssignment) {
	d := DecidePlacement(w.buildInput()).WithFreeCapacity(w.freeCapacity)
	return d, d.AssignReplicas(nil)
}

// applyStep decides, carries the decision out, and returns the replicas of each cluster with a row.
func (w *overflowWorld) applyStep() string {
	d, a := w.decideOnce()
	rows := map[string]atoll.RowSpec{}
	w.age++
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.IsHolder() {
			since := cmp.Or(w.rows[v.Cluster].Since, w.age)
			rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Since: since, Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint, Assigned: a.ShareOf(v.Cluster).AssignedReplicas()}
		}
	}
	w.rows = rows
	return w.String() + formatUnplaced(a)
}

func formatUnplaced(a ReplicaAssignment) string {
	if len(a.Shortages) == 0 {
		return ""
	}
	return fmt.Sprintf(" lacking %d", a.Shortages[0].Unplaced)
}

func (w *overflowWorld) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.rows)) {
		out = append(out, fmt.Sprintf("%s=%d", name, w.rows[name].Assigned[web.Key.String()]))
	}
	return strings.Join(out, " ")
}

const aggregated = "replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated"

// overflowGroups are three groups with one label each, in the order of their names.
func overflowGroups(t testing.TB, scheduling string) v1alpha1.PlacementSpec {
	return parsePlacement(t, "{clusterAffinities: [{affinityName: own, labelSelector: {matchLabels: {at: own}}}, {affinityName: near, labelSelector: {matchLabels: {at: near}}}, {affinityName: far, labelSelector: {matchLabels: {at: far}}}], replicaScheduling: {"+scheduling+"}}")
}

func overflowFleet() []Cluster {
	return []Cluster{newCluster("a", withLabel("at", "own")), newCluster("b", withLabel("at", "own")), newCluster("m", withLabel("at", "near")), newCluster("z", withLabel("at", "far"))}
}

// Replicas without a place go to the next groups in their order, stay while the groups before lack
// places, and return from the last group first.
func TestOverflowToGroups(t *testing.T) {
	w := &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow"), places: map[string]int64{"a": 4, "b": 4, "m": 3, "z": 50}, down: map[string]bool{}}
	for _, c := range []struct {
		name   string
		change func()
		want   string
	}{
		{"there are places", func() { w.desired = 8 }, "a=4 b=4"},
		{"one too many", func() { w.desired = 9 }, "a=4 b=4 m=1"},
		{"beyond the second", func() { w.desired = 13 }, "a=4 b=4 m=3 z=2"},
		{"a place for one of two", func() { w.places["a"] = 5 }, "a=4 b=4 m=3 z=2"},
		{"places for both", func() { w.places["a"] = 6 }, "a=6 b=4 m=3"},
		{"fewer replicas", func() { w.desired = 11 }, "a=6 b=4 m=1"},
		{"and back into the first", func() { w.desired = 10 }, "a=6 b=4"},
		{"more again", func() { w.desired = 12 }, "a=6 b=4 m=2"},
		{"a place in the first, which is disconnected", func() { w.places["b"], w.down["b"] = 6, true }, "a=6 b=4 m=2"},
		{"connected again", func() { w.down["b"] = false }, "a=6 b=6"},
		{"the next group is disconnected", func() { w.desired, w.down["m"] = 13, true }, "a=6 b=6 z=1"},
		{"and back", func() { w.down["m"] = false }, "a=6 b=6 m=1"},
		{"the first does not report", func() { delete(w.places, "b") }, "a=6 b=6 m=1"},
		{"more than there are places", func() { w.desired = 100; w.places["b"] = 6 }, "a=6 b=6 m=3 z=50 lacking 35"},
	} {
		c.change()
		if got := w.applyStep(); got != c.want {
			t.Fatalf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := w.applyStep(); got != c.want {
			t.Fatalf("%s: then %s, want %s", c.name, got, c.want)
		}
	}
}

// Without groups, replicas go to the best of the other clusters, beyond maxClusters and maxGroups.
func TestOverflowBeyondTheChoice(t *testing.T) {
	fleet := []Cluster{
		newCluster("a", withCPUs(9, 9), locatedIn("r1", "z1", "")), newCluster("b", withCPUs(9, 7), locatedIn("r2", "z2", "")),
		newCluster("c", withCPUs(9, 5), locatedIn("r4", "z4", "")), newCluster("d", withCPUs(9, 3), locatedIn("r3", "z3", "")),
	}
	for _, choice := range []string{
		"maxClusters: 1", "spreadConstraints: [{spreadByField: region, maxGroups: 1}]", "spreadConstraints: [{spreadByField: cluster, maxGroups: 1}]",
		"spreadConstraints: [{spreadByField: region, maxGroups: 1}, {spreadByField: zone, maxGroups: 1}]",
	} {
		w := &overflowWorld{clusters: fleet, placement: parsePlacement(t, "{"+choice+", scores: [{name: ResourceAvailable, resource: cpu}], replicaScheduling: {"+aggregated+", overflow: Allow}}"), desired: 4}
		w.places = map[string]int64{"a": 4, "b": 3, "c": 3, "d": 3}
		for _, c := range []struct {
			name   string
			change func()
			want   string
		}{
			{"one is enough", func() {}, "a=4"},
			{"more than one holds", func() { w.desired = 6 }, "a=4 b=2"},
			{"more than two hold", func() { w.desired = 8 }, "a=4 b=3 c=1"},
			{"places for what the last holds", func() { w.places["a"] = 5 }, "a=5 b=3"},
			{"one place is not enough for the next", func() { w.places["a"] = 6 }, "a=5 b=3"},
			{"places for all", func() { w.places["a"] = 8 }, "a=8"},
		} {
			c.change()
			for range 2 {
				if got := w.applyStep(); got != c.want {
					t.Fatalf("%s: %s: %s, want %s", choice, c.name, got, c.want)
				}
			}
		}
	}
}

// A row that returns leaves with a reason of its own.
func TestOverflowReturnsWithAReason(t *testing.T) {
	for _, w := range []*overflowWorld{
		{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow")},
		{clusters: overflowFleet(), placement: parsePlacement(t, "{maxClusters: 1, replicaScheduling: {"+aggregated+", overflow: Allow}}")},
	} {
		w.places, w.desired = map[string]int64{"a": 4, "b": 4, "m": 4, "z": 4}, 9
		w.applyStep()
		d, _ := w.decideOnce()
		steps := 0
		for _, v := range d.Verdicts {
			steps += int(min(v.OverflowStep, 1))
		}
		if steps == 0 || !d.Overflows || w.placement.MaxClusters > 0 && !d.WantsMore {
			t.Fatalf("no step of overflow in %s", w)
		}
		w.desired = 4
		d, _ = w.decideOnce()
		returned := 0
		for _, v := range d.Verdicts {
			if v.Outcome == OutcomeLeaves && v.RowReason == atoll.ReasonOverflowReturned {
				returned++
			}
		}
		if returned != steps || d.Overflows {
			t.Errorf("%d of %d rows return", returned, steps)
		}
	}
}

// Static weights overflow at the bounds of clusters, and not where no chosen cluster has a weight.
func TestOverflowOfWeights(t *testing.T) {
	const list = "replicaSchedulingType: Divided, overflow: Allow, weightPreference: {staticWeightList: [{targetCluster: {labelSelector: {matchLabels: {at: %s}}}, weight: 1, maxReplicas: 3}, {targetCluster: {clusterNames: [m, z]}, weight: 2}]}"
	for at, want := range map[string]string{"own": "a=3 b=3 m=4", "nowhere": "a=5 b=5"} {
		w := &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, fmt.Sprintf(list, at)), desired: 10}
		for range 2 {
			if got := w.applyStep(); got != want {
				t.Errorf("%s: %s, want %s", at, got, want)
			}
		}
	}
}

// Some clusters have no places for more: one that drifted, one without a weight, and those beyond the
// maximum of clusters in a group.
func TestOverflowPassesClustersWithoutPlaces(t *testing.T) {
	w := &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow"), places: map[string]int64{"a": 4, "b": 1, "m": 9}, desired: 5}
	w.applyStep()
	full(&w.clusters[0])
	w.places["a"], w.desired = 9, 6
	if got := w.applyStep(); got != "a=4 b=1 m=1" {
		t.Errorf("beside a cluster that drifted: %s", got)
	}
	w = &overflowWorld{clusters: overflowFleet(), desired: 9}
	w.placement = overflowGroups(t, "replicaSchedulingType: Divided, overflow: Allow, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a, b, z]}, weight: 1, maxReplicas: 3}]}")
	if got := w.applyStep(); got != "a=3 b=3 z=3" {
		t.Errorf("beside a cluster without a weight: %s", got)
	}
	w = &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow"), places: map[string]int64{"a": 4, "b": 4, "m": 9}, desired: 5}
	w.placement.MaxClusters = 1
	if got := w.applyStep(); got != "a=4 m=1" && got != "b=4 m=1" {
		t.Errorf("one cluster of each group: %s", got)
	}
}

// A row of overflow that a taint evicts later has its time, and a group that is left by failback has
// the reason of failback.
func TestOverflowRowsBeyondReturns(t *testing.T) {
	w := &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow"), places: map[string]int64{"a": 4, "b": 4, "m": 9}, desired: 9}
	w.placement.ClusterTolerations = []corev1.Toleration{{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: secondsPointer(300)}}
	w.applyStep()
	withTaint("down", "", corev1.TaintEffectNoExecute, time.Minute)(&w.clusters[2])
	if d, _ := w.decideOnce(); !d.EvictAt.Equal(now.Add(4 * time.Minute)) {
		t.Errorf("the eviction from m is due at %s, want in four minutes", d.EvictAt)
	}
	a := w.clusters[0]
	withTaint("down", "", corev1.TaintEffectNoExecute, 2*time.Minute)(&w.clusters[0])
	if d, _ := w.decideOnce(); !d.EvictAt.Equal(now.Add(3 * time.Minute)) {
		t.Errorf("the first eviction is due at %s, want in three minutes, from a", d.EvictAt)
	}
	m := w.clusters[2]
	w.clusters[2] = overflowFleet()[2]
	if d, _ := w.decideOnce(); !d.EvictAt.Equal(now.Add(3 * time.Minute)) {
		t.Errorf("beside overflow without an eviction, the first is due at %s, want in three minutes", d.EvictAt)
	}
	w.clusters[0], w.clusters[2] = a, m
	p := w.placement
	p.Failback = failbackAfter(time.Minute)
	in := w.buildInput()
	in.Placement, in.PendingFailback = p, PendingFailback{"own", now.Add(-time.Hour)}
	in.Workloads[0].Replicas = 5
	m = overflowFleet()[2]
	in.Clusters, in.Rows = overflowFleet(), map[string]atoll.RowSpec{"m": inGroup(p, "near", m)}
	if v, _ := DecidePlacement(in).FindVerdict("m"); v.Outcome != OutcomeLeaves || v.RowReason != atoll.ReasonGroupLeft {
		t.Errorf("after a failback %s with the reason %s", v, v.RowReason)
	}
}

// A workload that stays whole does not overflow.
func TestStatefulSetsDoNotOverflow(t *testing.T) {
	w := &overflowWorld{clusters: overflowFleet(), placement: overflowGroups(t, aggregated+", overflow: Allow, ordinals: {size: 9}"), desired: 9, places: map[string]int64{"a": 4, "b": 4, "m": 9, "z": 9}}
	in := w.buildInput()
	db := web
	db.Key.Kind, db.Replicas = "StatefulSet", 3
	in.Workloads = append(in.Workloads, db)
	a := DecidePlacement(in).WithFreeCapacity(w.freeCapacity).AssignReplicas(nil)
	if got := a.ShareOf("m").Replicas; got[0] != 1 || got[1] != 0 {
		t.Errorf("the cluster of overflow has %v", got)
	}
	in.Placement = overflowGroups(t, "replicaSchedulingType: Divided, overflow: Allow, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a, b]}, weight: 1, maxReplicas: 4}, {targetCluster: {clusterNames: [m]}, weight: 1}]}")
	if got := DecidePlacement(in).AssignReplicas(nil); got.ShareOf("m").Replicas[0] != 1 {
		t.Errorf("at the bounds, %s", formatAssignment(got))
	}
}

// Over random fleets: no replica is lost or doubled; where the chosen clusters have places, the
// decision is the same as without overflow; what is decided stays; more replicas take from no
// cluster; what is disconnected gets nothing new.
func TestOverflowProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	for round := range 400 {
		w := randomOverflowWorld(t, r)
		for range 8 {
			w.desired = r.Int64N(30)
			for _, c := range w.clusters {
				if w.down[c.Name] = r.IntN(8) == 0; r.IntN(3) == 0 {
					w.places[c.Name] = max(r.Int64N(10), w.rows[c.Name].Assigned[web.Key.String()])
				}
			}
			w.checkOverflow(t, round)
			if t.Failed() {
				return
			}
		}
	}
}

func randomOverflowWorld(t *testing.T, r *rand.Rand) *overflowWorld {
	how := []string{aggregated, "replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}"}[r.IntN(2)]
	p := overflowGroups(t, how+", overflow: Allow")
	if r.IntN(2) == 0 {
		p = parsePlacement(t, fmt.Sprintf("{maxClusters: %d, replicaScheduling: {%s, overflow: Allow}}", 1+r.IntN(3), how))
	}
	w := &overflowWorld{placement: p, places: map[string]int64{}, down: map[string]bool{}, rows: map[string]atoll.RowSpec{}, avoids: r.IntN(2) == 0}
	for i := range 3 + r.IntN(6) {
		name := fmt.Sprint("c", i)
		w.clusters = append(w.clusters, newCluster(name, withLabel("at", []string{"own", "near", "far"}[r.IntN(3)])))
		if r.IntN(6) > 0 {
			w.places[name] = r.Int64N(10)
		}
	}
	return w
}

func (w *overflowWorld) checkOverflow(t *testing.T, round int) {
	t.Helper()
	before, had := w.rows, w.String()
	d, a := w.decideOnce()
	fail := func(text string) {
		t.Errorf("round %d, %d replicas, places %v, down %v: %s -> %s: %s", round, w.desired, w.places, w.down, had, w, text)
	}
	placed := int64(0)
	othersConnected := slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.Outcome == OutcomePlaced && !w.down[v.Cluster] })
	for s := range a.Shares() {
		placed += s.Replicas[0]
		if was := before[s.Cluster].Assigned[web.Key.String()]; (d.Overflows || w.avoids && othersConnected) && w.down[s.Cluster] && s.Replicas[0] > was {
			fail(s.Cluster + " is disconnected and grows")
		}
	}
	if lacking := missingReplicas(a); !d.NoFit && placed+lacking != w.desired {
		fail(fmt.Sprintf("%d are placed and %d are not", placed, lacking))
	}
	if !d.Overflows && len(before) == 0 {
		plain := *w
		plain.placement.ReplicaScheduling.Overflow = v1alpha1.OverflowNone
		if _, other := plain.decideOnce(); formatAssignment(other) != formatAssignment(a) && missingReplicas(other) == 0 && plain.isInGroupOf(d) {
			fail("without overflow " + formatAssignment(other))
		}
	}
	w.applyStep()
	is := w.String()
	if w.applyStep(); w.String() != is {
		fail("and then it changes from " + is)
	}
	w.checkGrowth(fail)
}

// isInGroupOf reports whether the decision without overflow is in the same group.
func (w *overflowWorld) isInGroupOf(d Decision) bool {
	other, _ := w.decideOnce()
	return other.Group == d.Group
}

// checkGrowth checks that one more replica takes from no cluster.
func (w *overflowWorld) checkGrowth(fail func(string)) {
	more := *w
	more.desired++
	more.applyStep()
	for name, row := range w.rows {
		if n := more.rows[name].Assigned[web.Key.String()]; n < row.Assigned[web.Key.String()] {
			fail("one more takes from " + name + ": " + more.String())
		}
	}
}

func missingReplicas(a ReplicaAssignment) int64 {
	if len(a.Shortages) == 0 {
		return 0
	}
	return a.Shortages[0].Unplaced
}

func formatAssignment(a ReplicaAssignment) string {
	var out []string
	for s := range a.Shares() {
		out = append(out, fmt.Sprint(s.Cluster, "=", s.Replicas))
	}
	return strings.Join(out, " ")
}
