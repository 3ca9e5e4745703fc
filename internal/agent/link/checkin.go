package link

import (
	"context"
	"errors"
	"time"

	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// look is the least time between two looks at whether a session is over.
	look = 20 * time.Millisecond
	// farewell is how long the hub may take to close a session that the agent ended.
	farewell = 5 * time.Second
)

// errCheckedIn ends a session that has come to its end.
var errCheckedIn = errors.New("checked in")

// checkInSchedule is how the agent checks in, if it does. Link.mu guards it.
type checkInSchedule struct {
	session.CheckInSchedule
	currentRest session.CheckInPause
	// turned: a row has turned since the session began, or since it rests.
	turned bool
	// resting until rest.Next.
	resting bool
	hasten  chan struct{} // capacity 1: rest.Next was brought forward
}

// hastenForStateChange records that a report has a state that people wait for. The caller holds mu.
func (r *checkInSchedule) hastenForStateChange(now time.Time) {
	r.turned = true
	if !r.resting {
		return
	}
	if sooner := r.ShortenPause(r.currentRest, now); sooner != r.currentRest {
		r.currentRest = sooner
		wakeup.WakeReader(r.hasten)
	}
}

// sessionState is one session, as far as its end is concerned. Link.mu guards idle,
// renewing, over and leaving.
type sessionState struct {
	out      *outbox
	idle     time.Time // when the hub first reported that it has nothing more
	renewing bool
	ended    bool
	activity chan struct{} // capacity 1: a frame came or went
	tunnels  tunnels
	leaving  chan struct{} // closed when the release is over; nil: no release was requested
	rejected int           // orders of the hub that could not be followed; only receiveFrames counts
}

// setCheckInInterval takes the interval that the hub gave. The caller holds mu.
func (l *HubLink) setCheckInInterval(v *sessionState, seconds uint32) {
	every := time.Duration(seconds) * time.Second
	if every == l.rhythm.Interval {
		return
	}
	l.rhythm.CheckInSchedule = session.NewCheckInSchedule(every, l.id.ClusterUID)
	if every > 0 {
		l.o.Log.Info("the hub orders this agent to check in", "every", phrase.FormatDuration(every))
	} else {
		l.o.Log.Info("the hub orders this agent to hold its stream")
		l.o.Metrics.next.Set(0)
	}
	wakeup.WakeReader(v.activity)
}

// endSessionWhenOver ends the session, by a request to the hub to close it, when it is over.
func (l *HubLink) endSessionWhenOver(ctx context.Context, v *sessionState) bool {
	for {
		over, again := l.isOver(v, time.Now())
		if over {
			v.out.close()
			return pause.WaitFor(ctx, farewell)
		}
		var timer <-chan time.Time
		if again > 0 {
			timer = time.After(again)
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer:
		case <-v.activity:
		}
		if !pause.WaitFor(ctx, look) {
			return false
		}
	}
}

// isOver reports whether the session is over, and after how long to check again if nothing
// happens. 0: check at the next event.
func (l *HubLink) isOver(v *sessionState, now time.Time) (over bool, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rhythm.Interval == 0 || v.leaving != nil {
		return false, 0
	}
	e := session.SessionProgress{Idle: v.idle, Active: v.out.lastActive(), Renewing: v.renewing}
	if !e.Idle.IsZero() {
		e.Work = l.core.PendingWork()
		e.UnderWay += len(l.dirty)
		if !isInventoryKnown(l.o.Inventory()) {
			e.UnderWay++ // until the next check-in the hub would have no report of it
		}
	}
	over, again = l.rhythm.IsSessionOver(e, now)
	v.ended = over
	return over, again
}

// renewBeforeCheckIn requests a certificate that is due before the next check-in, unless the new
// one would have ended by then, too: such an agent requests one by its key each time. The caller
// holds mu.
func (l *HubLink) renewBeforeCheckIn(v *sessionState, now time.Time) {
	if l.rhythm.Interval == 0 || now.Add(l.rhythm.Interval).Before(l.id.renewAt()) || trust.CertificateLifetime(l.id.cert) <= l.rhythm.Interval {
		return
	}
	v.renewing = l.requestRenewal(v.out)
}

// restUntilCheckIn rests until the next check-in.
func (l *HubLink) restUntilCheckIn(ctx context.Context, took time.Duration) {
	now := time.Now()
	l.mu.Lock()
	r := &l.rhythm
	r.currentRest, r.resting = r.CheckInSchedule.NextPause(r.currentRest, now), true
	if r.turned && l.core.CountUnacknowledged() > 0 {
		r.currentRest = r.ShortenPause(r.currentRest, now)
	}
	r.turned = false
	unacknowledged, next := l.core.CountUnacknowledged(), r.currentRest.Next
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		r.resting = false
		l.mu.Unlock()
	}()
	l.o.Metrics.checkIns.Inc()
	l.o.Log.Info("checked in", "took", took.Round(time.Millisecond).String(), "next", next.Format(time.TimeOnly), "in", phrase.FormatDuration(next.Sub(now)),
		"unacknowledged", unacknowledged)
	for {
		l.o.Metrics.next.Set(float64(next.UnixMilli()) / 1000)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			return
		case <-r.hasten:
			timer.Stop()
		}
		l.mu.Lock()
		next = r.currentRest.Next
		l.mu.Unlock()
		l.o.Log.Info("a bundle has turned: checking in early", "next", next.Format(time.TimeOnly))
	}
}
