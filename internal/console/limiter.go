package console

import (
	"sync"
	"time"

	"atoll.dev/atoll/internal/pace"
)

// The limits of sign-ins, each of which makes the hub check a token.
var (
	networkSignIns = pace.Rate{Interval: 6 * time.Second, Burst: 10}
	allSignIns     = pace.PerSecond(20, 60)
)

// maxNetworks is how many networks are remembered. Further ones share the total alone.
const maxNetworks = 4096

// signInLimiter limits sign-ins by the network of the browser, and in total.
type signInLimiter struct {
	mu        sync.Mutex
	total     pace.Bucket
	byNetwork map[string]*pace.Bucket
}

func newSignInLimiter() *signInLimiter {
	return &signInLimiter{total: allSignIns.NewBucket(), byNetwork: map[string]*pace.Bucket{}}
}

// takeTurn takes a turn of the network, or returns how long it has to wait.
func (l *signInLimiter) takeTurn(network string, now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.byNetwork[network]
	if b == nil {
		if len(l.byNetwork) >= maxNetworks {
			l.dropFullBuckets(now)
		}
		fresh := networkSignIns.NewBucket()
		if b = &fresh; len(l.byNetwork) < maxNetworks {
			l.byNetwork[network] = b
		}
	}
	if wait = max(b.WaitTime(now), l.total.WaitTime(now)); wait > 0 {
		return wait, false
	}
	b.TakeTokens(now, 1)
	l.total.TakeTokens(now, 1)
	return 0, true
}

// dropFullBuckets drops the networks without a recent sign-in.
func (l *signInLimiter) dropFullBuckets(now time.Time) {
	for network, b := range l.byNetwork {
		if b.IsFull(now) {
			delete(l.byNetwork, network)
		}
	}
}
