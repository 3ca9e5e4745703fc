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

// backoff doubles from backoffFirst to backoffMost, or between what agents that check in
// wait at first and at most where that is more; each wait is spread over its upper half, so that
// agents that were cut off together come back apart.
type backoff struct{ current time.Duration }

func (b *backoff) next(rhythm session.CheckIn) time.Duration {
	b.current = min(max(backoffMost, rhythm.RetryMost()), max(backoffFirst, rhythm.RetryFirst(), 2*b.current))
	return b.current/2 + time.Duration(rand.Int64N(int64(b.current/2)+1))
}

func (b *backoff) reset() { b.current = 0 }
