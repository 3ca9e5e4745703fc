package fairness

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"atoll.dev/atoll/internal/pace"
)

// maxRememberedNetworks is how many networks a RequestLimiter stores. Further ones share the total alone.
const maxRememberedNetworks = 4096

// RequestLimiter limits requests without an identity, by their network and in total. Make it with NewRequestLimiter. It may be
// used by many goroutines.
type RequestLimiter struct {
	ofNetwork pace.Rate

	mu        sync.Mutex
	total     pace.Bucket
	byNetwork map[string]*pace.Bucket
}

// NewRequestLimiter returns a limiter with a rate for each network, and one for all.
func NewRequestLimiter(ofNetwork, total pace.Rate) *RequestLimiter {
	return &RequestLimiter{ofNetwork: ofNetwork, total: total.NewBucket(), byNetwork: map[string]*pace.Bucket{}}
}

// TakeTurn takes a turn of the network, or returns how long it has to wait.
func (l *RequestLimiter) TakeTurn(network string, now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucketOf(network, now)
	if wait = max(b.WaitTime(now), l.total.WaitTime(now)); wait > 0 {
		return wait, false
	}
	b.TakeTokens(now, 1)
	l.total.TakeTokens(now, 1)
	return 0, true
}

// WaitTime returns how long the network has to wait for a turn; 0 when it has one now. It takes no turn.
func (l *RequestLimiter) WaitTime(network string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := l.total.WaitTime(now)
	if b := l.byNetwork[network]; b != nil {
		wait = max(wait, b.WaitTime(now))
	}
	return wait
}

// bucketOf returns the bucket of a network, a new one for a network without recent requests. l.mu is held.
func (l *RequestLimiter) bucketOf(network string, now time.Time) *pace.Bucket {
	if b := l.byNetwork[network]; b != nil {
		return b
	}
	if len(l.byNetwork) >= maxRememberedNetworks {
		l.dropFullBuckets(now)
	}
	fresh := l.ofNetwork.NewBucket()
	if len(l.byNetwork) < maxRememberedNetworks {
		l.byNetwork[network] = &fresh
	}
	return &fresh
}

// dropFullBuckets drops the networks without recent requests. l.mu is held.
func (l *RequestLimiter) dropFullBuckets(now time.Time) {
	for network, b := range l.byNetwork {
		if b.IsFull(now) {
			delete(l.byNetwork, network)
		}
	}
}

// SetRetryAfter sets the header of a refusal that ends after a wait, in whole seconds.
func SetRetryAfter(h http.Header, wait time.Duration) {
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// NetworkOfRequest returns the network that a request comes from.
func NetworkOfRequest(r *http.Request) string { return NetworkOf(remoteAddress(r.RemoteAddr)) }

// remoteAddress is the address of a request as net.Addr.
type remoteAddress string

func (remoteAddress) Network() string  { return "tcp" }
func (a remoteAddress) String() string { return string(a) }
