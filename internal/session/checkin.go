package session

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/checkin"
)

// The rhythm of agents that check in
//
// An agent checks in when its turn comes (atoll.Turn).
//
// A session ends when the hub has sent Idle, all manifests are stored, all reports are
// acknowledged, and no frame came or went for a moment. For health that is still to come,
// the session stays open for a while. Later changes are reported at the next check-in. A
// row that becomes Ready, Degraded, Failed or Removed is reported sooner: its agent
// connects once more between two check-ins, at the earliest after a fifth of the interval.
// Therefore a fleet in which everything changes all the time checks in at most twice as
// often.
//
// An agent that cannot reach the hub, or whose session was cut, does not keep to the
// interval. It tries again after growing pauses (RetryDelay) until a session ends
// regularly. Agents that hold their stream may dial again at once, since few lose it at
// the same time. For agents that check in, each lost session would be one more at a moment
// when the hub has too many already, and the overload would last.
const (
	// maxPatience is how long a session waits for health, or a fifth of the interval where
	// that is less.
	maxPatience = time.Minute
	// maxLinger is how long nothing must come or go at the end of a session, or a twentieth of
	// the interval where that is less.
	maxLinger = time.Second
	// stalledAfter without a frame a session ends in which the hub still has something to
	// send, or the member something to store.
	stalledAfter = 2 * time.Minute
	// intervalFraction of the interval bounds the wait for health, the earliest early
	// check-in, and the pause between tries.
	intervalFraction = 5
	// lingerFraction of the interval is how long a session lingers at most.
	lingerFraction = 20
	// retryFraction of the interval is the first pause before a new try.
	retryFraction = 60
)

// CheckInSchedule is the rhythm of one agent: values in, values out. The zero value holds its
// stream for ever.
type CheckInSchedule struct {
	// Interval between two check-ins; 0: the agent holds its stream.
	Interval time.Duration
	turn     checkin.CheckInSchedule
}

// NewCheckInSchedule returns the rhythm of the agent of the Cluster with that UID. An interval
// that is not positive is none.
func NewCheckInSchedule(interval time.Duration, uid string) CheckInSchedule {
	interval = max(interval, 0)
	return CheckInSchedule{interval, checkin.NewCheckInSchedule(interval, uid)}
}

// SessionProgress is the progress of a session of an agent that checks in.
type SessionProgress struct {
	// Idle is when the hub first sent Idle, which means that it has nothing to send; zero: not
	// yet.
	Idle time.Time
	// Active is when the last frame came or went.
	Active time.Time
	Work
	// Renewing: a certificate was requested and has not come.
	Renewing bool
}

// Work is what an agent still has to do, in numbers of bundles.
type Work struct {
	// Open: manifests that are being stored or lack objects.
	Open int
	// Unacknowledged reports.
	Unacknowledged int
	// UnderWay: bundles that are held and not reported yet, or reported as Progressing.
	UnderWay int
}

// IsSessionOver reports whether a session is over. If not, it must be called again after the
// returned time without a frame.
func (c CheckInSchedule) IsSessionOver(e SessionProgress, now time.Time) (over bool, again time.Duration) {
	if c.Interval <= 0 {
		return false, stalledAfter
	}
	end := e.Active.Add(min(maxLinger, c.Interval/lingerFraction))
	switch {
	case e.Idle.IsZero() || e.Open > 0:
		end = e.Active.Add(stalledAfter)
	case e.Unacknowledged > 0 || e.UnderWay > 0 || e.Renewing:
		if patience := e.Idle.Add(min(maxPatience, c.Interval/intervalFraction)); patience.After(end) {
			end = patience
		}
	}
	return !end.After(now), max(end.Sub(now), time.Millisecond)
}

// CheckInPause is the time between two sessions.
type CheckInPause struct {
	// Ended is when the last session did, Next when the agent dials.
	Ended, Next time.Time
	// Early: Next was brought forward.
	Early    bool
	wasEarly bool // the last session was early itself
}

// NextPause returns the rest after a session that ended now. before is the rest that the
// session ended; zero for the first session of a process.
func (c CheckInSchedule) NextPause(before CheckInPause, now time.Time) CheckInPause {
	return CheckInPause{Ended: now, Next: c.NextCheckIn(now), wasEarly: before.Early}
}

// ShortenPause brings Next forward because the state of a row has changed
// (AgentOutput.StateChanged), once between two check-ins.
func (c CheckInSchedule) ShortenPause(r CheckInPause, now time.Time) CheckInPause {
	at := r.Ended.Add(c.Interval / intervalFraction)
	if soon := now.Add(min(maxLinger, c.Interval/lingerFraction)); soon.After(at) {
		at = soon
	}
	if r.Early || r.wasEarly || !at.Before(r.Next) {
		return r
	}
	r.Next, r.Early = at, true
	return r
}

// NextCheckIn returns the next regular check-in of an agent that has just had a session.
func (c CheckInSchedule) NextCheckIn(now time.Time) time.Time { return c.turn.NextCheckIn(now) }

// RetryDelay is the pause before an agent that lost its session, or found no hub, dials
// again. It is twice the last pause, at least first and at most most; those two are the
// bounds for an agent that holds its stream. An agent that checks in waits at least a
// sixtieth of its interval where that is more, and at most a fifth. last is 0 after a
// session that ended regularly. The caller spreads the pause over its upper half, so that
// agents that were cut off together reconnect apart.
func (c CheckInSchedule) RetryDelay(last, first, most time.Duration) time.Duration {
	return min(max(most, c.Interval/intervalFraction), max(first, c.Interval/retryFraction, 2*last))
}

// HasLasted reports whether a session that was lost lasted so long that the link works,
// and the pauses restart. A session of an agent that checks in must end regularly.
func (c CheckInSchedule) HasLasted(session, steady time.Duration) bool {
	return c.Interval <= 0 && session > steady
}

// MissedAfter is how long after its last session an agent has missed two check-ins,
// without grace.
func (c CheckInSchedule) MissedAfter() time.Duration { return 2 * c.Interval }

// OverdueAfter is how long after its last session an agent has missed one check-in.
func (c CheckInSchedule) OverdueAfter() time.Duration {
	return c.Interval + 4*c.Interval/lingerFraction
}

// PendingWork returns what the agent still has to do. It looks at every bundle that is
// held.
func (a *Agent) PendingWork() Work {
	w := Work{Open: len(a.incomplete), Unacknowledged: a.CountUnacknowledged()}
	for bundle, acc := range a.accepted {
		if !acc.stored {
			w.Open++
			continue
		}
		r := a.reports[bundle]
		if r == nil || r.status.Generation != acc.generation || r.status.Content != acc.content || r.status.State == atoll.RowProgressing {
			w.UnderWay++
		}
	}
	return w
}
