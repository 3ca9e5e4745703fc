package link

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/session"
)

func TestPausesGrow(t *testing.T) {
	for _, x := range []struct {
		interval    time.Duration
		first, most time.Duration // of pauses, at most
	}{
		{0, backoffFirst, backoffMost},
		{20 * time.Second, 20 * time.Second / 60, 4 * time.Second},
		{15 * time.Minute, 15 * time.Second, 3 * time.Minute},
	} {
		rhythm := session.NewCheckInSchedule(x.interval, "uid")
		b := &backoff{}
		want := x.first
		for range 20 {
			if d := b.next(rhythm); d < want/2 || d > want {
				t.Fatalf("interval %s: a pause of %s; want between %s and %s", x.interval, d, want/2, want)
			}
			want = min(2*want, x.most)
		}
		b.reset()
		if d := b.next(rhythm); d > x.first {
			t.Errorf("interval %s: a pause of %s after a session; want at most %s", x.interval, d, x.first)
		}
	}
}
