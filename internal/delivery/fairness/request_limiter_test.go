package fairness

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"atoll.dev/atoll/internal/pace"
)

var (
	ofNetwork = pace.Rate{Interval: 6 * time.Second, Burst: 10}
	inTotal   = pace.PerSecond(20, 60)
	start     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func TestTheLimiterForgetsNetworks(t *testing.T) {
	l, now := NewRequestLimiter(ofNetwork, inTotal), start
	for i := range 3 * maxRememberedNetworks {
		now = now.Add(inTotal.Interval)
		if _, ok := l.TakeTurn(fmt.Sprint(i), now); !ok {
			t.Fatalf("network %d has no turn", i)
		}
	}
	if len(l.byNetwork) > maxRememberedNetworks {
		t.Errorf("%d networks are remembered", len(l.byNetwork))
	}
	taken := 0
	for i := range 10 * inTotal.Burst {
		if _, ok := l.TakeTurn(fmt.Sprint("other ", i), now); ok {
			taken++
		}
	}
	if taken > inTotal.Burst {
		t.Errorf("%d networks had a turn at one moment, at most %d may", taken, inTotal.Burst)
	}
}

// A question for the wait takes no turn.
func TestTheWaitOfANetwork(t *testing.T) {
	l := NewRequestLimiter(ofNetwork, inTotal)
	for i := range ofNetwork.Burst {
		if wait := l.WaitTime("a", start); wait != 0 {
			t.Fatalf("turn %d: wait %s", i, wait)
		}
		l.TakeTurn("a", start)
	}
	if wait := l.WaitTime("a", start); wait != ofNetwork.Interval {
		t.Errorf("without a turn left: wait %s", wait)
	}
	if wait := l.WaitTime("b", start); wait != 0 {
		t.Errorf("another network: wait %s", wait)
	}
}

func TestNetworkOfRequest(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.7:99": "192.0.2.7", "[2001:db8:1:2::3]:5": "2001:db8:1::/48"} {
		if got := NetworkOfRequest(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("%s is of the network %s, want %s", address, got, want)
		}
	}
}
