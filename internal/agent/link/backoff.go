package link

import (
	"math/rand/v2"
	"time"

	"atoll.dev/atoll/internal/session"
)

const (
	backoffFirst = 200 * time.Millisecond
	// backoffMost leaves 2 of the 5 s within which a cluster whose link is back counts
	// as Ready to the handshake and the write. Each agent has one handshake under way
	// at most, so that a fleet that comes back together queues at the hub and does not
	// pile up.
	backoffMost = 3 * time.Second
)

// backoff is the pauses of one agent, which grow as session.CheckIn.RetryDelay defines.
type backoff struct{ current time.Duration }

func (b *backoff) next(rhythm session.CheckInSchedule) time.Duration {
	b.current = rhythm.RetryDelay(b.current, backoffFirst, backoffMost)
	return b.current/2 + time.Duration(rand.Int64N(int64(b.current/2)+1))
}

func (b *backoff) reset() { b.current = 0 }
