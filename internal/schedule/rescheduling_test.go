package schedule

import (
	"fmt"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// A running Bundle moves to a better cluster if the placement permits it, after its dwell and by
// more than the cost, one at a time.
func TestMovesWhenBetter(t *testing.T) {
	const long, free = time.Hour, ", maxClusters: 2, scores: [{name: ResourceAvailable, resource: cpu}]}"
	for _, tc := range []struct {
		name, placement string
		ran             time.Duration
		a, b, c         int64 // free of 100
		want            string
		again           time.Duration // from now; 0: never
	}{
		{"never by default", "{rescheduling: {when: OnEdit}" + free, long, 0, 50, 100, "a b", 0},
		{"to the better", "{rescheduling: {when: WhenBetter}" + free, long, 30, 50, 100, "b c", 0},
		{"moveCost by default", "{rescheduling: {when: WhenBetter}" + free, long, 30, 50, 40, "a b", 0},
		{"moveCost less", "{rescheduling: {when: WhenBetter, moveCost: 99}" + free, long, 30, 50, 40, "b c", 0},
		{"moveCost more", "{rescheduling: {when: WhenBetter, moveCost: 700}" + free, long, 30, 50, 100, "a b", 0},
		{"moveCost none", "{rescheduling: {when: WhenBetter, moveCost: 0}" + free, long, 30, 50, 31, "b c", 0},
		{"minDwell by default", "{rescheduling: {when: WhenBetter}" + free, 4 * time.Minute, 30, 50, 100, "a b", 6 * time.Minute},
		{"minDwell is over", "{rescheduling: {when: WhenBetter, minDwell: 4m}" + free, 4 * time.Minute, 30, 50, 100, "b c", 0},
		{"minDwell of those that would not move", "{rescheduling: {when: WhenBetter, minDwell: 5m}" + free, 4 * time.Minute, 90, 90, 100, "a b", 0},
		{"steady", "{rescheduling: {when: WhenBetter}, maxClusters: 2, scores: [{name: ResourceAvailable, resource: cpu}, {name: Steady}]}", long, 30, 50, 100, "a b", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(newCluster("a", withCPUs(100, tc.a)), newCluster("b", withCPUs(100, tc.b)))
			p := parsePlacement(t, tc.placement)
			w.decideAndApply(p)
			for name, r := range w.rows {
				r.Since = now.Add(-tc.ran).Unix()
				w.rows[name] = r
			}
			w.clusters["c"] = newCluster("c", withCPUs(100, tc.c))
			d := w.decideAndApply(p)
			if got := formatOutcomes(d, OutcomePlaced); got != tc.want {
				t.Errorf("placed %s, want %s", got, tc.want)
			}
			if want := map[bool]time.Time{true: now.Add(tc.again)}[tc.again > 0]; !d.RecheckAt.Equal(want) {
				t.Errorf("looks again at %s, want %s", d.RecheckAt, want)
			}
			if v, _ := d.FindVerdict("a"); tc.want == "b c" && (v.Outcome != OutcomeLeaves || v.RowReason != atoll.ReasonMovedToBetter) {
				t.Errorf("a: %s, %s", v, v.RowReason)
			}
		})
	}
}

func TestMovesAreOneAtATimeAndKeepTheSpread(t *testing.T) {
	w := newWorld()
	for i, zone := range []string{"x", "x", "y"} {
		name := fmt.Sprint(zone, i)
		w.clusters[name] = newCluster(name, locatedIn("", zone, ""), withCPUs(100, 1))
	}
	p := parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 2, maxGroups: 2}], rescheduling: {when: WhenBetter, minDwell: 0s}, scores: [{name: ResourceAvailable, resource: cpu}]}")
	w.decideAndApply(p)
	for _, name := range []string{"x7", "x8", "z9"} {
		w.clusters[name] = newCluster(name, locatedIn("", name[:1], ""), withCPUs(100, 90))
	}
	// The one of y cannot move to x, which would be one group too few; and none of x to
	// z, one too many.
	for range 2 {
		d := w.decideAndApply(p)
		if formatOutcomes(d, OutcomeLeaves) == "" || len(formatOutcomes(d, OutcomeLeaves)) != 2 {
			t.Fatalf("leaving: %s, placed %s", formatOutcomes(d, OutcomeLeaves), formatOutcomes(d, OutcomePlaced))
		}
		if again := w.decideAndApply(p); formatOutcomes(again, OutcomeLeaves) != formatOutcomes(d, OutcomeLeaves) {
			t.Fatalf("before the one is gone, leaving: %s", formatOutcomes(again, OutcomeLeaves))
		} else if v, _ := again.FindVerdict(formatOutcomes(d, OutcomeLeaves)); v.Outcome != OutcomeLeaves {
			t.Fatalf("%s", v)
		}
		w.removeLeavingRows()
	}
	if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != "x7 x8 z9" && formatOutcomes(d, OutcomeLeaves) != "y2" {
		// y may go to z: that keeps two groups.
		t.Fatalf("placed %s, leaving %s", formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves))
	}
	w.removeLeavingRows()
	if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != "x7 x8 z9" || formatOutcomes(d, OutcomeLeaves) != "" {
		t.Fatalf("at the end placed %s, leaving %s", formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves))
	}
}

// The best cluster of all may be in a group that the spread refuses. Then the Bundle moves to the best one of
// another group.
func TestAMoveToTheBestClusterThatTheSpreadAllows(t *testing.T) {
	at := func(name string, free int64) Cluster {
		return newCluster(name, locatedIn("", name[:1], ""), withCPUs(100, free))
	}
	w := newWorld(at("x0", 10), at("x1", 50), at("y2", 95))
	p := parsePlacement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 2, maxGroups: 2}], rescheduling: {when: WhenBetter, minDwell: 0s}, scores: [{name: ResourceAvailable, resource: cpu}]}")
	w.decideAndApply(p)
	// A move of x0 or x1 to z9 would need a third group, and a move of y2 gains less than its cost.
	w.clusters["z9"], w.clusters["x7"] = at("z9", 100), at("x7", 70)
	if d := w.decideAndApply(p); formatOutcomes(d, OutcomePlaced) != "x1 x7 y2" || formatOutcomes(d, OutcomeLeaves) != "x0" {
		t.Errorf("placed %s, leaving %s; want a move from x0 to x7", formatOutcomes(d, OutcomePlaced), formatOutcomes(d, OutcomeLeaves))
	}
}
