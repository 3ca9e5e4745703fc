package fleet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRates: what befalls a fleet comes as often as it should, whatever the steps in
// which it is looked at.
func TestRates(t *testing.T) {
	const agents, rows, minutes = 200, 3, 60
	s := &sim{crew: crew{Seed: 7, Agents: agents, Prefix: "sim"}, shapes: newShapes(), schedule: newSchedule()}
	s.rates.Store(&Rates{FlipsPerMinute: 2, RestartsPerHour: 3, OfflinePerMinute: 0.05, OfflineFor: time.Millisecond})
	moods := map[*holding]mood{}
	for i := range agents {
		a := &agent{sim: s, index: i}
		for _, m := range webs(rows) {
			a.store(&m)
		}
		for i := range a.holdings {
			moods[&a.holdings[i]] = moodReady
		}
		s.agents = append(s.agents, a)
	}
	f := &fate{sim: s, rand: rand.New(rand.NewPCG(1, 2))}
	f.count()
	now := time.Now()
	s.start = now.UnixNano()
	f.pass(now)
	flips := map[*holding]int{}
	for end := now.Add(minutes * time.Minute); now.Before(end); {
		now = now.Add(3700 * time.Millisecond)
		f.pass(now)
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
