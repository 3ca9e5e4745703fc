package checkin

import (
	"atoll.dev/atoll/internal/phrase"
	"fmt"
	"hash/fnv"
	"time"
)

// jitterDivisor is the part of the interval by which check-ins are moved at most; one that is
// closer than twice that to the last session is left out.
const jitterDivisor = 20

// CheckInSchedule is when an agent checks in. Time is divided into intervals, the same for all agents,
// and an agent has its own offset in them, by the hash of its Cluster's UID: a fleet is spread
// evenly, stays so, and is so again one interval after it came back together. Each check-in is
// moved by a further pseudo-random offset, so that two agents that met do not meet again. The
// hub computes the schedule of a Cluster without a request to the agent, as far as their clocks
// agree.
type CheckInSchedule struct {
	interval time.Duration
	hash     uint64
}

// NewCheckInSchedule returns the schedule of the agent of the Cluster with that UID.
func NewCheckInSchedule(every time.Duration, uid string) CheckInSchedule {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // never fails
	return CheckInSchedule{every, mixBits(h.Sum64())}
}

// NextCheckIn returns the next regular check-in of an agent that had a session just now; now, where it holds a
// stream. It is less than 1.2 intervals away.
func (t CheckInSchedule) NextCheckIn(now time.Time) time.Time {
	if t.interval <= 0 {
		return now
	}
	soonest := now.Add(2 * t.interval / jitterDivisor)
	round := soonest.UnixNano()/int64(t.interval) - 1
	for {
		if at := t.checkInOfRound(round); !at.Before(soonest) {
			return at
		}
		round++
	}
}

// checkInOfRound is when the agent checks in, in that round.
func (t CheckInSchedule) checkInOfRound(round int64) time.Time {
	place := t.hash % uint64(t.interval)
	moved := mixBits(t.hash^uint64(round)) % uint64(max(t.interval/jitterDivisor, 1))
	return time.Unix(0, round*int64(t.interval)+int64(place)+int64(moved))
}

// DescribeNext returns a description for people about an agent that checks in and does.
func (t CheckInSchedule) DescribeNext(now time.Time) string {
	return fmt.Sprintf("checks in every %s, next in about %s", phrase.FormatDuration(t.interval), phrase.FormatDuration(t.NextCheckIn(now).Sub(now)))
}

// mixBits spreads close values over all of the range (the finalizer of SplitMix64).
func mixBits(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
