package pace

import (
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBucketTable(t *testing.T) {
	const interval = 10 * time.Second
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		change func(*Bucket)
		now    int
		want   time.Duration
	}{
		"full":                             {func(*Bucket) {}, 0, 0},
		"one left of three":                {func(b *Bucket) { b.TakeTokens(at(0), 2) }, 0, 0},
		"empty":                            {func(b *Bucket) { b.TakeTokens(at(0), 3) }, 0, interval},
		"empty, a while later":             {func(b *Bucket) { b.TakeTokens(at(0), 3) }, 4, 6 * time.Second},
		"empty, an interval later":         {func(b *Bucket) { b.TakeTokens(at(0), 3) }, 10, 0},
		"two owed":                         {func(b *Bucket) { b.TakeTokens(at(0), 5) }, 0, 3 * interval},
		"no more than the burst is saved":  {func(b *Bucket) { b.TakeTokens(at(1000), 3) }, 1000, interval},
		"a part returned":                  {func(b *Bucket) { b.TakeTokens(at(0), 3); b.ReturnTokenPart(0.4) }, 0, 6 * time.Second},
		"more returned than taken":         {func(b *Bucket) { b.ReturnTokenPart(5); b.TakeTokens(at(0), 3) }, 0, interval},
		"the last part, and nothing owed":  {func(b *Bucket) { b.TakeTokens(at(0), 3); b.TakeUpToOneToken(at(4)) }, 4, interval},
		"available tokens one by one":      {func(b *Bucket) { b.TakeUpToOneToken(at(0)); b.TakeUpToOneToken(at(0)) }, 0, 0},
		"available tokens beyond the last": {func(b *Bucket) { b.TakeTokens(at(0), 3); b.TakeUpToOneToken(at(0)); b.TakeUpToOneToken(at(0)) }, 0, interval},
	} {
		b := Rate{interval, 3}.NewBucket()
		c.change(&b)
		if got := b.WaitTime(at(c.now)); got != c.want || b.HasToken(at(c.now)) != (c.want == 0) {
			t.Errorf("%s: wait %s, want %s", name, got, c.want)
		}
	}
}

func TestBucketPerSecond(t *testing.T) {
	b := PerSecond(4, 1).NewBucket()
	b.TakeTokens(start, 1)
	if got := b.WaitTime(start); got != 250*time.Millisecond {
		t.Errorf("wait %s", got)
	}
}

// Callers that wait for their token never get more than the burst and one per interval, whatever
// is taken and when, and a bucket is full again after burst intervals.
func TestBucketBoundsTheRate(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		interval, burst := time.Duration(1+r.IntN(1000))*time.Millisecond, 1+r.IntN(10)
		b, now, taken := Rate{interval, burst}.NewBucket(), start, 0
		for range 300 {
			now = now.Add(time.Duration(r.IntN(int(2 * interval))))
			if !b.HasToken(now) {
				wait := b.WaitTime(now)
				if early := now.Add(wait - 1); wait > 0 && b.HasToken(early) {
					t.Fatalf("seed %d: a token comes before the announced wait of %s", seed, wait)
				}
				if r.IntN(2) == 0 {
					continue
				}
				now = now.Add(wait)
			}
			if !b.HasToken(now) {
				t.Fatalf("seed %d: no token after the announced wait", seed)
			}
			b.TakeTokens(now, 1)
			if taken++; taken > burst+int(now.Sub(start)/interval) {
				t.Fatalf("seed %d: %d tokens in %s, of one per %s and a burst of %d", seed, taken, now.Sub(start), interval, burst)
			}
		}
		later := now.Add(time.Duration(burst) * interval)
		for i := range burst {
			if !b.HasToken(later) {
				t.Fatalf("seed %d: only %d of %d tokens after a rest", seed, i, burst)
			}
			b.TakeTokens(later, 1)
		}
		if b.HasToken(later) {
			t.Fatalf("seed %d: more than %d tokens after a rest", seed, burst)
		}
	}
}

// Tokens that are owed delay later ones by exactly their number.
func TestBucketDebtIsPaid(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := Rate{time.Second, 1 + r.IntN(5)}.NewBucket()
		total := 0
		for range 1 + r.IntN(20) {
			n := r.IntN(7)
			b.TakeTokens(start, n)
			total += n
		}
		want := max(time.Duration(total-b.rate.Burst+1)*time.Second, 0)
		if got := b.WaitTime(start); got != want {
			t.Errorf("seed %d: wait %s after %d tokens of %d, want %s", seed, got, total, b.rate.Burst, want)
		}
	}
}

// A new rate keeps the number of missing tokens.
func TestBucketRateChanges(t *testing.T) {
	b := Rate{time.Second, 10}.NewBucket()
	if !b.IsFull(start) {
		t.Error("a new bucket is not full")
	}
	b.TakeTokens(start, 6)
	b.SetRate(start, Rate{100 * time.Millisecond, 7})
	if b.IsFull(start) || !b.HasToken(start) {
		t.Error("one token of seven is not left")
	}
	b.TakeTokens(start, 1)
	if got := b.WaitTime(start); got != 100*time.Millisecond {
		t.Errorf("the next token comes in %s", got)
	}
}
