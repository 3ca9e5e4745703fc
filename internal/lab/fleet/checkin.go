package fleet

import "time"

const (
	// quiet is how long nothing came from the hub when a check-in is over: orders
	// follow a Welcome at once.
	quiet = 300 * time.Millisecond
	// lingerMost is how long a check-in waits for Bundles to become healthy.
	lingerMost = 3 * time.Second
	// checkInJitter is the share by which the time between check-ins varies.
	checkInJitter = 0.1
)

// firstDial of an agent that joined: the n-th of its process. Check-ins are spread
// evenly over the interval. The caller holds mu.
func (s *sim) firstDial(a *agent, n int) {
	if s.CheckIn <= 0 {
		a.dialIn(0)
		return
	}
	slot := time.Duration(float64(s.CheckIn) * float64(n) / float64(len(s.agents)))
	passed := time.Duration(time.Now().UnixNano()-s.start) % s.CheckIn
	a.dialIn((slot - passed + s.CheckIn) % s.CheckIn)
}

// leave until the next check-in. The caller holds mu.
func (a *agent) leave() {
	a.sim.counts.checkIns.Add(1)
	a.wait = 0
	interval := float64(a.sim.CheckIn)
	a.dialIn(time.Duration(interval * (1 - checkInJitter/2 + checkInJitter*a.draw())))
}

// leaveSoon ends the session once everything is told. The caller holds the agent's
// mutex.
func (l *link) leaveSoon() {
	l.agent.sim.schedule.in(quiet, func() {
		a := l.agent
		a.mu.Lock()
		if a.link != l {
			a.mu.Unlock()
			return
		}
		if !l.settled(time.Now()) {
			l.leaveSoon()
			a.mu.Unlock()
			return
		}
		l.leaving = true
		a.mu.Unlock()
		l.call.CloseSend()
		a.sim.schedule.in(refusedLeast, l.call.Close) // a hub that does not answer
	})
}

// settled tells whether the check-in has done what it came for. The caller holds the
// agent's mutex.
func (l *link) settled(now time.Time) bool {
	if now.UnixNano()-l.heard < int64(quiet) || len(l.needs) > 0 || l.call.Waiting() {
		return false
	}
	young := now.Sub(l.began) < lingerMost
	for i := range l.agent.holdings {
		h := &l.agent.holdings[i]
		if !h.acked || young && h.mood == moodProgressing {
			return false
		}
	}
	return true
}
