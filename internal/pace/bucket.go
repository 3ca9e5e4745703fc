package pace

import "time"

// Rate is what a Bucket refills by: a token comes per Interval, and at most Burst are kept.
type Rate struct {
	Interval time.Duration
	Burst    int
}

// PerSecond returns the Rate of so many tokens a second.
func PerSecond(tokens, burst int) Rate {
	return Rate{time.Second / time.Duration(tokens), burst}
}

// Times returns the Rate of n times as many tokens, with the same burst.
func (r Rate) Times(n int) Rate { return Rate{r.Interval / time.Duration(n), r.Burst} }

// TokensPerSecond returns how many tokens come in a second.
func (r Rate) TokensPerSecond() float64 { return time.Second.Seconds() / r.Interval.Seconds() }

// Bucket is a token bucket without clock and lock. The caller gives the time of every call.
// Times may stand still; a time before an earlier one frees no token. A Bucket may owe
// tokens: what is taken beyond the available tokens delays later ones. Make it with NewBucket.
type Bucket struct {
	rate   Rate
	fullAt time.Time // when all tokens are there, if none is taken
}

// NewBucket returns a full Bucket.
func (r Rate) NewBucket() Bucket { return Bucket{rate: r} }

// WaitTime returns how long until a whole token is available, if none is taken before.
func (b *Bucket) WaitTime(now time.Time) time.Duration {
	return max(b.refilledAt(now).Sub(now)-time.Duration(b.rate.Burst-1)*b.rate.Interval, 0)
}

// HasToken reports whether a whole token is available.
func (b *Bucket) HasToken(now time.Time) bool { return b.WaitTime(now) == 0 }

// TakeToken takes a token if one is available, and reports whether it did.
func (b *Bucket) TakeToken(now time.Time) bool {
	available := b.HasToken(now)
	if available {
		b.TakeTokens(now, 1)
	}
	return available
}

// TakeTokens takes n tokens, available or not.
func (b *Bucket) TakeTokens(now time.Time, n int) {
	b.fullAt = b.refilledAt(now).Add(time.Duration(n) * b.rate.Interval)
}

// TakeUpToOneToken takes one token, or what there is of it, so that nothing is owed.
func (b *Bucket) TakeUpToOneToken(now time.Time) {
	before, empty := b.refilledAt(now), now.Add(time.Duration(b.rate.Burst)*b.rate.Interval)
	if before.After(empty) {
		return // nothing is available, or now is before an earlier time
	}
	if b.TakeTokens(now, 1); b.fullAt.After(empty) {
		b.fullAt = empty
	}
}

// ReturnTokenPart returns a part of a token that was taken and not used. The burst still
// bounds what is available.
func (b *Bucket) ReturnTokenPart(part float64) {
	b.fullAt = b.fullAt.Add(-time.Duration(part * float64(b.rate.Interval)))
}

// SetRate changes the rate. The number of tokens that are missing stays.
func (b *Bucket) SetRate(now time.Time, rate Rate) {
	missing := float64(b.refilledAt(now).Sub(now)) / float64(b.rate.Interval)
	b.rate = rate
	b.fullAt = now.Add(time.Duration(missing * float64(rate.Interval)))
}

// IsFull reports whether no token is missing.
func (b *Bucket) IsFull(now time.Time) bool { return !b.fullAt.After(now) }

// refilledAt returns when the bucket is full, at the earliest now.
func (b *Bucket) refilledAt(now time.Time) time.Time {
	if b.fullAt.Before(now) {
		return now
	}
	return b.fullAt
}
