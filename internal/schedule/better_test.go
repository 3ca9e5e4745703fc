package schedule

import (
	"fmt"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// What runs moves to a better cluster where the placement says so, after its dwell and by
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
			w := newWorld(cluster("a", cpus(100, tc.a)), cluster("b", cpus(100, tc.b)))
			p := placement(t, tc.placement)
			w.decide(p)
			for name, r := range w.rows {
				r.Since = now.Add(-tc.ran).Unix()
				w.rows[name] = r
			}
			w.clusters["c"] = cluster("c", cpus(100, tc.c))
			d := w.decide(p)
			if got := outcomes(d, Placed); got != tc.want {
				t.Errorf("placed %s, want %s", got, tc.want)
			}
			if want := map[bool]time.Time{true: now.Add(tc.again)}[tc.again > 0]; !d.LookAt.Equal(want) {
				t.Errorf("looks again at %s, want %s", d.LookAt, want)
			}
			if v, _ := d.Verdict("a"); tc.want == "b c" && (v.Outcome != Leaves || v.Word != atoll.RowMoved) {
				t.Errorf("a: %s, %s", v, v.Word)
			}
		})
	}
}

func TestMovesAreOneAtATimeAndKeepTheSpread(t *testing.T) {
	w := newWorld()
	for i, zone := range []string{"x", "x", "y"} {
		name := fmt.Sprint(zone, i)
		w.clusters[name] = cluster(name, where("", zone, ""), cpus(100, 1))
	}
	p := placement(t, "{maxClusters: 3, spreadConstraints: [{spreadByField: zone, minGroups: 2, maxGroups: 2}], rescheduling: {when: WhenBetter, minDwell: 0s}, scores: [{name: ResourceAvailable, resource: cpu}]}")
	w.decide(p)
	for _, name := range []string{"x7", "x8", "z9"} {
		w.clusters[name] = cluster(name, where("", name[:1], ""), cpus(100, 90))
	}
	// The one of y cannot move to x, which would be one group too few; and none of x to
	// z, one too many.
	for range 2 {
		d := w.decide(p)
		if outcomes(d, Leaves) == "" || len(outcomes(d, Leaves)) != 2 {
			t.Fatalf("leaving: %s, placed %s", outcomes(d, Leaves), outcomes(d, Placed))
		}
		if again := w.decide(p); outcomes(again, Leaves) != outcomes(d, Leaves) {
			t.Fatalf("before the one is gone, leaving: %s", outcomes(again, Leaves))
		} else if v, _ := again.Verdict(outcomes(d, Leaves)); v.Outcome != Leaves {
			t.Fatalf("%s", v)
		}
		w.gone()
	}
	if d := w.decide(p); outcomes(d, Placed) != "x7 x8 z9" && outcomes(d, Leaves) != "y2" {
		// y may go to z: that keeps two groups.
		t.Fatalf("placed %s, leaving %s", outcomes(d, Placed), outcomes(d, Leaves))
	}
	w.gone()
	if d := w.decide(p); outcomes(d, Placed) != "x7 x8 z9" || outcomes(d, Leaves) != "" {
		t.Fatalf("at the end placed %s, leaving %s", outcomes(d, Placed), outcomes(d, Leaves))
	}
}
