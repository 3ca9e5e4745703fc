package fleet

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

const (
	// befallEvery is how often it is looked what befalls whom.
	befallEvery = 50 * time.Millisecond
	// failureLeast is how long a Bundle stays Degraded at least.
	failureLeast = 5 * time.Second
	// restartPause is how long an agent's process takes to start, twice that at most.
	restartPause = time.Second
)

// fate draws what befalls the members and agents of a process.
type fate struct {
	sim   *sim
	rates *Rates
	rand  *rand.Rand
	rows  int // that any agent has at most
	// last time that was looked, and the next of each that comes by chance.
	last                      time.Time
	failures, restarts, falls time.Time
}

// befall makes the rates come true until ctx ends.
func (s *sim) befall(ctx context.Context) {
	f := &fate{sim: s, rand: rand.New(rand.NewPCG(s.Seed, uint64(s.Process)))}
	ticker := time.NewTicker(befallEvery)
	defer ticker.Stop()
	counted := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if now.Sub(counted) > time.Second {
				f.count()
				counted = now
			}
			f.pass(now)
		}
	}
}

// count the rows of the agent that has most.
func (f *fate) count() {
	f.rows = 0
	for _, a := range f.sim.agents {
		a.mu.Lock()
		f.rows = max(f.rows, len(a.holdings))
		a.mu.Unlock()
	}
}

// pass of time up to now.
func (f *fate) pass(now time.Time) {
	if r := f.sim.rates.Load(); r != f.rates || f.last.IsZero() {
		f.rates, f.last = r, now
		f.failures, f.restarts, f.falls = f.next(now, f.failureRate()), f.next(now, f.restartRate()), f.next(now, f.fallRate())
		return
	}
	f.flips(f.last, now)
	for ; !f.failures.After(now); f.failures = f.next(f.failures, f.failureRate()) {
		a, row := f.any(), f.rand.IntN(max(1, f.rows))
		a.change(row, (*agent).fail)
	}
	for ; !f.restarts.After(now); f.restarts = f.next(f.restarts, f.restartRate()) {
		f.any().restart()
	}
	for ; !f.falls.After(now); f.falls = f.next(f.falls, f.fallRate()) {
		f.any().drop(f.rates.OfflineFor, f.rand.IntN(2) == 0)
	}
	f.last = now
}

func (f *fate) any() *agent { return f.sim.agents[f.rand.IntN(len(f.sim.agents))] }

// Rates per second, of the whole process.
func (f *fate) failureRate() float64 {
	return f.rates.FailuresPerHour / 3600 * float64(len(f.sim.agents)*max(1, f.rows))
}
func (f *fate) restartRate() float64 {
	return f.rates.RestartsPerHour / 3600 * float64(len(f.sim.agents))
}
func (f *fate) fallRate() float64 {
	return f.rates.OfflinePerMinute / 60 * float64(len(f.sim.agents))
}

// next time of something that comes so often by chance; never, for a rate of 0.
func (f *fate) next(after time.Time, perSecond float64) time.Time {
	if perSecond <= 0 {
		return after.Add(1000 * time.Hour)
	}
	return after.Add(time.Duration(f.rand.ExpFloat64() / perSecond * float64(time.Second)))
}

// flips of all rows, each at its own point of the period. The n-th rows of the agents
// follow each other, so that those that are due are a range of agents.
func (f *fate) flips(from, to time.Time) {
	if f.rates.FlipsPerMinute <= 0 {
		return
	}
	period := float64(time.Minute) / f.rates.FlipsPerMinute
	for row := range f.rows {
		begin := float64(from.UnixNano()-f.sim.start)/period + float64(row)*math.Phi
		end := float64(to.UnixNano()-f.sim.start)/period + float64(row)*math.Phi
		n := float64(len(f.sim.agents))
		for i := math.Ceil(begin * n); i < end*n; i++ {
			f.sim.agents[int(math.Mod(i, n))].change(row, (*agent).flip)
		}
	}
}

// change the n-th row of the agent.
func (a *agent) change(row int, how func(*agent, *holding)) {
	a.mu.Lock()
	if row < len(a.holdings) && !a.holdings[row].shape.remove {
		h := &a.holdings[row]
		how(a, h)
		a.report(h)
	}
	l := a.link
	a.mu.Unlock()
	l.flush()
}

// flip the health of a row: Ready, Degraded. The caller holds mu.
func (a *agent) flip(h *holding) {
	switch h.mood {
	case moodReady:
		h.turn(moodDegraded, time.Now())
	case moodDegraded:
		h.turn(moodReady, time.Now())
	}
}

// fail a row, for a while. The caller holds mu.
func (a *agent) fail(h *holding) {
	if h.mood == moodReady {
		h.turn(moodDegraded, time.Now())
		a.turnLater(h, moodReady, max(failureLeast, a.delay()))
	}
}

// restart the agent's process.
func (a *agent) restart() {
	a.sim.counts.restarts.Add(1)
	a.mu.Lock()
	l := a.link
	a.link = nil
	a.newInstance()
	a.wait = 0
	if l != nil {
		a.dialIn(restartPause + time.Duration(a.draw()*float64(restartPause)))
	}
	a.mu.Unlock()
	if l != nil {
		l.wire.cut()
	}
}

// drop the agent's link for a while. A silent one stays open and carries nothing.
func (a *agent) drop(pause time.Duration, silent bool) {
	a.sim.counts.outages.Add(1)
	a.mu.Lock()
	l := a.link
	a.link, a.core = nil, nil
	a.away = time.Now().Add(pause).UnixNano()
	if l != nil {
		a.dialIn(pause)
	}
	a.mu.Unlock()
	switch {
	case l == nil:
	case silent:
		l.wire.silent.Store(true)
		a.sim.schedule.in(pause, l.wire.cut)
	default:
		l.wire.cut()
	}
}
