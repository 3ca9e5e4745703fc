package peer

import (
	"fmt"
	"testing"
)

func TestWhoHasMoreThanItsShare(t *testing.T) {
	for _, c := range []struct {
		what   string
		own    int
		others map[string]int
		moving bool
		want   string
	}{
		{"alone", 10_000, nil, false, "0 []"},
		{"about equal", 7_300, map[string]int{"b": 7_000, "c": 6_700}, false, "0 []"},
		{"few agents", 20, map[string]int{"b": 0, "c": 0}, false, "0 []"},
		{"one is back", 10_500, map[string]int{"b": 10_500, "c": 0}, false, "3500 [{c 7000}]"},
		{"nearly done", 7_050, map[string]int{"b": 7_000, "c": 6_950}, false, "0 []"},
		{"nearly done, and at it", 7_050, map[string]int{"b": 7_000, "c": 6_950}, true, "50 [{c 50}]"},
		{"done", 7_000, map[string]int{"b": 7_000, "c": 7_000}, true, "0 []"},
		{"the one that is back", 0, map[string]int{"b": 10_500, "c": 10_500}, true, "0 []"},
		{"two are back", 21_000, map[string]int{"c": 300, "b": 0}, false, "13900 [{b 7100} {c 6800}]"},
	} {
		surplus, rooms := computeSurplus(c.own, c.others, c.moving)
		if got := fmt.Sprint(surplus, " ", rooms); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// TestBalanceEnds: hubs that each give away what they have too many come to rest, and
// none of them is asked to take more than it has room for.
func TestBalanceEnds(t *testing.T) {
	hubs := map[string]int{"a": 10_500, "b": 9_000, "c": 1_500, "d": 0}
	moving := map[string]bool{}
	for step := range 1000 {
		rest := true
		for name, own := range hubs {
			others := map[string]int{}
			for other, n := range hubs {
				if other != name {
					others[other] = n
				}
			}
			surplus, rooms := computeSurplus(own, others, moving[name])
			moving[name] = surplus > 0
			for _, r := range rooms {
				n := min(50, surplus, r.Streams)
				hubs[name] -= n
				hubs[r.Address] += n
				surplus -= n
				rest = rest && n == 0
			}
		}
		if !rest {
			continue
		}
		for name, n := range hubs {
			if n < 5_000 || n > 5_500 {
				t.Errorf("after %d steps %s has %d", step, name, n)
			}
		}
		return
	}
	t.Errorf("it never comes to rest: %v", hubs)
}
