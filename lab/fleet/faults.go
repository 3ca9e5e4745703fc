package fleet

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

const (
	// faultPeriod is the time between two passes of the fault injector.
	faultPeriod = 50 * time.Millisecond
	// failureLeast is the shortest time for which a Bundle stays Degraded.
	failureLeast = 5 * time.Second
	// restartPause is the shortest start time of an agent's process; the longest is twice
	// as long.
	restartPause = time.Second
)

// faultInjector draws faults of the members and agents of a process.
type faultInjector struct {
	sim        *simulator
	faultRates *FaultRates
	rand       *rand.Rand
	maxRows    int // the most rows of any agent
	// lastPass is the time of the last pass; the others are the next times of random
	// faults.
	lastPass                             time.Time
	nextFailure, nextRestart, nextOutage time.Time
}

// injectFaults injects faults by the rates until ctx ends.
func (s *simulator) injectFaults(ctx context.Context) {
	f := &faultInjector{sim: s, rand: rand.New(rand.NewPCG(s.Seed, uint64(s.Process)))}
	ticker := time.NewTicker(faultPeriod)
	defer ticker.Stop()
	counted := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if now.Sub(counted) > time.Second {
				f.countMaxRows()
				counted = now
			}
			f.injectFaultsUntil(now)
		}
	}
}

// countMaxRows counts the rows of the agent with most rows.
func (f *faultInjector) countMaxRows() {
	f.maxRows = 0
	for _, a := range f.sim.agents {
		a.mu.Lock()
		f.maxRows = max(f.maxRows, len(a.holdings))
		a.mu.Unlock()
	}
}

// injectFaultsUntil injects the faults between the last pass and now.
func (f *faultInjector) injectFaultsUntil(now time.Time) {
	if r := f.sim.rates.Load(); r != f.faultRates || f.lastPass.IsZero() {
		f.faultRates, f.lastPass = r, now
		f.nextFailure, f.nextRestart, f.nextOutage = f.nextFaultTime(now, f.failureRate()), f.nextFaultTime(now, f.restartRate()), f.nextFaultTime(now, f.offlineRate())
		return
	}
	f.flipDueRows(f.lastPass, now)
	for ; !f.nextFailure.After(now); f.nextFailure = f.nextFaultTime(f.nextFailure, f.failureRate()) {
		a, row := f.randomAgent(), f.rand.IntN(max(1, f.maxRows))
		a.changeRow(row, (*simulatedAgent).degradeRow)
	}
	for ; !f.nextRestart.After(now); f.nextRestart = f.nextFaultTime(f.nextRestart, f.restartRate()) {
		f.randomAgent().restartProcess()
	}
	for ; !f.nextOutage.After(now); f.nextOutage = f.nextFaultTime(f.nextOutage, f.offlineRate()) {
		f.randomAgent().dropLink(f.faultRates.OfflineFor, f.rand.IntN(2) == 0)
	}
	f.lastPass = now
}

func (f *faultInjector) randomAgent() *simulatedAgent {
	return f.sim.agents[f.rand.IntN(len(f.sim.agents))]
}

// failureRate returns the row failures per second of the whole process.
func (f *faultInjector) failureRate() float64 {
	return f.faultRates.FailuresPerHour / 3600 * float64(len(f.sim.agents)*max(1, f.maxRows))
}
func (f *faultInjector) restartRate() float64 {
	return f.faultRates.RestartsPerHour / 3600 * float64(len(f.sim.agents))
}
func (f *faultInjector) offlineRate() float64 {
	return f.faultRates.OfflinePerMinute / 60 * float64(len(f.sim.agents))
}

// nextFaultTime returns the next time of a random fault; never for a rate of 0.
func (f *faultInjector) nextFaultTime(after time.Time, perSecond float64) time.Time {
	if perSecond <= 0 {
		return after.Add(1000 * time.Hour)
	}
	return after.Add(time.Duration(f.rand.ExpFloat64() / perSecond * float64(time.Second)))
}

// flipDueRows flips the rows whose point in the period has passed. The n-th rows of the
// agents follow each other, so that the due ones belong to a range of agents.
func (f *faultInjector) flipDueRows(from, to time.Time) {
	if f.faultRates.FlipsPerMinute <= 0 {
		return
	}
	period := float64(time.Minute) / f.faultRates.FlipsPerMinute
	for row := range f.maxRows {
		begin := float64(from.UnixNano()-f.sim.start)/period + float64(row)*math.Phi
		end := float64(to.UnixNano()-f.sim.start)/period + float64(row)*math.Phi
		n := float64(len(f.sim.agents))
		for i := math.Ceil(begin * n); i < end*n; i++ {
			f.sim.agents[int(math.Mod(i, n))].changeRow(row, (*simulatedAgent).flipHealth)
		}
	}
}

// changeRow applies a change to the n-th row of the agent.
func (a *simulatedAgent) changeRow(row int, how func(*simulatedAgent, *heldBundle)) {
	a.mu.Lock()
	if row < len(a.holdings) && !a.holdings[row].shape.isRemoval {
		h := &a.holdings[row]
		how(a, h)
		a.reportBundle(h)
	}
	l := a.session
	a.mu.Unlock()
	l.flushFrames()
}

// flipHealth changes the health of a row between Ready and Degraded. The caller holds mu.
func (a *simulatedAgent) flipHealth(h *heldBundle) {
	switch h.mood {
	case moodReady:
		h.setMood(moodDegraded, time.Now())
	case moodDegraded:
		h.setMood(moodReady, time.Now())
	}
}

// degradeRow makes a row Degraded for a while. The caller holds mu.
func (a *simulatedAgent) degradeRow(h *heldBundle) {
	if h.mood == moodReady {
		h.setMood(moodDegraded, time.Now())
		a.changeMoodLater(h, moodReady, max(failureLeast, a.drawReadyDelay()))
	}
}

// restartProcess restarts the agent's process.
func (a *simulatedAgent) restartProcess() {
	a.sim.counts.restarts.Add(1)
	a.mu.Lock()
	l := a.session
	a.session = nil
	a.becomeNewInstance()
	a.redialPause = 0
	if l != nil {
		a.scheduleDial(restartPause + time.Duration(a.drawUniform()*float64(restartPause)))
	}
	a.mu.Unlock()
	if l != nil {
		l.wire.cutWithReset()
	}
}

// dropLink drops the agent's link for a while. A silent link stays open and carries
// nothing.
func (a *simulatedAgent) dropLink(pause time.Duration, silent bool) {
	a.sim.counts.outages.Add(1)
	a.mu.Lock()
	l := a.session
	a.session, a.core = nil, nil
	a.awayUntil = time.Now().Add(pause).UnixNano()
	if l != nil {
		a.scheduleDial(pause)
	}
	a.mu.Unlock()
	switch {
	case l == nil:
	case silent:
		l.wire.isSilent.Store(true)
		a.sim.schedule.runAfter(pause, l.wire.cutWithReset)
	default:
		l.wire.cutWithReset()
	}
}
