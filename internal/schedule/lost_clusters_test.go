package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// lostFleet is a fleet that loses some clusters.
type lostFleet struct {
	Input
	lost map[string]bool
	free map[string]int64
}

// newLostFleet places on the clusters while all are connected.
func newLostFleet(t *testing.T, placement string, replicas int64, free map[string]int64, clusters ...Cluster) *lostFleet {
	t.Helper()
	f := &lostFleet{lost: map[string]bool{}, free: free}
	p := parsePlacement(t, placement)
	f.Input = Input{
		BundleUID: "b", Placement: p, Clusters: clusters, Rows: map[string]atoll.RowSpec{}, Now: now, UseFreeCapacity: true, AvoidDisconnected: true,
		Facts: fakeFacts{connected: func(c *Cluster) bool { return !f.lost[c.Name] }, replicas: f.countFree},
	}
	if replicas > 0 {
		f.Workloads = []Workload{{Key: web.Key, Replicas: replicas}}
	}
	f.decideAndApply()
	return f
}

// countFree returns the replicas that fit, with those that run there.
func (f *lostFleet) countFree(c *Cluster) (int64, bool) {
	n, known := f.free[c.Name]
	return n, known
}

// decideAndApply decides, and keeps the rows of what leaves, as while replacements start.
func (f *lostFleet) decideAndApply() Decision {
	d := DecidePlacement(f.Input)
	applied := applyDecision(f.Input, d, d.AssignReplicas(nil))
	for cluster, row := range f.Rows {
		if _, holds := applied.Rows[cluster]; !holds {
			row.Phase = atoll.RowLeaving
			applied.Rows[cluster] = row
		}
	}
	f.Input = applied
	return d
}

// loseClusters loses clusters, and taints them.
func (f *lostFleet) loseClusters(names string, taints ...v1alpha1.Taint) {
	f.Clusters = slices.Clone(f.Clusters)
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if slices.Contains(strings.Fields(names), c.Name) {
			f.lost[c.Name], c.Taints = true, append(slices.Clone(c.Taints), taints...)
		}
	}
}

var unreachable = v1alpha1.Taint{Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(now))}

func TestLostClustersLoseOnlyToReplacements(t *testing.T) {
	const oneOf, twoOf = "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}",
		"{maxClusters: 2, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a, b]}}]}"
	const divided, byCapacity = "{replicaScheduling: {replicaSchedulingType: Divided}}",
		"{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}"
	const groups = "{clusterAffinities: [{affinityName: own, clusterNames: [a, b]}, {affinityName: near, clusterNames: [c]}]}"
	const overflows = "{replicaScheduling: {replicaSchedulingType: Divided, overflow: Allow, weightPreference: {dynamicWeight: AvailableReplicas}}, " +
		"clusterAffinities: [{affinityName: own, clusterNames: [a, b]}, {affinityName: near, clusterNames: [c]}]}"
	tolerate := func(placement, seconds string) string {
		return strings.TrimSuffix(placement, "}") + ", clusterTolerations: [{key: atoll.dev/unreachable, operator: Exists, effect: NoExecute" + seconds + "}]}"
	}
	for _, tc := range []struct {
		name, placement string
		replicas        int64
		free            map[string]int64
		lost            string
		taints          []v1alpha1.Taint
		keepsLost       bool
		placed, leaves  string
	}{
		{name: "another cluster is chosen", placement: oneOf, lost: "a", placed: "b", leaves: "a"},
		{name: "by the taint of a member that is not ready", placement: oneOf, lost: "a", taints: []v1alpha1.Taint{{Key: v1alpha1.TaintNotReady, Effect: corev1.TaintEffectNoExecute}}, placed: "b", leaves: "a"},
		{name: "no other cluster fits", placement: strings.TrimSuffix(oneOf, "}") + ", clusterAffinity: {clusterNames: [a]}}", lost: "a", placed: "", leaves: ""},
		{name: "fewer clusters than lost ones fit", placement: twoOf, lost: "a b", placed: "a c", leaves: "b"},
		{name: "all that fit are chosen", placement: "{}", lost: "a", placed: "a b c", leaves: ""},
		{name: "a person's taint takes it out", placement: "{}", lost: "a", taints: []v1alpha1.Taint{unreachable, {Key: "mine", Effect: corev1.TaintEffectNoExecute}}, placed: "b c", leaves: "a"},
		{name: "replicas are divided among the others", placement: divided, replicas: 6, lost: "a", placed: "b c", leaves: "a"},
		{name: "all are lost", placement: divided, replicas: 6, lost: "a b c", placed: "", leaves: ""},
		{name: "the others have the capacity", placement: byCapacity, replicas: 6, free: map[string]int64{"a": 9, "b": 9, "c": 9}, lost: "a", placed: "b c", leaves: "a"},
		{name: "the others lack the capacity", placement: byCapacity, replicas: 26, free: map[string]int64{"a": 9, "b": 9, "c": 9}, lost: "a", placed: "a b c", leaves: ""},
		{name: "a later group has the capacity", placement: overflows, replicas: 12, free: map[string]int64{"a": 9, "b": 9, "c": 9}, lost: "a", placed: "b c", leaves: "a"},
		{name: "a later group lacks the capacity", placement: overflows, replicas: 12, free: map[string]int64{"a": 9, "b": 9, "c": 2}, lost: "a", placed: "a b", leaves: ""},
		{name: "a part of a group", placement: groups, lost: "a", placed: "a b", leaves: ""},
		{name: "a whole group", placement: groups, lost: "a b", placed: "c", leaves: "a b"},
		{name: "two copies should not run", placement: oneOf, lost: "a", keepsLost: true, placed: "a", leaves: ""},
		{name: "tolerated", placement: tolerate(oneOf, ""), lost: "a", placed: "a", leaves: ""},
		{name: "tolerated for a while", placement: tolerate(oneOf, ", tolerationSeconds: 60"), lost: "a", placed: "a", leaves: ""},
		{name: "tolerated for no longer", placement: tolerate(oneOf, ", tolerationSeconds: 0"), lost: "a", placed: "b", leaves: "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newLostFleet(t, tc.placement, tc.replicas, tc.free, newCluster("a"), newCluster("b"), newCluster("c"))
			if tc.taints == nil {
				tc.taints = []v1alpha1.Taint{unreachable}
			}
			f.KeepsLost = tc.keepsLost
			f.loseClusters(tc.lost, tc.taints...)
			// Each decision is the same while the replacements start.
			for range 3 {
				d := f.decideAndApply()
				if placed, leaves := formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves); placed != tc.placed || leaves != tc.leaves {
					t.Fatalf("placed %q, leaves %q; want %q and %q", placed, leaves, tc.placed, tc.leaves)
				}
			}
		})
	}
}

// A row that stays says why, and a row that is tolerated for a while says until when.
func TestARowInALostClusterIsExplained(t *testing.T) {
	f := newLostFleet(t, "{}", 0, nil, newCluster("a"), newCluster("b"))
	f.loseClusters("a", unreachable)
	for keeps, want := range map[bool]string{false: keptUnreplaced, true: keptExclusive} {
		f.KeepsLost = keeps
		d := DecidePlacement(f.Input)
		if v, _ := d.FindVerdict("a"); v.Notes().KeptLost != want || v.Outcome != OutcomePlaced {
			t.Errorf("keeps lost %t: %s, kept because %q", keeps, v, v.Notes().KeptLost)
		}
		if v, _ := d.FindVerdict("b"); v.Notes().KeptLost != "" {
			t.Errorf("b: kept because %q", v.Notes().KeptLost)
		}
	}
	f = newLostFleet(t, "{maxClusters: 1, clusterTolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 60}]}", 0, nil, newCluster("a"))
	f.loseClusters("a", unreachable)
	d := DecidePlacement(f.Input)
	if v, _ := d.FindVerdict("a"); !v.Notes().EvictAt.Equal(now.Add(time.Minute)) || !d.EvictAt.Equal(v.Notes().EvictAt) || v.Notes().KeptLost != "" {
		t.Errorf("evicted at %s, kept because %q", v.Notes().EvictAt, v.Notes().KeptLost)
	}
}

// A cluster that comes back before its copy was removed keeps the Bundle, or its replacement does: never both, never none.
func TestALostClusterThatReturns(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1}", 0, nil, newCluster("a"), newCluster("b"))
	first := formatOutcomes(DecidePlacement(f.Input), OutcomePlaced)
	f.loseClusters(first, unreachable)
	f.decideAndApply()
	f.lost = map[string]bool{}
	for i := range f.Clusters {
		f.Clusters[i].Taints = nil
	}
	if placed := formatOutcomes(f.decideAndApply(), OutcomePlaced); placed != "a" && placed != "b" {
		t.Errorf("placed %q", placed)
	}
}

// regionCluster is a cluster in a region.
func regionCluster(name, region string) Cluster {
	return newCluster(name, func(c *Cluster) { c.Region = region })
}

// expectOutcomes decides some times, as while replacements start, and checks each decision.
func (f *lostFleet) expectOutcomes(t *testing.T, step, placed, leaves string) {
	t.Helper()
	for range 3 {
		d := f.decideAndApply()
		if gotPlaced, gotLeaves := formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves); gotPlaced != placed || gotLeaves != leaves {
			t.Fatalf("%s: placed %q, leaves %q; want %q and %q", step, gotPlaced, gotLeaves, placed, leaves)
		}
	}
}

// A constraint that bounds the groups bounds which lost rows stay: another region takes over as a whole.
func TestALostRegionIsReplaced(t *testing.T) {
	const one = "{spreadConstraints: [{spreadByField: region, maxGroups: 1}], scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [x1, x2]}}]}"
	f := newLostFleet(t, one, 0, nil, regionCluster("x1", "x"), regionCluster("x2", "x"), regionCluster("y1", "y"), regionCluster("y2", "y"))
	f.loseClusters("x1", unreachable)
	f.expectOutcomes(t, "a part of the region", "x1 x2", "")
	f.loseClusters("x2", unreachable)
	f.expectOutcomes(t, "the whole region", "y1 y2", "x1 x2")
	f.lost = map[string]bool{}
	for i := range f.Clusters {
		f.Clusters[i].Taints = nil
	}
	f.expectOutcomes(t, "the region is back", "y1 y2", "x1 x2")
}

// An edit of groups while a cluster is lost drops no copy that nothing replaces.
func TestGroupsAreEditedDuringALoss(t *testing.T) {
	const named, groups = "{clusterAffinity: {clusterNames: [a, b]}}", "{clusterAffinities: [{affinityName: own, clusterNames: [a, b]}, {affinityName: near, clusterNames: [c]}]}"
	for name, tc := range map[string]struct{ before, after string }{
		"a group is renamed":      {groups, strings.Replace(groups, "own", "home", 1)},
		"an affinity gets groups": {named, groups},
		"groups become one":       {groups, named},
	} {
		f := newLostFleet(t, tc.before, 0, nil, newCluster("a"), newCluster("b"), newCluster("c"))
		f.loseClusters("a", unreachable)
		f.expectOutcomes(t, name+", before", "a b", "")
		f.Placement = parsePlacement(t, tc.after)
		f.expectOutcomes(t, name, "a b", "")
	}
}

// A lost row that is unfit, too, takes the place of none that stays.
func TestAnUnfitLostRowKeepsNoPlace(t *testing.T) {
	labelled := func(name string) Cluster {
		return newCluster(name, func(c *Cluster) { c.Labels = map[string]string{"env": "prod"} })
	}
	const two = "{maxClusters: 2, clusterAffinity: {labelSelector: {matchLabels: {env: prod}}}, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a, b]}}]}"
	f := newLostFleet(t, two, 0, nil, labelled("a"), labelled("b"), labelled("c"))
	f.WhenUnfit = v1alpha1.UnfitRemove
	f.loseClusters("a b", unreachable)
	f.Clusters[0].Labels = nil
	f.expectOutcomes(t, "unfit", "b c", "a")
	if v, _ := DecidePlacement(f.Input).FindVerdict("a"); v.Notes().KeptLost != "" || !v.LeavesLost {
		t.Errorf("a: %s, kept because %q", v, v.Notes().KeptLost)
	}
}

// A lost row that keeps its copy also keeps its revision where the stated capacity has no place for the newer one.
func TestAKeptLostRowKeepsItsCapacityReason(t *testing.T) {
	in := inputFor(t, v1alpha1.PlacementSpec{}, contentOf(t, deploymentJSON(3, "cpu: 1")), nil, newCluster("a", statesCapacity(t, "{replicas: 2}")), newCluster("b"))
	in.Rows = map[string]atoll.RowSpec{"a": activeRow(in.Clusters[0], in.Placement), "b": activeRow(in.Clusters[1], in.Placement)}
	v, _ := DecidePlacement(in).FindVerdict("a")
	if v.Notes().CapacityReason == "" {
		t.Fatal("the capacity keeps nothing")
	}
	in.Clusters[0].Taints = []v1alpha1.Taint{unreachable}
	if is, _ := DecidePlacement(in).FindVerdict("a"); is.Notes().KeptLost != keptUnreplaced || is.Notes().CapacityReason != v.Notes().CapacityReason {
		t.Errorf("kept because %q, capacity %q; want %q", is.Notes().KeptLost, is.Notes().CapacityReason, v.Notes().CapacityReason)
	}
}

// While the one cluster that divides the replicas is silent for a moment, rows that leave do not turn around.
func TestASilentDividerTurnsNothingAround(t *testing.T) {
	for _, placement := range []string{"{replicaScheduling: {replicaSchedulingType: Divided}}", "{maxClusters: 3, replicaScheduling: {replicaSchedulingType: Divided}}"} {
		f := newLostFleet(t, placement, 3, nil, newCluster("a"), newCluster("b"), newCluster("c"))
		f.loseClusters("a b", unreachable)
		f.expectOutcomes(t, "lost", "c", "a b")
		f.lost["c"] = true
		f.expectOutcomes(t, "silent", "c", "a b")
		f.lost["c"] = false
		f.expectOutcomes(t, "back", "c", "a b")
		if n := f.Rows["c"].Assigned[web.Key.String()]; n != 3 {
			t.Errorf("c has %d of 3 replicas", n)
		}
	}
}

// A Bundle of which all clusters are lost waits for a member, and not for the owner of its placement.
func TestABundleWithoutAnAlternativeWaitsForItsCluster(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 2, clusterAffinity: {clusterNames: [a, b]}}", 0, nil, newCluster("a"), newCluster("b"), newCluster("c"))
	f.loseClusters("a b", unreachable)
	f.Clusters[1].Taints = append(f.Clusters[1].Taints, v1alpha1.Taint{Key: "mine", Effect: corev1.TaintEffectNoExecute})
	d := DecidePlacement(f.Input)
	for cluster, want := range map[string]Verdict{
		"a": {Outcome: OutcomeKept, RowReason: atoll.ReasonClusterLost, notes: &RowNotes{KeptLost: keptUnreplaced}},
		"b": {Outcome: OutcomeKept, RowReason: atoll.ReasonNoClusterFits},
	} {
		if v, _ := d.FindVerdict(cluster); v.Outcome != want.Outcome || v.RowReason != want.RowReason || v.Notes().KeptLost != want.Notes().KeptLost || v.LeavesLost {
			t.Errorf("%s: %s, %s, kept because %q", cluster, v, v.RowReason, v.Notes().KeptLost)
		}
	}
	if atoll.ActorOf(atoll.ReasonClusterLost) != atoll.ActorMember {
		t.Error("another one must act")
	}
}

// A lost copy that should not run twice moves neither to a better cluster nor back to an earlier group.
func TestAnExclusiveLostCopyNeverMoves(t *testing.T) {
	const better = "{maxClusters: 1, rescheduling: {when: WhenBetter, minDwell: 0s, moveCost: 0}, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}"
	const groups = "{failback: {policy: WhenHealthy, holdTime: 0s}, clusterAffinities: [{affinityName: own, clusterNames: [b]}, {affinityName: near, clusterNames: [a]}]}"
	for name, tc := range map[string]struct {
		placement string
		then      func(f *lostFleet)
	}{
		"a better cluster": {better, func(f *lostFleet) { f.Placement = parsePlacement(t, strings.Replace(better, "[a]", "[b]", 1)) }},
		"an earlier group": {groups, func(f *lostFleet) { f.Clusters[1].Accepted = true }},
	} {
		f := newLostFleet(t, tc.placement, 0, nil, newCluster("a"), newCluster("b", func(c *Cluster) { c.Accepted = tc.placement == better }))
		f.expectOutcomes(t, name+", before", "a", "")
		f.KeepsLost = true
		tc.then(f)
		if d := DecidePlacement(f.Input); formatOutcomes(d, OutcomeLeaves) != "a" {
			t.Errorf("%s: a connected copy does not move", name)
		}
		f.loseClusters("a", unreachable)
		f.expectOutcomes(t, name, "a", "")
		if v, _ := DecidePlacement(f.Input).FindVerdict("a"); v.Notes().KeptLost != keptExclusive {
			t.Errorf("%s: kept because %q", name, v.Notes().KeptLost)
		}
	}
}

// A lost row that was leaving stays where no cluster fits any more, and the next decision is the same.
func TestALostRowStaysWhereNothingFits(t *testing.T) {
	f := newLostFleet(t, "{replicaScheduling: {replicaSchedulingType: Divided}}", 6, nil, newCluster("a"), newCluster("b"))
	f.loseClusters("a", unreachable)
	f.expectOutcomes(t, "lost", "b", "a")
	f.Clusters[1].Accepted = false
	for range 3 {
		d := f.decideAndApply()
		if v, _ := d.FindVerdict("a"); !d.NoFit || v.Outcome != OutcomeKept || v.RowReason != atoll.ReasonClusterLost {
			t.Fatalf("%s, %s", v, v.RowReason)
		}
	}
}
