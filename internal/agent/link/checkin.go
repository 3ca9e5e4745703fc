package link

import (
	"context"
	"errors"
	"time"

	"atoll.dev/atoll/internal/agent/pause"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/trust"
)

const (
	// look is the least time between two looks at whether a session is over.
	look = 20 * time.Millisecond
	// farewell is how long the hub may take to close a session that the agent ended.
	farewell = 5 * time.Second
)

// errCheckedIn ends a session that has come to its end.
var errCheckedIn = errors.New("checked in")

// rhythm is how the agent checks in, if it does. Link.mu guards it.
type rhythm struct {
	session.CheckIn
	rest session.Rest
	// turned: a row has turned since the session began, or since it rests.
	turned bool
	// resting until rest.Next.
	resting bool
	hasten  chan struct{} // capacity 1: rest.Next was brought forward
}

// turn notes that a report says something that people wait for. The caller holds mu.
func (r *rhythm) turn(now time.Time) {
	r.turned = true
	if !r.resting {
		return
	}
	if sooner := r.Hasten(r.rest, now); sooner != r.rest {
		r.rest = sooner
		signal(r.hasten)
	}
}

// visit is one session, as far as its end is concerned. Link.mu guards idle,
// renewing, over and leaving.
type visit struct {
	out      *outbox
	idle     time.Time // when the hub said first that it has nothing more
	renewing bool
	over     bool
	news     chan struct{} // capacity 1: a frame came or went
	tunnels  tunnels
	leaving  chan struct{} // closed when letting go is over; nil: nobody asked for it
}

// follow takes the interval that the hub gave. The caller holds mu.
func (l *Link) follow(v *visit, seconds uint32) {
	every := time.Duration(seconds) * time.Second
	if every == l.rhythm.Interval {
		return
	}
	l.rhythm.CheckIn = session.NewCheckIn(every, l.id.ClusterUID)
	if every > 0 {
		l.o.Log.Info("the hub wants this agent to check in", "every", atoll.Span(every))
	} else {
		l.o.Log.Info("the hub wants this agent to hold its stream")
		l.o.Metrics.next.Set(0)
	}
	signal(v.news)
}

// leave ends the session, by asking the hub to close it, when it is over.
func (l *Link) leave(ctx context.Context, v *visit) bool {
	for {
		over, again := l.isOver(v, time.Now())
		if over {
			v.out.close()
			return pause.For(ctx, farewell)
		}
		var timer <-chan time.Time
		if again > 0 {
			timer = time.After(again)
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer:
		case <-v.news:
		}
		if !pause.For(ctx, look) {
			return false
		}
	}
}

// isOver tells whether the session is, and after how long to look again if nothing
// happens; 0: when something does.
func (l *Link) isOver(v *visit, now time.Time) (over bool, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rhythm.Interval == 0 || v.leaving != nil {
		return false, 0
	}
	e := session.Errand{Idle: v.idle, Active: v.out.lastActive(), Renewing: v.renewing}
	if !e.Idle.IsZero() {
		e.Work = l.core.Work()
		e.UnderWay += len(l.dirty)
		if !memberRead(l.o.Inventory()) {
			e.UnderWay++ // until the next check-in the hub would know nothing of it
		}
	}
	over, again = l.rhythm.Over(e, now)
	v.over = over
	return over, again
}

// renewBefore asks for a certificate that is due before the next check-in, unless the new
// one would have ended by then, too: such an agent asks by its key each time. The caller
// holds mu.
func (l *Link) renewBefore(v *visit, now time.Time) {
	if l.rhythm.Interval == 0 || now.Add(l.rhythm.Interval).Before(l.id.renewAt()) || trust.Life(l.id.cert) <= l.rhythm.Interval {
		return
	}
	v.renewing = l.askRenewal(v.out)
}

// rest until the next check-in.
func (l *Link) rest(ctx context.Context, took time.Duration) {
	now := time.Now()
	l.mu.Lock()
	r := &l.rhythm
	r.rest, r.resting = r.CheckIn.Rest(r.rest, now), true
	if r.turned && l.core.Unacknowledged() > 0 {
		r.rest = r.Hasten(r.rest, now)
	}
	r.turned = false
	unacknowledged, next := l.core.Unacknowledged(), r.rest.Next
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		r.resting = false
		l.mu.Unlock()
	}()
	l.o.Metrics.checkIns.Inc()
	l.o.Log.Info("checked in", "took", took.Round(time.Millisecond).String(), "next", next.Format(time.TimeOnly), "in", atoll.Span(next.Sub(now)),
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
		next = r.rest.Next
		l.mu.Unlock()
		l.o.Log.Info("a bundle has turned: checking in early", "next", next.Format(time.TimeOnly))
	}
}
