package session

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// The rhythm of agents that check in
//
// An agent checks in when it is its turn (atoll.Turn).
//
// A session ends once the hub has said that it has nothing more (Idle), all manifests
// are stored and all reports acknowledged, and no frame came or went for a moment.
// For health that is still to come it stays open for a while, patience. What turns
// later is reported at the next check-in; of a row that becomes Ready, Degraded,
// Failed or Removed people are to know sooner, for which an agent comes once more
// between two check-ins, not before a fifth of the interval is over. So a fleet in
// which everything turns all the time checks in twice as often, never more.
//
// Nobody has to keep to the interval who cannot reach the hub, or whose session ended
// before its time: he tries on, after pauses that grow (Retry), until a session ends as it
// should. Agents that hold their stream may dial again at once, since few lose it at a
// time; of those that check in, each lost session would be one more at the moment at which
// the hub has more of them than it can serve, and that would last.
const (
	// patienceMost is how long a session waits for health, or a fifth of the
	// interval where that is less.
	patienceMost = time.Minute
	// lingerMost is for how long nothing came or went at the end of a session, or a
	// twentieth of the interval where that is less.
	lingerMost = time.Second
	// stalled is after how long without a frame a session ends in which the hub
	// still has to send something, or the member to store it.
	stalled = 2 * time.Minute
	// fraction of the interval after which an agent may come early, for which it
	// waits for health at most, and which it waits between tries at most.
	fraction = 5
	// twentieth of the interval for which a session lingers at most.
	twentieth = 20
	// sixtieth of the interval after which an agent tries again first.
	sixtieth = 60
)

// CheckIn is the rhythm of one agent: values in, values out. The zero value holds its
// stream for ever.
type CheckIn struct {
	// Interval between two check-ins; 0: the agent holds its stream.
	Interval time.Duration
	turn     atoll.Turn
}

// NewCheckIn of the agent of the Cluster with that UID. An interval that is not
// positive is none.
func NewCheckIn(interval time.Duration, uid string) CheckIn {
	interval = max(interval, 0)
	return CheckIn{interval, atoll.NewTurn(interval, uid)}
}

// Errand is what a session of an agent that checks in has come to.
type Errand struct {
	// Idle is when the hub said first that it has nothing more; zero: not yet.
	Idle time.Time
	// Active is when the last frame came or went.
	Active time.Time
	Work
	// Renewing: a certificate was asked for and did not come yet.
	Renewing bool
}

// Work that an agent is not done with, in numbers of bundles.
type Work struct {
	// Open: manifests that are to be stored, or wait for objects.
	Open int
	// Unacknowledged reports.
	Unacknowledged int
	// UnderWay: what is held is not reported yet, or is reported to be Progressing.
	UnderWay int
}

// Over tells whether a session is over; if not, again is after how long it is to be
// asked anew when no frame comes or goes meanwhile.
func (c CheckIn) Over(e Errand, now time.Time) (over bool, again time.Duration) {
	if c.Interval <= 0 {
		return false, stalled
	}
	end := e.Active.Add(min(lingerMost, c.Interval/twentieth))
	switch {
	case e.Idle.IsZero() || e.Open > 0:
		end = e.Active.Add(stalled)
	case e.Unacknowledged > 0 || e.UnderWay > 0 || e.Renewing:
		if patience := e.Idle.Add(min(patienceMost, c.Interval/fraction)); patience.After(end) {
			end = patience
		}
	}
	return !end.After(now), max(end.Sub(now), time.Millisecond)
}

// Rest is the time between two sessions.
type Rest struct {
	// Ended is when the last session did, Next when the agent dials.
	Ended, Next time.Time
	// Early: Next was brought forward.
	Early bool
	spent bool // the last session was early itself
}

// Rest after a session that ended now. before is the rest that the session ended;
// zero for the first session of a process.
func (c CheckIn) Rest(before Rest, now time.Time) Rest {
	return Rest{Ended: now, Next: c.Next(now), spent: before.Early}
}

// Hasten a rest because a row has turned (AgentOutput.Turned): Next is brought
// forward, once between two check-ins.
func (c CheckIn) Hasten(r Rest, now time.Time) Rest {
	at := r.Ended.Add(c.Interval / fraction)
	if soon := now.Add(min(lingerMost, c.Interval/twentieth)); soon.After(at) {
		at = soon
	}
	if r.Early || r.spent || !at.Before(r.Next) {
		return r
	}
	r.Next, r.Early = at, true
	return r
}

// Next regular check-in of an agent that had a session just now.
func (c CheckIn) Next(now time.Time) time.Time { return c.turn.Next(now) }

// Retry is the pause before an agent that lost its session, or found no hub, dials again:
// twice the last one, at least first and at most most, which are those of an agent that holds
// its stream. One that checks in waits a sixtieth of its interval at least where that is
// more, and at most a fifth. last is 0 after a session that was as it should be. Who waits
// spreads it over its upper half, so that agents that were cut off together come back apart.
func (c CheckIn) Retry(last, first, most time.Duration) time.Duration {
	return min(max(most, c.Interval/fraction), max(first, c.Interval/sixtieth, 2*last))
}

// Lasted tells whether a session that was lost lasted for so long that the link works, and
// the agent's pauses begin anew. Of those that check in a session has to come to its end.
func (c CheckIn) Lasted(session, steady time.Duration) bool {
	return c.Interval <= 0 && session > steady
}

// MissedAfter is how long after an agent's last session it has missed two check-ins,
// grace aside.
func (c CheckIn) MissedAfter() time.Duration { return 2 * c.Interval }

// OverdueAfter is how long after an agent's last session it has missed one.
func (c CheckIn) OverdueAfter() time.Duration { return c.Interval + 4*c.Interval/twentieth }

// Work that the agent is not done with. It costs a look at every bundle that is held.
func (a *Agent) Work() Work {
	w := Work{Open: len(a.waiting), Unacknowledged: a.Unacknowledged()}
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
