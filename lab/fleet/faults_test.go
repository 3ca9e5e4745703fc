package fleet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRates: faults come at their rates, whatever the steps of the passes.
func TestRates(t *testing.T) {
	const agents, rows, minutes = 200, 3, 60
	s := &simulator{processConfig: processConfig{Seed: 7, Agents: agents, Prefix: "sim"}, shapes: newKeptManifestTable(), schedule: newTimerQueue()}
	s.rates.Store(&FaultRates{FlipsPerMinute: 2, RestartsPerHour: 3, OfflinePerMinute: 0.05, OfflineFor: time.Millisecond})
	moods := map[*heldBundle]healthMood{}
	for i := range agents {
		a := &simulatedAgent{sim: s, index: i}
		for _, m := range webBundles(rows) {
			a.storeManifest(&m)
		}
		for i := range a.holdings {
			moods[&a.holdings[i]] = moodReady
		}
		s.agents = append(s.agents, a)
	}
	f := &faultInjector{sim: s, rand: rand.New(rand.NewPCG(1, 2))}
	f.countMaxRows()
	now := time.Now()
	s.start = now.UnixNano()
	f.injectFaultsUntil(now)
	flips := map[*heldBundle]int{}
	for end := now.Add(minutes * time.Minute); now.Before(end); {
		now = now.Add(3700 * time.Millisecond)
		f.injectFaultsUntil(now)
		for h, was := range moods {
			if h.mood != was {
				moods[h] = h.mood
				flips[h]++
			}
		}
	}
	for h := range moods {
		if n, want := flips[h], 2*minutes; n < want-1 || n > want+1 {
			t.Fatalf("a row flipped %d times, want %d", n, want)
		}
	}
	for what, c := range map[string]struct{ got, want float64 }{
		"restarts": {float64(s.counts.restarts.Load()), 3 * minutes / 60 * agents},
		"outages":  {float64(s.counts.outages.Load()), 0.05 * minutes * agents},
	} {
		if math.Abs(c.got-c.want) > 0.15*c.want {
			t.Errorf("%s: %v, want about %v", what, c.got, c.want)
		}
	}
}
