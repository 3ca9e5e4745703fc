package schedule

import (
	"cmp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var drained = v1alpha1.Taint{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute, TimeAdded: unreachable.TimeAdded}

// drainClusters drains clusters that stay connected.
func (f *lostFleet) drainClusters(names string, taints ...v1alpha1.Taint) {
	f.loseClusters(names, taints...)
	f.lost = map[string]bool{}
}

// giveBack removes the taints of a cluster.
func (f *lostFleet) giveBack(name string) {
	for i := range f.Clusters {
		if f.Clusters[i].Name == name {
			f.Clusters[i].Taints = nil
		}
	}
}

// formatStays lists the clusters that stay although they are drained, with their reasons.
func formatStays(d Decision) string {
	var out []string
	for _, v := range d.Verdicts {
		if v.Notes().DrainReason != "" {
			out = append(out, v.Cluster+"="+string(v.Notes().DrainReason))
		}
	}
	return strings.Join(out, " ")
}

func TestDrainedClustersLoseOnlyToReplacements(t *testing.T) {
	const oneOf = "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}"
	const twoOf = "{maxClusters: 2, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a, b]}}]}"
	const divided = "{replicaScheduling: {replicaSchedulingType: Divided}}"
	const byCapacity = "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}"
	const groups = "{clusterAffinities: [{affinityName: own, clusterNames: [a]}, {affinityName: near, clusterNames: [c]}]}"
	everything := []v1alpha1.Taint{{Key: v1alpha1.TaintDrain, Value: v1alpha1.DrainRemoveUnreplaced, Effect: corev1.TaintEffectNoExecute}}
	tolerate := func(rest string) string {
		return strings.TrimSuffix(oneOf, "}") + ", clusterTolerations: [{key: atoll.dev/drain, operator: Exists, effect: NoExecute" + rest + "}]}"
	}
	for _, tc := range []struct {
		name, placement string
		replicas        int64
		free            map[string]int64
		drained         string
		taints          []v1alpha1.Taint
		exclusive       bool
		disconnected    string
		holds, leaves   string
		stays           string
	}{
		{name: "another cluster is chosen", placement: oneOf, drained: "a", holds: "b", leaves: "a"},
		{name: "exclusive copies leave, too", placement: oneOf, drained: "a", exclusive: true, holds: "b", leaves: "a"},
		{name: "exclusive copies of a disconnected cluster stay", placement: oneOf, drained: "a", exclusive: true, disconnected: "a", holds: "a", stays: "a=WaitsForCluster"},
		{name: "other copies of a disconnected cluster leave", placement: oneOf, drained: "a", disconnected: "a", holds: "b", leaves: "a"},
		{name: "each cluster has a copy", placement: "{}", drained: "a", holds: "a b c", stays: "a=CopyInEachCluster"},
		{name: "each cluster has a copy, and it is to go", placement: "{}", drained: "a", taints: everything, holds: "b c", leaves: "a"},
		{name: "each cluster has a copy, and all are drained", placement: "{}", drained: "a b c", holds: "a b c", stays: "a=CopyInEachCluster b=CopyInEachCluster c=CopyInEachCluster"},
		{name: "a later group is drained, too", placement: groups, drained: "a c", holds: "a", stays: "a=NoReplacement"},
		{name: "named alone", placement: "{clusterAffinity: {clusterNames: [a]}}", drained: "a", holds: "a", stays: "a=NoReplacement"},
		{name: "named alone, and it is to go", placement: "{clusterAffinity: {clusterNames: [a]}}", drained: "a", taints: everything, holds: "a", stays: "a=NoReplacement"},
		{name: "fewer clusters than drained ones fit", placement: twoOf, drained: "a b", holds: "a c", leaves: "b", stays: "a=NoReplacement"},
		{name: "all that fit are drained", placement: twoOf, drained: "a b c", holds: "a b", stays: "a=NoReplacement b=NoReplacement"},
		{name: "replicas are divided among the others", placement: divided, replicas: 6, drained: "a", holds: "b c", leaves: "a"},
		{name: "the others lack the capacity", placement: byCapacity, replicas: 26, free: map[string]int64{"a": 9, "b": 9, "c": 9}, drained: "a", holds: "a b c", stays: "a=NoReplacement"},
		{name: "a later group", placement: groups, drained: "a", holds: "c", leaves: "a"},
		{name: "to go, exclusive and disconnected", placement: oneOf, drained: "a", taints: everything, exclusive: true, disconnected: "a", holds: "a", stays: "a=WaitsForCluster"},
		{name: "to go, and disconnected", placement: oneOf, drained: "a", taints: everything, disconnected: "a", holds: "b", leaves: "a"},
		{name: "tolerated", placement: tolerate(""), drained: "a", holds: "a", stays: "a=DrainTolerated"},
		{name: "tolerated for a while", placement: tolerate(", tolerationSeconds: 60"), drained: "a", holds: "a", stays: "a=DrainDelayed"},
		{name: "tolerated for no longer", placement: tolerate(", tolerationSeconds: 0"), drained: "a", holds: "b", leaves: "a"},
		{name: "lost, too", placement: oneOf, drained: "a", taints: []v1alpha1.Taint{drained, unreachable}, disconnected: "a", holds: "b", leaves: "a"},
		{name: "lost, too, and each cluster has a copy", placement: "{}", drained: "a", taints: []v1alpha1.Taint{drained, unreachable}, disconnected: "a", holds: "a b c", stays: "a=CopyInEachCluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newLostFleet(t, tc.placement, tc.replicas, tc.free, newCluster("a"), newCluster("b"), newCluster("c"))
			if tc.taints == nil {
				tc.taints = []v1alpha1.Taint{drained}
			}
			f.KeepsLost = tc.exclusive
			f.drainClusters(tc.drained, tc.taints...)
			f.lost[tc.disconnected] = true
			for range 3 { // each decision is the same while the replacements start
				d := f.decideAndApply()
				holds := strings.Join(strings.Fields(formatOutcomes(d, OutcomePlaced)+" "+formatOutcomes(d, OutcomeKept)), " ")
				if leaves, stays := formatOutcomes(d, OutcomeLeaves), formatStays(d); holds != tc.holds || leaves != tc.leaves || stays != tc.stays {
					t.Fatalf("hold it %q, leaves %q, stays %q; want %q, %q and %q", holds, leaves, stays, tc.holds, tc.leaves, tc.stays)
				}
			}
		})
	}
}

// Two clusters that are drained at once may each be the other's only replacement. Both keep their copies and name the
// other one, and a copy moves when one is given back.
func TestDrainedClustersNameEachOther(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1}", 0, nil, newCluster("a"), newCluster("b"))
	f.drainClusters("a b", drained)
	d := f.decideAndApply()
	holder, other := "a", "b"
	if v, _ := d.FindVerdict("b"); v.IsHolder() {
		holder, other = "b", "a"
	}
	v, _ := d.FindVerdict(holder)
	if want := "no other cluster can take its place; drained or cordoned: " + other; v.Notes().DrainText != want || v.Notes().DrainReason != atoll.ReasonNoReplacement || !v.IsHolder() {
		t.Fatalf("%s: %s: %s, want %s", v, v.Notes().DrainReason, v.Notes().DrainText, want)
	}
	f.giveBack(other)
	if d = f.decideAndApply(); formatOutcomes(d, OutcomePlaced) != other || formatOutcomes(d, OutcomeLeaves) != holder {
		t.Errorf("after %s was given back: %+v", other, d.Verdicts)
	}
}

// A drain that ends in the middle moves nothing further, and takes nothing back that has its replacement.
func TestADrainEndsInTheMiddle(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}", 0, nil, newCluster("a"), newCluster("b"))
	f.drainClusters("a", drained)
	f.decideAndApply()
	f.giveBack("a")
	for range 3 {
		d := f.decideAndApply()
		if holds := formatOutcomes(d, OutcomePlaced); len(holds) != 1 {
			t.Fatalf("hold it: %q", holds)
		}
	}
}

// A hub that has just started does not take a drained cluster for disconnected.
func TestADrainGoesOnWhileConnectionsAreUncertain(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1}", 0, nil, newCluster("a"), newCluster("b"))
	holder := formatOutcomes(DecidePlacement(f.Input), OutcomePlaced)
	f.KeepsLost = true
	f.drainClusters(holder, drained)
	f.Facts = uncertainFacts{f.Facts}
	f.decideAndApply()
	if d := f.decideAndApply(); formatOutcomes(d, OutcomeLeaves) != holder {
		t.Errorf("%+v", d.Verdicts)
	}
}

// uncertainFacts are those of a hub that has just started.
type uncertainFacts struct{ FleetFacts }

func (uncertainFacts) ConnectionOf(*Cluster) Connection { return Uncertain }

// A row that leaves later says until when it stays.
func TestADelayedDrainHasATime(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1, clusterTolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 60}]}", 0, nil, newCluster("a"))
	f.drainClusters("a", drained)
	d := DecidePlacement(f.Input)
	if v, _ := d.FindVerdict("a"); !v.Notes().EvictAt.Equal(now.Add(time.Minute)) || !strings.HasPrefix(v.Notes().DrainText, "the placement tolerates the drain until ") {
		t.Errorf("%s until %s: %s", v, v.Notes().EvictAt, v.Notes().DrainText)
	}
}

// A placement that fits no cluster any more keeps its copies, and a drain of such a cluster says so.
func TestADrainOfACopyThatNoPlacementWants(t *testing.T) {
	f := newLostFleet(t, "{clusterAffinity: {clusterNames: [a]}}", 0, nil, newCluster("a"), newCluster("b"))
	f.Placement = parsePlacement(t, "{clusterAffinity: {clusterNames: [z]}}")
	f.drainClusters("a", drained)
	d := DecidePlacement(f.Input)
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeKept || v.Notes().DrainReason != atoll.ReasonNoReplacement {
		t.Errorf("%s, %q: %s", v, v.Notes().DrainReason, v.Notes().DrainText)
	}
}

// The drained clusters are listed once for a decision, and not for each row that stays.
func TestDrainedClustersAreListedOnce(t *testing.T) {
	for _, tc := range []struct {
		drained string
		lists   int
	}{{"a b", 0}, {"a b c", 1}} {
		f := newLostFleet(t, "{}", 0, nil, newCluster("a"), newCluster("b"), newCluster("c"))
		f.drainClusters(tc.drained, drained)
		lists := 0
		f.UnschedulableClusters = func() []Cluster { lists++; return f.Clusters }
		if d := DecidePlacement(f.Input); lists != tc.lists || len(strings.Fields(formatStays(d))) != len(strings.Fields(tc.drained)) {
			t.Errorf("%s: listed %d times: %s", tc.drained, lists, formatStays(d))
		}
	}
}

// However many clusters are drained and disconnected, something holds the Bundle, each row that stays in a drained cluster
// has a reason, and each further decision is the same.
func TestDrainsAreStable(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	const groups = "{clusterAffinities: [{affinityName: own, clusterNames: [a, b]}, {affinityName: near, clusterNames: [c, d]}]"
	for _, placement := range []string{"{}", "{maxClusters: 2}", groups + "}", groups + ", failback: {policy: WhenHealthy}}", "{maxClusters: 2, spreadConstraints: [{spreadByField: region, minGroups: 2}]}"} {
		for bits := range 1 << 10 {
			f := newLostFleet(t, placement, 0, nil, newCluster("a"), newCluster("b"), newCluster("c"), newCluster("d"))
			f.KeepsLost = bits&256 != 0
			taint := drained
			if bits&512 != 0 {
				taint.Value = v1alpha1.DrainRemoveUnreplaced
			}
			for i, name := range names {
				if bits&(1<<i) != 0 {
					f.drainClusters(name, taint)
				}
			}
			for i, name := range names {
				f.lost[name] = bits&(16<<i) != 0
			}
			held, first := len(f.Rows) > 0, ""
			for range 4 {
				d := f.decideAndApply()
				holds := formatOutcomes(d, OutcomePlaced) + formatOutcomes(d, OutcomeKept)
				if held && holds == "" {
					t.Fatalf("%s, %010b: nothing holds it", placement, bits)
				}
				for i, name := range names {
					if v, _ := d.FindVerdict(name); v.IsHolder() && bits&(1<<i) != 0 && v.Notes().DrainReason == "" {
						t.Fatalf("%s, %010b: %s stays for no reason: %s", placement, bits, name, v)
					}
				}
				outcomes := holds + "|" + formatOutcomes(d, OutcomeLeaves) + "|" + formatStays(d)
				if first = cmp.Or(first, outcomes); outcomes != first {
					t.Fatalf("%s, %010b: first %s, then %s", placement, bits, first, outcomes)
				}
			}
		}
	}
}
