package bench

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/lab/bench/measure"
)

// A round ends with the last of seven events. Events of other Deployments and of the hub's own object
// count for nothing, and one before the return of apply counts as zero.
func TestARoundEndsWithItsLastEvent(t *testing.T) {
	applied := time.Unix(1000, 0)
	seen := make(chan sighting, 20)
	send := func(name, where string, isAvailable bool, after time.Duration) {
		seen <- sighting{name: name, where: where, isAvailable: isAvailable, at: applied.Add(after * time.Millisecond)}
	}
	send("web", hubName, false, 1)
	send("other", "member1", false, 900)
	send("web", "member1", false, -5)
	send("web", "member2", false, 60)
	send("web", "member3", false, 40)
	send("web", "member1", true, 130)
	send("web", "member2", true, 110)
	send("web", hubName, true, 300)
	send("web", "member3", true, 250)
	r, err := measureRound(t.Context(), seen, "web", awaitedSightings{applied: applied, onHub: true})
	want := latencyRound{exists: 60 * time.Millisecond, available: 250 * time.Millisecond, shown: 300 * time.Millisecond}
	if err != nil || r != want {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}

	for i, member := range memberNames { // without the hub
		send("direct", member, false, 5)
		send("direct", member, true, time.Duration(100+i))
	}
	r, err = measureRound(t.Context(), seen, "direct", awaitedSightings{applied: applied})
	if want := (latencyRound{exists: 5 * time.Millisecond, available: 102 * time.Millisecond}); err != nil || r != want {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
}

func TestLatencyNumbers(t *testing.T) {
	var rounds []latencyRound
	for i := range 20 { // 1 to 20 ms, and shown 5 ms later, the last one 50 ms
		ms := time.Duration(20-i) * time.Millisecond
		rounds = append(rounds, latencyRound{exists: ms, available: 10 * ms, shown: 10*ms + 5*time.Millisecond})
	}
	rounds[19].shown = rounds[19].available + 50*time.Millisecond // of the 1 ms one
	got := latencyNumbers(rounds, "stages")
	for i, want := range []float64{0.011, 0.020, 0.115, 0.050} {
		if diff := got[i].Value - want; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s is %v, want %v", got[i].What, got[i].Value, want)
		}
	}
	if n := directNumber(rounds); n.Value != 0.110 {
		t.Errorf("%s is %v", n.What, n.Value)
	}
	if got[0].Detail != "stages" {
		t.Errorf("the detail is %q", got[0].Detail)
	}
}

func TestDescribeStages(t *testing.T) {
	before := map[string]measure.Histogram{"bound": {Sum: 1, Count: 10}}
	after := map[string]measure.Histogram{"bound": {Sum: 1.1, Count: 20}, "shown": {Sum: 0.9, Count: 3}, "healthy": {}}
	got := describeStages(before, after)
	if !strings.HasSuffix(got, ": bound after 10 ms (bind), shown after 300 ms (summarise)") {
		t.Errorf("%s", got)
	}
}
