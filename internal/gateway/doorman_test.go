package gateway

import (
	"testing"
	"time"
)

// TestTurnstile: a few pass at once, the rest in order at the rate, and who would wait
// for too long is turned away without holding up others.
func TestTurnstile(t *testing.T) {
	const rate, atOnce = 100, 10
	turns, now := newTurnstile(rate, atOnce), time.Unix(1000, 0)
	for i := range atOnce {
		if wait, ok := turns.take(now); !ok || wait != 0 {
			t.Fatalf("number %d waits %s, %t", i, wait, ok)
		}
	}
	queued, last := 0, time.Duration(0)
	for {
		wait, ok := turns.take(now)
		if !ok {
			break
		}
		if queued > 0 && wait-last != time.Second/rate {
			t.Fatalf("number %d passes %s after the one before it", queued, wait-last)
		}
		queued, last = queued+1, wait
	}
	if want := int(queueLimit.Seconds() * rate); queued < want || queued > want+1 {
		t.Errorf("%d wait, want %d", queued, want)
	}
	if _, ok := turns.take(now); ok {
		t.Error("the queue has no end")
	}
	now = now.Add(time.Second)
	if wait, ok := turns.take(now); !ok || wait > queueLimit {
		t.Errorf("a second later: %s, %t", wait, ok)
	}
	now = now.Add(time.Hour)
	if wait, ok := turns.take(now); !ok || wait != 0 {
		t.Errorf("much later: %s, %t", wait, ok)
	}
}

// TestWhoComesByATicketTakesLessOfATurn, so that the others' come sooner, and no sooner
// than the burst allows.
func TestWhoComesByATicketTakesLessOfATurn(t *testing.T) {
	const rate, atOnce = 100, 1
	now := time.Unix(1000, 0)
	full, resumed := newTurnstile(rate, atOnce), newTurnstile(rate, atOnce)
	var last, lastResumed time.Duration
	for range 100 + 1 {
		last, _ = full.take(now)
		lastResumed, _ = resumed.take(now)
		resumed.refund(0.5)
	}
	// A hundred turns take a second, or half of it, less the one that may be at once.
	if burst := atOnce * time.Second / rate; last != time.Second-burst || lastResumed != time.Second/2-burst {
		t.Errorf("after a hundred the next waits for %s, by tickets for %s", last, lastResumed)
	}
	idle := newTurnstile(rate, atOnce)
	for range 10 {
		idle.refund(1)
	}
	unused := newTurnstile(rate, atOnce)
	for i := range 5 {
		wait, _ := idle.take(now)
		if want, _ := unused.take(now); wait != want {
			t.Errorf("what was given back is saved up: number %d waits for %s, not %s", i, wait, want)
		}
	}
}
