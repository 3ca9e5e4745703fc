package fleet

import (
	"time"

	"atoll.dev/atoll/internal/session"
)

const (
	// look is the least time between two looks at whether a session is over.
	look = 20 * time.Millisecond
	// farewell is how long the hub may take to close a session that the agent ended.
	farewell = 5 * time.Second
)

// rhythm of the agent, as the hub wants it. The caller holds mu.
func (a *agent) rhythm() session.CheckIn { return session.NewCheckIn(a.interval, a.uid) }

// firstDial of an agent that was kept on disk. Where the fleet is to check in, first
// check-ins have their places in the interval like all others, so that a fleet that is
// started does not come at once. The caller holds mu.
func (s *sim) firstDial(a *agent) {
	if a.interval = s.CheckIn; a.interval <= 0 {
		a.dialIn(0)
		return
	}
	a.dialIn(time.Until(a.rhythm().Next(time.Now())))
}

// follow the interval that the hub gives. The caller holds the agent's mutex.
func (l *link) follow(seconds uint32) {
	l.agent.interval = time.Duration(seconds) * time.Second
}

// rest until the next check-in. The caller holds mu.
func (a *agent) goToRest() {
	now := time.Now()
	a.sim.counts.checkIns.Add(1)
	a.wait = 0
	a.rest = a.rhythm().Rest(a.rest, now)
	if a.turned && a.unacknowledged() > 0 {
		a.rest = a.rhythm().Hasten(a.rest, now)
	}
	a.turned, a.resting = false, true
	a.dialIn(a.rest.Next.Sub(now))
}

// hasten the next check-in, since a Bundle has turned. The caller holds mu.
func (a *agent) hasten() {
	a.turned = true
	if !a.resting {
		return
	}
	now := time.Now()
	if sooner := a.rhythm().Hasten(a.rest, now); sooner != a.rest {
		a.rest = sooner
		a.dialIn(sooner.Next.Sub(now))
	}
}

func (a *agent) unacknowledged() (n int) {
	for i := range a.holdings {
		if !a.holdings[i].acked {
			n++
		}
	}
	return n
}

// lookIn looks after a while whether the session is over. What waits in the schedule
// knows the agent only: it may wait for longer than the session lasts. The caller holds
// the agent's mutex.
func (l *link) lookIn(d time.Duration) {
	a, at := l.agent, time.Now().Add(d).UnixNano()
	if a.interval <= 0 || l.leaving || l.looks != 0 && l.looks <= at {
		return
	}
	l.looks = at
	a.sim.schedule.in(d, func() { a.look(at) })
}

// look whether the session is over, and end it then; one that the hub does not end
// after that is broken off.
func (a *agent) look(at int64) {
	a.mu.Lock()
	l := a.link
	if l == nil || l.looks != at {
		a.mu.Unlock()
		return
	}
	l.looks = 0
	if l.leaving {
		a.mu.Unlock()
		l.call.Close()
		return
	}
	over, again := a.rhythm().Over(l.errand(), time.Now())
	if !over {
		l.lookIn(max(again, look))
		a.mu.Unlock()
		return
	}
	l.lookIn(farewell)
	l.leaving = true
	a.mu.Unlock()
	l.call.CloseSend()
}

// errand of the session. The caller holds the agent's mutex.
func (l *link) errand() session.Errand {
	a := l.agent
	e := session.Errand{Idle: l.idle, Active: l.active, Renewing: a.renewing}
	e.Open, e.Unacknowledged = len(l.needs), a.unacknowledged()
	if l.call.Waiting() {
		e.Active = time.Now()
	}
	for i := range a.holdings {
		if a.holdings[i].mood == moodProgressing {
			e.UnderWay++
		}
	}
	return e
}
