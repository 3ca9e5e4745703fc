package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// failIn lets the application fail in clusters.
func (f *lostFleet) failIn(names string) {
	f.FailedClusters = failuresIn(names, time.Time{})
}

func failuresIn(names string, until time.Time) map[string]FailedCluster {
	out := map[string]FailedCluster{}
	for _, name := range strings.Fields(names) {
		out[name] = FailedCluster{UID: "uid-" + name, Reason: "it failed", AvoidedUntil: until}
	}
	return out
}

// formatFailures lists the clusters that stay although the application is unhealthy there, with their reasons.
func formatFailures(d Decision) string {
	var out []string
	for _, v := range d.Verdicts {
		if v.Notes().FailureReason != "" {
			out = append(out, v.Cluster+"="+strings.TrimPrefix(string(v.Notes().FailureReason), "Failover"))
		}
	}
	return strings.Join(out, " ")
}

func TestFailedClustersLoseOnlyToReplacements(t *testing.T) {
	const oneOf = "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}"
	const twoOf = "{maxClusters: 2, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a, b]}}]}"
	const divided = "{replicaScheduling: {replicaSchedulingType: Divided}}"
	const byCapacity = "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}"
	const groups = "{clusterAffinities: [{affinityName: own, clusterNames: [a]}, {affinityName: near, clusterNames: [c]}]}"
	const widerGroups = "{clusterAffinities: [{affinityName: own, clusterNames: [a, b]}, {affinityName: near, clusterNames: [c]}]}"
	for _, tc := range []struct {
		name, placement string
		replicas        int64
		free            map[string]int64
		failed          string
		exclusive       bool
		disconnected    string
		holds, leaves   string
		stays           string
	}{
		{name: "another cluster is chosen", placement: oneOf, failed: "a", holds: "b", leaves: "a"},
		{name: "exclusive copies leave, too", placement: oneOf, failed: "a", exclusive: true, holds: "b", leaves: "a"},
		{name: "exclusive copies of a disconnected cluster stay", placement: oneOf, failed: "a", exclusive: true, disconnected: "a", holds: "a"},
		{name: "each cluster has a copy", placement: "{}", failed: "a", holds: "a b c", stays: "a=Unreplaced"},
		{name: "named alone", placement: "{clusterAffinity: {clusterNames: [a]}}", failed: "a", holds: "a", stays: "a=Unreplaced"},
		{name: "the one of one that fits", placement: "{maxClusters: 1, clusterAffinity: {clusterNames: [a]}}", failed: "a", holds: "a", stays: "a=Unreplaced"},
		{name: "the other clusters are disconnected", placement: oneOf, failed: "a", disconnected: "b c", holds: "a", stays: "a=Unreplaced"},
		{name: "the next best cluster is disconnected", placement: oneOf, failed: "a", disconnected: "b", holds: "c", leaves: "a"},
		{name: "one of two", placement: twoOf, failed: "a", holds: "b c", leaves: "a"},
		{name: "both of two, with one place", placement: twoOf, failed: "a b", holds: "a c", leaves: "b", stays: "a=Unreplaced"},
		{name: "all that fit", placement: twoOf, failed: "a b c", holds: "a b", stays: "a=Unreplaced b=Unreplaced"},
		{name: "replicas are divided among the others", placement: divided, replicas: 6, failed: "a", holds: "b c", leaves: "a"},
		{name: "replicas that no connected cluster takes", placement: divided, replicas: 6, failed: "a", disconnected: "b c", holds: "a b c", stays: "a=Unreplaced"},
		{name: "the others have the capacity", placement: byCapacity, replicas: 6, free: map[string]int64{"a": 9, "b": 9, "c": 9}, failed: "a", holds: "b c", leaves: "a"},
		{name: "the others lack the capacity", placement: byCapacity, replicas: 26, free: map[string]int64{"a": 9, "b": 9, "c": 9}, failed: "a", holds: "a b c", stays: "a=Unreplaced"},
		{name: "a later group", placement: groups, failed: "a", holds: "c", leaves: "a"},
		{name: "a later group in which it failed, too", placement: groups, failed: "a c", holds: "a", stays: "a=Unreplaced"},
		{name: "a part of a group", placement: widerGroups, failed: "a", holds: "a b", stays: "a=Unreplaced"},
		{name: "a whole group", placement: widerGroups, failed: "a b", holds: "c", leaves: "a b"},
		{name: "a later group that is disconnected", placement: groups, failed: "a", disconnected: "c", holds: "a", stays: "a=Unreplaced"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newLostFleet(t, tc.placement, tc.replicas, tc.free, newCluster("a"), newCluster("b"), newCluster("c"))
			for _, name := range strings.Fields(tc.disconnected) {
				f.lost[name] = true
			}
			f.KeepsLost = tc.exclusive
			f.failIn(tc.failed)
			for range 3 { // each decision is the same while the replacements start
				short := f.Input
				short.SkipExplanations = true
				if d := DecidePlacement(short); describeHolders(d) != tc.holds {
					t.Fatalf("without explanations it is in %q, want %q", describeHolders(d), tc.holds)
				}
				d := f.decideAndApply()
				if leaves, stays := formatOutcomes(d, OutcomeLeaves), formatFailures(d); describeHolders(d) != tc.holds || leaves != tc.leaves || stays != tc.stays {
					t.Fatalf("hold it %q, leaves %q, stays %q; want %q, %q and %q", describeHolders(d), leaves, stays, tc.holds, tc.leaves, tc.stays)
				}
			}
		})
	}
}

// describeHolders lists the clusters that are to hold the Bundle.
func describeHolders(d Decision) string {
	var out []string
	for i := range d.Verdicts {
		if d.Verdicts[i].IsHolder() {
			out = append(out, d.Verdicts[i].Cluster)
		}
	}
	return strings.Join(out, " ")
}

// A cluster that is avoided gets no new copy, and explanations name the end. An entry of another Cluster of that name is none.
func TestAnAvoidedClusterIsNotChosen(t *testing.T) {
	in := Input{BundleUID: "b", Placement: parsePlacement(t, "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}"), Now: now,
		Clusters: []Cluster{newCluster("a"), newCluster("b")}, FailedClusters: failuresIn("a", now.Add(time.Hour))}
	for _, skips := range []bool{false, true} {
		in.SkipExplanations = skips
		d := DecidePlacement(in)
		if got := describeHolders(d); got != "b" {
			t.Errorf("chosen: %q, skips explanations: %t", got, skips)
		}
		if v, has := d.FindVerdict("a"); has == skips || has && (v.Filter != FilterFailover || v.ReasonCode() != atoll.ReasonApplicationFailed || v.Reason != "it failed; it is avoided until 2026-01-02T04:04:05Z") {
			t.Errorf("the verdict on a: %s, skips explanations: %t", v, skips)
		}
	}
	in.SkipExplanations, in.FailedClusters["a"] = true, FailedCluster{UID: "another"}
	if got := describeHolders(DecidePlacement(in)); got != "a" {
		t.Errorf("after the Cluster was replaced: %q", got)
	}
}

// The old copy of a move leaves on while its cluster is avoided, also while the new one fails, and is used again if nothing else is left.
func TestAnOldCopyOfAFailureLeavesOn(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}", 0, nil, newCluster("a"), newCluster("b"), newCluster("c"))
	f.failIn("a")
	f.expectOutcomes(t, "a failed", "b", "a")
	f.FailedClusters = failuresIn("a", now.Add(time.Hour))
	f.expectOutcomes(t, "a is avoided", "b", "a")
	f.FailedClusters = failuresIn("a b", now.Add(time.Hour))
	f.expectOutcomes(t, "b failed, too", "c", "a b")
	f.FailedClusters = failuresIn("a b c", now.Add(time.Hour))
	for range 3 {
		if d := f.decideAndApply(); describeHolders(d) != "c" || formatOutcomes(d, OutcomeLeaves) != "a b" || formatFailures(d) != "c=Unreplaced" || !d.NoFit {
			t.Fatalf("all failed: %s, stays %s", describeVerdicts(d), formatFailures(d))
		}
	}
	f.Clusters = f.Clusters[:2]
	if d := f.decideAndApply(); describeHolders(d) == "" {
		t.Errorf("c is gone: %s", describeVerdicts(d))
	}
}

// A replacement that fails keeps its place where nothing else has one, and the old copy leaves on.
func TestAReplacementThatFailsKeepsItsPlace(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 2, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a, b]}}]}", 0, nil, newCluster("a"), newCluster("b"), newCluster("c"))
	f.failIn("a")
	f.expectOutcomes(t, "a failed", "b c", "a")
	f.FailedClusters = failuresIn("a c", now.Add(time.Hour))
	f.expectOutcomes(t, "c failed, too", "b c", "a")
	if d := DecidePlacement(f.Input); formatFailures(d) != "c=Unreplaced" {
		t.Errorf("stays: %s", formatFailures(d))
	}
}

// Without its entry, the old copy goes on to leave for the reason that its row stores.
func TestTheReasonOfAFailureStays(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}", 0, nil, newCluster("a"), newCluster("b"))
	f.failIn("a")
	f.expectOutcomes(t, "a failed", "b", "a")
	row := f.Rows["a"]
	for _, stored := range []string{"ApplicationFailed: it failed", "FailedCopyKept plan=abc: ApplicationFailed: it failed", "ReplacementsNotReady plan=abc: ApplicationFailed: it failed"} {
		row.Reason = stored
		f.Rows["a"], f.FailedClusters = row, nil
		d := DecidePlacement(f.Input)
		if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeLeaves || !v.LeavesFailed || v.RowReason != atoll.ReasonApplicationFailed || v.Reason != "it failed" {
			t.Errorf("stored %q: %s, %s", stored, v, v.RowReason)
		}
	}
	row.Reason = "PlacementEdited: other"
	if f.Rows["a"] = row; formatOutcomes(DecidePlacement(f.Input), OutcomeLeaves) != "a" {
		t.Error("a row that leaves for an edit stays")
	}
	if v, _ := DecidePlacement(f.Input).FindVerdict("a"); v.LeavesFailed {
		t.Error("a row that leaves for an edit leaves for its health")
	}
}

// A copy that a bound keeps has the reason of the bound, and moves nothing.
func TestABoundOfFailuresKeepsTheCopy(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1}", 0, nil, newCluster("a"), newCluster("b"))
	holder := describeHolders(DecidePlacement(f.Input))
	f.FailedClusters = map[string]FailedCluster{holder: {UID: "uid-" + holder, StayReason: atoll.ReasonFailoverLimitReached, StayText: "too many"}}
	d := f.decideAndApply()
	if v, _ := d.FindVerdict(holder); describeHolders(d) != holder || v.Outcome != OutcomePlaced || v.Notes().FailureReason != atoll.ReasonFailoverLimitReached || v.Notes().FailureText != "too many" {
		t.Errorf("%s: %s: %s", v, v.Notes().FailureReason, v.Notes().FailureText)
	}
}

// A drain comes before a failure, so that its own rules hold.
func TestADrainComesBeforeAFailure(t *testing.T) {
	f := newLostFleet(t, "{maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [a]}}]}", 0, nil, newCluster("a"), newCluster("b"))
	f.drainClusters("a", drained)
	f.failIn("a")
	if v, _ := DecidePlacement(f.Input).FindVerdict("a"); !v.LeavesDrained || v.LeavesFailed || v.RowReason != atoll.ReasonEvicted {
		t.Errorf("%s: drained %t, failed %t", v, v.LeavesDrained, v.LeavesFailed)
	}
}

// Random fleets with random failures: nothing leaves that has nowhere to go, nothing comes to a failed cluster, and decisions depend on no order
// and come to rest.
func TestFailuresOfRandomFleets(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := randomConnectionWorld(t, r)
		w.changeConnections(r)
		if failure := w.findUnrest(); failure != "" {
			t.Fatalf("seed %d: %s", seed, failure)
		}
		was, before := w.String(), maps.Clone(w.rows)
		if w.failed = map[string]FailedCluster{}; w.applyStep() != was {
			t.Fatalf("seed %d: no failure changes %s to %s: %s", seed, was, w, w.describe())
		}
		for _, c := range w.clusters {
			if r.IntN(3) == 0 {
				w.failed[c.Name] = FailedCluster{UID: c.UID, Reason: "it failed"}
			}
		}
		d, _ := w.decideOnce()
		if failure := w.findFailureDefect(d, before); failure != "" {
			t.Fatalf("seed %d: %s: failed %v, before %s: %s", seed, failure, slices.Sorted(maps.Keys(w.failed)), was, w.describe())
		}
		other := *w
		other.clusters = slices.Clone(w.clusters)
		r.Shuffle(len(other.clusters), func(i, k int) { other.clusters[i], other.clusters[k] = other.clusters[k], other.clusters[i] })
		if d2, _ := other.decideOnce(); describeVerdicts(d2) != describeVerdicts(d) {
			t.Fatalf("seed %d: in another order %s, want %s", seed, describeVerdicts(d2), describeVerdicts(d))
		}
	}
}

// findFailureDefect returns what a decision with failures breaks; empty: nothing.
func (w *connectionWorld) findFailureDefect(d Decision, before map[string]atoll.RowSpec) string {
	holds, connected := 0, false
	for _, v := range d.Verdicts {
		_, held := before[v.Cluster]
		_, failed := w.failed[v.Cluster]
		switch {
		case v.IsHolder() && failed && !held:
			return "it comes to " + v.Cluster
		case v.IsHolder():
			holds++
			connected = connected || !w.down[v.Cluster] || held
		case held && !failed && v.Outcome == OutcomeLeaves && v.RowReason == atoll.ReasonApplicationFailed:
			return v.Cluster + " leaves without a failure"
		}
	}
	if len(before) > 0 && (holds == 0 || !connected) {
		return fmt.Sprintf("%d clusters hold it, in touch: %t", holds, connected)
	}
	return ""
}
