package pace

import (
	"context"
	"math"
	"sync"
	"time"

	"atoll.dev/atoll/internal/pause"
)

// Limiter is a Bucket for concurrent callers. Make it with NewLimiter.
type Limiter struct {
	mu     sync.Mutex
	bucket Bucket
}

// NewLimiter returns a Limiter with a full Bucket.
func (r Rate) NewLimiter() *Limiter { return &Limiter{bucket: r.NewBucket()} }

// TakeToken takes a token if one is available, and reports whether it did.
func (l *Limiter) TakeToken(now time.Time) bool {
	_, ok := l.ReserveWithin(now, 0)
	return ok
}

// ReserveToken takes the next token and returns when it comes.
func (l *Limiter) ReserveToken(now time.Time) time.Time {
	wait, _ := l.ReserveWithin(now, math.MaxInt64)
	return now.Add(wait)
}

// ReserveWithin takes the next token if it comes within longest, and returns after which wait.
func (l *Limiter) ReserveWithin(now time.Time, longest time.Duration) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait = l.bucket.WaitTime(now); wait > longest {
		return 0, false
	}
	l.bucket.TakeTokens(now, 1)
	return wait, true
}

// ReturnTokenPart returns a part of a token that was taken and not used.
func (l *Limiter) ReturnTokenPart(part float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bucket.ReturnTokenPart(part)
}

// Wait takes the next token and waits until it comes. It returns the token when ctx ends
// before.
func (l *Limiter) Wait(ctx context.Context) error {
	wait, _ := l.ReserveWithin(time.Now(), math.MaxInt64)
	return l.awaitTaken(ctx, wait, 1)
}

// WaitTokens waits until a token comes and takes n. Missing tokens delay later callers. It takes none
// when ctx ends before.
func (l *Limiter) WaitTokens(ctx context.Context, n int) error {
	l.mu.Lock()
	now := time.Now()
	wait := l.bucket.WaitTime(now)
	l.bucket.TakeTokens(now, n)
	l.mu.Unlock()
	return l.awaitTaken(ctx, wait, n)
}

// awaitTaken waits for tokens that are taken, and returns them when ctx ends before they come.
func (l *Limiter) awaitTaken(ctx context.Context, wait time.Duration, n int) error {
	switch {
	case wait == 0:
		return ctx.Err()
	case pause.WaitFor(ctx, wait):
		return nil
	}
	l.ReturnTokenPart(float64(n))
	return ctx.Err()
}

// KeyedLimiter limits each key by itself. It is safe for concurrent use. Make it with
// NewKeyedLimiter.
type KeyedLimiter struct {
	rate    Rate
	mu      sync.Mutex
	buckets map[string]*Bucket
}

// maxKeys bounds the keys of a KeyedLimiter. It drops all of them when another comes.
const maxKeys = 4096

// NewKeyedLimiter returns a KeyedLimiter without keys.
func (r Rate) NewKeyedLimiter() *KeyedLimiter {
	return &KeyedLimiter{rate: r, buckets: map[string]*Bucket{}}
}

// TakeToken takes a token of the key if one is available, and reports whether it did.
func (l *KeyedLimiter) TakeToken(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		if len(l.buckets) >= maxKeys {
			clear(l.buckets)
		}
		full := l.rate.NewBucket()
		b = &full
		l.buckets[key] = b
	}
	return b.TakeToken(now)
}
