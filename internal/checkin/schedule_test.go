package checkin

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestNextCheckInIsWithinTheInterval(t *testing.T) {
	const interval = 10 * time.Minute
	start := time.Unix(1_790_000_000, 0)
	for i := range 200 {
		s := NewCheckInSchedule(interval, fmt.Sprint("cluster-", i))
		now := start.Add(time.Duration(i) * 7 * time.Second)
		for range 20 {
			next := s.NextCheckIn(now)
			wait := next.Sub(now)
			if wait < interval/10 || wait >= 12*interval/10 {
				t.Fatalf("cluster %d waits %s", i, wait)
			}
			if again := NewCheckInSchedule(interval, fmt.Sprint("cluster-", i)).NextCheckIn(now); !again.Equal(next) {
				t.Fatalf("cluster %d: %s, then %s", i, next, again)
			}
			now = next
		}
	}
}

func TestStreamsNeedNoCheckIn(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	if next := NewCheckInSchedule(0, "u").NextCheckIn(now); !next.Equal(now) {
		t.Errorf("next check-in %s, want %s", next, now)
	}
	if text := NewCheckInSchedule(15*time.Minute, "u").DescribeNext(now); !strings.Contains(text, "every 15m") {
		t.Errorf("%q has no interval", text)
	}
}
