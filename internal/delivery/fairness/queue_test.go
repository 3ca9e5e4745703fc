package fairness

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/pace"
)

const longest = 15 * time.Second

// arrivals are connections of one network that come at the same time.
type arrivals struct {
	t      *testing.T
	q      *ConnectionQueue
	wait   sync.WaitGroup
	mu     sync.Mutex
	began  time.Time
	unused float64 // part of each turn
	turns  []turn  // in their order
	failed map[string]int
}

type turn struct {
	name  string
	after time.Duration
}

func arriveAt(t *testing.T, q *ConnectionQueue) *arrivals {
	return &arrivals{t: t, q: q, began: time.Now(), failed: map[string]int{}}
}

// addArrivals adds n connections, one after another.
func (a *arrivals) addArrivals(n int, network string, known bool) {
	for range n {
		a.wait.Go(func() {
			err := a.q.Wait(network, known)
			a.mu.Lock()
			defer a.mu.Unlock()
			if err != nil {
				a.failed[network]++
				return
			}
			a.turns = append(a.turns, turn{network, time.Since(a.began)})
			a.q.ReturnUnusedTurn(a.unused)
		})
		synctest.Wait()
	}
}

func (a *arrivals) lastTurnOf(network string) (n int, after time.Duration) {
	for _, turn := range a.turns {
		if turn.name == network {
			n, after = n+1, turn.after
		}
	}
	return n, after
}

// A burst passes at once, the rest at the rate. As many wait as have their turn in time, and one
// more is refused at once.
func TestTurnsComeAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, atOnce = 100, 10
		a := arriveAt(t, NewQueue(pace.PerSecond(rate, atOnce), longest))
		a.addArrivals(atOnce, "a", false)
		if n, after := a.lastTurnOf("a"); n != atOnce || after != 0 {
			t.Fatalf("%d of the burst have their turn, the last after %s", n, after)
		}
		a.addArrivals(int(longest.Seconds()*rate)+1, "a", false)
		if a.failed["a"] != 1 {
			t.Errorf("%d connections are refused at once, want 1", a.failed["a"])
		}
		a.wait.Wait()
		n, after := a.lastTurnOf("a")
		if n+a.failed["a"] != atOnce+int(longest.Seconds()*rate)+1 || a.failed["a"] > 2 {
			t.Errorf("%d have their turn, %d are refused", n, a.failed["a"])
		}
		for i, turn := range a.turns[atOnce:] {
			if want := time.Duration(i+1) * time.Second / rate; turn.after != want {
				t.Fatalf("number %d has its turn after %s, want %s", i, turn.after, want)
			}
		}
		if after > longest {
			t.Errorf("the last turn comes after %s", after)
		}
		time.Sleep(time.Hour)
		later := arriveAt(t, a.q)
		later.addArrivals(atOnce, "a", false)
		if n, after := later.lastTurnOf("a"); n != atOnce || after != 0 {
			t.Errorf("after an hour %d of the burst have their turn, the last after %s", n, after)
		}
	})
}

// A flood of one network delays its own connections: each other network waits as if alone with it.
func TestNetworksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arriveAt(t, NewQueue(pace.PerSecond(100, 1), longest))
		a.addArrivals(2000, "flood", false)
		a.addArrivals(5, "small", false)
		a.addArrivals(1, "single", false)
		a.wait.Wait()
		if n, after := a.lastTurnOf("small"); n != 5 || after > 200*time.Millisecond {
			t.Errorf("%d of 5 have their turn, the last after %s", n, after)
		}
		if n, after := a.lastTurnOf("single"); n != 1 || after > 50*time.Millisecond {
			t.Errorf("%d of 1 has its turn, after %s", n, after)
		}
		if n, _ := a.lastTurnOf("flood"); a.failed["small"]+a.failed["single"] > 0 || n < 1400 {
			t.Errorf("of the flood %d have their turn; refused: %v", n, a.failed)
		}
	})
}

// Many networks that flood do not keep out known connections, and these leave each fourth turn.
func TestKnownConnectionsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arriveAt(t, NewQueue(pace.PerSecond(100, 1), longest))
		a.addArrivals(1, "first", false)
		for i := range 1500 {
			a.addArrivals(1, fmt.Sprint("flood-", i), false)
		}
		a.addArrivals(300, "fleet", true)
		a.wait.Wait()
		if n, after := a.lastTurnOf("fleet"); n != 300 || after > 4*time.Second+20*time.Millisecond {
			t.Errorf("%d of 300 have their turn, the last after %s; want a turn each 1/75 s", n, after)
		}
		others := 0
		for _, turn := range a.turns {
			if turn.name != "fleet" && turn.after > 0 && turn.after <= 4*time.Second {
				others++
			}
		}
		if others < 99 || others > 102 {
			t.Errorf("%d others have their turn within 4 s, want each fourth of 400", others)
		}
	})
}

// A full queue refuses the last connection of the longest line for one of a shorter line.
func TestAFullQueueRefusesTheLongestLine(t *testing.T) {
	for name, c := range map[string]struct {
		lines   map[string]int
		network string
		known   bool
		refused string
	}{
		"a new network":                  {map[string]int{"a": 5, "b": 5}, "c", false, "a or b"},
		"the longest line itself":        {map[string]int{"a": 6, "b": 4}, "a", false, "a"},
		"a line that would be as long":   {map[string]int{"a": 5, "b": 5}, "b", false, "b"},
		"a line that is shorter by two":  {map[string]int{"a": 6, "b": 4}, "b", false, "a"},
		"all networks have one":          {map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1}, "k", false, "k"},
		"a known one of a long line":     {map[string]int{"a": 7, "b": 3}, "a", true, "a"},
		"a known one, and others of one": {map[string]int{"a": 10}, "b", true, "a"},
		"a new network among known ones": {map[string]int{"known a": 7, "known b": 3}, "c", false, "known a"},
		"others below their part":        {map[string]int{"known a": 9, "c": 1}, "c", false, "known a"},
		"others at their part":           {map[string]int{"known a": 8, "c": 2}, "c", false, "c"},
		"known ones, others at theirs":   {map[string]int{"known a": 8, "c": 2}, "known a", true, "known a"},
		"few known ones, others at part": {map[string]int{"known a": 8, "c": 2}, "known b", true, "known a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := arriveAt(t, NewQueue(pace.PerSecond(10, 1), time.Second))
				a.addArrivals(1, "at once", false)
				for network, n := range c.lines {
					a.addArrivals(n, network, strings.HasPrefix(network, "known"))
				}
				if len(a.failed) > 0 {
					t.Fatalf("refused before the queue is full: %v", a.failed)
				}
				a.addArrivals(1, c.network, c.known)
				a.mu.Lock()
				failed := maps.Clone(a.failed)
				a.mu.Unlock()
				a.wait.Wait()
				if len(failed) != 1 || failed[c.refused] != 1 && (c.refused != "a or b" || failed["a"]+failed["b"] != 1) {
					t.Errorf("refused: %v, want one of %s", failed, c.refused)
				}
			})
		})
	}
}

// A resumed handshake shortens the wait of others, and what is returned is not saved up.
func TestAPartOfATurnIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(pace.PerSecond(100, 2), longest)
		for range 10 {
			q.ReturnUnusedTurn(1)
		}
		a := arriveAt(t, q)
		a.unused = 0.25
		a.addArrivals(101, "a", false)
		a.wait.Wait()
		// A hundred turns after the first take 0.75 s, less the one that the burst allows.
		if n, after := a.lastTurnOf("a"); n != 101 || after < 730*time.Millisecond || after > 750*time.Millisecond {
			t.Errorf("%d of 101 have their turn, the last after %s, want 740ms", n, after)
		}
	})
}
