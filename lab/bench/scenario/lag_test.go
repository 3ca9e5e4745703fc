package scenario

import (
	"testing"
	"time"
)

// TestLag: a shown count lags by the time since it was true, also between two reads.
func TestLag(t *testing.T) {
	begin := time.Unix(1000, 0)
	// Up from 0 to 100 and down again to 60, ten a second.
	var counts []readyCount
	for i := range 15 {
		ready := 10 * i
		if i > 10 {
			ready = 200 - 10*i
		}
		counts = append(counts, readyCount{begin.Add(time.Duration(i) * time.Second), ready})
	}
	for said, want := range map[int]time.Duration{
		60:  0,               // now
		65:  time.Second,     // between the last two looks
		100: 4 * time.Second, // the highest
		55:  9 * time.Second, // on the way up
		2:   14 * time.Second,
		150: 14*time.Second + lagEvery, // never
	} {
		if got := shortestLag(counts, 10, said, said); got != want {
			t.Errorf("%d is said, and lags by %s, not %s", said, got, want)
		}
	}
	// Looks a second apart see 50 both times, and eight may have turned in between.
	still := []readyCount{{begin, 50}, {begin.Add(time.Second), 50}}
	if shortestLag(still, 8, 54, 54) != time.Second || shortestLag(still, 8, 56, 56) <= time.Second {
		t.Error("a count may have moved by half of what turned, and not by more")
	}
}
