package fleet

import (
	"time"

	"atoll.dev/atoll/internal/session"
)

const (
	// sessionEndPoll is the shortest time between two checks of a session's end.
	sessionEndPoll = 20 * time.Millisecond
	// closeTimeout is the time in which the hub must close a session that the agent ended.
	closeTimeout = 5 * time.Second
)

// checkInSpec returns the agent's check-in schedule, as the hub set it. The caller holds
// mu.
func (a *simulatedAgent) checkInSpec() session.CheckInSchedule {
	return session.NewCheckInSchedule(a.interval, a.uid)
}

// scheduleFirstDial plans the first dial of an agent with a stored identity. First check-ins are
// spread over the interval like all others, so that a starting fleet does not dial at once.
// The caller holds mu.
func (s *simulator) scheduleFirstDial(a *simulatedAgent) {
	if a.interval = s.CheckIn; a.interval <= 0 {
		a.scheduleDial(0)
		return
	}
	a.scheduleDial(time.Until(a.checkInSpec().NextCheckIn(time.Now())))
}

// adoptCheckInInterval adopts the check-in interval of the hub. The caller holds the agent's
// mutex.
func (l *simulatedSession) adoptCheckInInterval(seconds uint32) {
	l.agent.interval = time.Duration(seconds) * time.Second
}

// restUntilCheckIn rests the agent until its next check-in. The caller holds mu.
func (a *simulatedAgent) restUntilCheckIn() {
	now := time.Now()
	a.sim.counts.checkIns.Add(1)
	a.redialPause = 0
	a.checkInRest = a.checkInSpec().NextPause(a.checkInRest, now)
	if a.turnedUnhealthyEarly && a.countUnacknowledged() > 0 {
		a.checkInRest = a.checkInSpec().ShortenPause(a.checkInRest, now)
	}
	a.turnedUnhealthyEarly, a.resting = false, true
	a.scheduleDial(a.checkInRest.Next.Sub(now))
}

// hastenCheckIn advances the next check-in because a Bundle has turned. The caller holds
// mu.
func (a *simulatedAgent) hastenCheckIn() {
	a.turnedUnhealthyEarly = true
	if !a.resting {
		return
	}
	now := time.Now()
	if sooner := a.checkInSpec().ShortenPause(a.checkInRest, now); sooner != a.checkInRest {
		a.checkInRest = sooner
		a.scheduleDial(sooner.Next.Sub(now))
	}
}

func (a *simulatedAgent) countUnacknowledged() (n int) {
	for i := range a.holdings {
		if !a.holdings[i].acked {
			n++
		}
	}
	return n
}

// checkEndAfter checks after a while whether the session is over. The timer refers to the agent
// alone, because it may outlast the session. The caller holds the agent's mutex.
func (l *simulatedSession) checkEndAfter(d time.Duration) {
	a, at := l.agent, time.Now().Add(d).UnixNano()
	if a.interval <= 0 || l.leaving || l.endCheckAt != 0 && l.endCheckAt <= at {
		return
	}
	l.endCheckAt = at
	a.sim.schedule.runAfter(d, func() { a.endSessionIfOver(at) })
}

// endSessionIfOver ends a session that is over. It breaks the link if the hub does not
// close the session in time.
func (a *simulatedAgent) endSessionIfOver(at int64) {
	a.mu.Lock()
	l := a.session
	if l == nil || l.endCheckAt != at {
		a.mu.Unlock()
		return
	}
	l.endCheckAt = 0
	if l.leaving {
		a.mu.Unlock()
		l.h2Call.Close()
		return
	}
	over, again := a.checkInSpec().IsSessionOver(l.sessionProgress(), time.Now())
	if !over {
		l.checkEndAfter(max(again, sessionEndPoll))
		a.mu.Unlock()
		return
	}
	l.checkEndAfter(closeTimeout)
	l.leaving = true
	a.mu.Unlock()
	l.h2Call.CloseSend()
}

// sessionProgress returns the session's progress. The caller holds the agent's mutex.
func (l *simulatedSession) sessionProgress() session.SessionProgress {
	a := l.agent
	e := session.SessionProgress{Idle: l.hubIdleSince, Active: l.lastFrameAt, Renewing: a.renewing}
	e.Open, e.Unacknowledged = len(l.requestedBundles), a.countUnacknowledged()
	if l.h2Call.HasUnwritten() {
		e.Active = time.Now()
	}
	for i := range a.holdings {
		if a.holdings[i].mood == moodProgressing {
			e.UnderWay++
		}
	}
	return e
}
