package atoll

import (
	"fmt"
	"hash/fnv"
	"time"
)

// jitter is the part of the interval by which check-ins are moved at most; one that is
// closer than twice that to the last session is left out.
const jitter = 20

// Turn is when an agent checks in. Time is cut into intervals, the same for everybody,
// and an agent has its own place in them, by the hash of its Cluster's UID: a fleet is
// spread evenly, stays so, and is so again one interval after it came back together.
// Each check-in is moved by a little more, anew each time, so that two that met do not
// meet for ever. Whoever knows the Cluster can tell its turn without asking the agent,
// as well as their clocks agree.
type Turn struct {
	every time.Duration
	place uint64
}

// NewTurn of the agent of the Cluster with that UID.
func NewTurn(every time.Duration, uid string) Turn {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // never fails
	return Turn{every, mix(h.Sum64())}
}

// Next regular check-in of an agent that had a session just now; now, where it holds a
// stream. It is less than 1.2 intervals away.
func (t Turn) Next(now time.Time) time.Time {
	if t.every <= 0 {
		return now
	}
	soonest := now.Add(2 * t.every / jitter)
	round := soonest.UnixNano()/int64(t.every) - 1
	for {
		if at := t.at(round); !at.Before(soonest) {
			return at
		}
		round++
	}
}

// at is when the agent checks in, in that round.
func (t Turn) at(round int64) time.Time {
	place := t.place % uint64(t.every)
	moved := mix(t.place^uint64(round)) % uint64(max(t.every/jitter, 1))
	return time.Unix(0, round*int64(t.every)+int64(place)+int64(moved))
}

// Words for people about an agent that checks in and does.
func (t Turn) Words(now time.Time) string {
	return fmt.Sprintf("checks in every %s, next in about %s", Span(t.every), Span(t.Next(now).Sub(now)))
}

// mix spreads close values over all of the range (the finalizer of SplitMix64).
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
