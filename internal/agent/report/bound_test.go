package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// manyItems gives items of the kind, by name.
func manyItems(n int, kind string, change func(i int, it *Item)) []Item {
	out := make([]Item, n)
	for i := range out {
		out[i] = Item{
			Key: atoll.ItemKey{Group: "apps", Kind: kind, Namespace: "shop", Name: fmt.Sprintf("item-%04d", i)}, Applied: true, Observed: true,
			Health: atoll.Healthy, Reflected: json.RawMessage(`{"n":[2,2,2,2,2],"f":"ad"}`),
		}
		change(i, &out[i])
	}
	return out
}

func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("words ", 60)
	healthy := func(int, *Item) {}
	cases := map[string]struct {
		items    []Item
		unlisted int32
		first    string // name of an item that is listed in any case
	}{
		"few":                   {items: manyItems(20, "Deployment", healthy), first: "item-0019"},
		"many that are healthy": {items: manyItems(2000, "Deployment", healthy)},
		"not applied":           {items: manyItems(500, "ConfigMap", func(_ int, it *Item) { *it = Item{Key: it.Key} }), unlisted: 1},
		"not ready":             {items: manyItems(500, "Deployment", func(_ int, it *Item) { it.Health, it.Why, it.Text = atoll.Progressing, "Unavailable", long }), unlisted: 1},
		"one of many that fails": {items: manyItems(2000, "Deployment", func(i int, it *Item) {
			it.Error = i == 1999
			it.Reason = map[bool]atoll.Reason{true: "Conflict"}[it.Error]
		}), first: "item-1999"},
		"Jobs before Deployments": {
			items: append(manyItems(1000, "Deployment", healthy), manyItems(10, "Job", func(i int, it *Item) { it.Key.Name, it.Reflected = fmt.Sprint("job-", i), json.RawMessage(`{"f":"c"}`) })...),
			first: "job-9",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := BuildStatus(Input{Generation: 1, Items: c.items}, nil, 1)
			text, err := json.Marshal(s)
			if err != nil || len(text) > 20<<10 {
				t.Errorf("the status has %d bytes (%v)", len(text), err)
			}
			ready := 0
			for _, it := range c.items {
				if !it.Error && it.Health == atoll.Healthy {
					ready++
				}
			}
			if int(s.Total) != len(c.items) || int(s.Ready) != ready {
				t.Errorf("%d of %d ready, want %d of %d", s.Ready, s.Total, ready, len(c.items))
			}
			listed := map[string]bool{}
			unready := 0
			for _, it := range s.Items {
				listed[it.Key.Name] = true
				if it.Error || it.Health != atoll.Healthy {
					unready++
				}
			}
			if c.first != "" && !listed[c.first] {
				t.Errorf("%s is not listed", c.first)
			}
			if got := len(c.items) - ready - unready; int(s.UnlistedNotReady) != got || (got > 0) != (c.unlisted > 0) {
				t.Errorf("%d unlisted are reported, %d are", s.UnlistedNotReady, got)
			}
			again := BuildStatus(Input{Generation: 1, Items: c.items}, &s, 2)
			if text2, _ := json.Marshal(again); c.unlisted == 0 && string(text2) != string(text) {
				t.Errorf("the same again is reported otherwise")
			}
		})
	}
}

func TestTombstonesAreReportedInTurn(t *testing.T) {
	var gone []string
	for i := range 1000 {
		gone = append(gone, fmt.Sprintf("/ConfigMap/shop/item-%04d 5f0c3ad0-68a6-4a3e-9c39-%012d", 999-i, i))
	}
	turns := 0
	for left := gone; len(left) > 0; turns++ {
		s := BuildStatus(Input{Generation: 1, Gone: left}, nil, 1)
		if text, err := json.Marshal(s); err != nil || len(text) > 20<<10 || len(s.DoneTombstones) == 0 {
			t.Fatalf("%d bytes for %d tombstones (%v)", len(text), len(s.DoneTombstones), err)
		}
		reported := map[string]bool{}
		for _, id := range s.DoneTombstones {
			reported[id] = true
		}
		var rest []string
		for _, id := range left {
			if !reported[id] {
				rest = append(rest, id)
			}
		}
		left = rest
	}
	if turns < 2 || turns > 20 {
		t.Errorf("%d turns", turns)
	}
}

func TestManyTombstonesAreAllToldAtOnce(t *testing.T) {
	var gone []string
	for i := range 1000 {
		gone = append(gone, fmt.Sprintf("/ConfigMap/shop/item-%04d 5f0c3ad0-68a6-4a3e-9c39-%012d", i, i))
	}
	for _, c := range []struct {
		name string
		in   Input
		all  bool
	}{
		{"few", Input{Gone: gone[:3], AllGone: true}, false},
		{"none", Input{AllGone: true}, false},
		{"many", Input{Gone: gone, AllGone: true}, true},
		{"many of more", Input{Gone: gone}, false},
	} {
		s := BuildStatus(c.in, nil, 1)
		if s.AllTombstonesDone != c.all || c.all == (len(s.DoneTombstones) > 0) && len(c.in.Gone) > 0 {
			t.Errorf("%s: %d tombstones are reported, all %t; want all %t", c.name, len(s.DoneTombstones), s.AllTombstonesDone, c.all)
		}
	}
}

// Large statuses have a bound of their own. One that does not fit is left out, with a message, and
// the health of its item stays. The largest report is one that a hub takes.
func TestLargeStatusesAreBounded(t *testing.T) {
	status := func(n int) json.RawMessage {
		return json.RawMessage(`{"s":{"x":"` + strings.Repeat("x", n-len(`{"s":{"x":""}}`)) + `"}}`)
	}
	for name, c := range map[string]struct {
		sizes []int
		worst int   // the item that is Degraded; -1: none
		kept  []int // the items with a status
	}{
		"one of the largest size":     {[]int{16 << 10}, -1, []int{0}},
		"two, and one fits":           {[]int{16 << 10, 16 << 10}, -1, []int{0}},
		"the degraded one goes first": {[]int{16 << 10, 16 << 10}, 1, []int{1}},
		"a smaller one still fits":    {[]int{12 << 10, 12 << 10, 4 << 10}, -1, []int{0, 2}},
		"small ones count for items":  {[]int{16 << 10, 1 << 10, 1 << 10, 1 << 10}, -1, []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			items := manyItems(len(c.sizes), "Thing", func(i int, it *Item) {
				it.Reflected = status(c.sizes[i])
				if i == c.worst {
					it.Health, it.Why = atoll.Degraded, "Broken"
				}
			})
			s := BuildStatus(Input{Generation: 1, Items: items}, nil, 1)
			if len(s.Items) != len(items) || s.UnlistedNotReady != 0 {
				t.Fatalf("%d of %d items are listed, %d are counted", len(s.Items), len(items), s.UnlistedNotReady)
			}
			for i, it := range s.Items {
				if it.Health != items[i].Health {
					t.Errorf("item %d is %s, want %s", i, it.Health, items[i].Health)
				}
				kept := slices.Contains(c.kept, i)
				if kept != (len(it.ReflectedStatus) == c.sizes[i]) || kept == strings.Contains(it.Message, "leaves out its status") {
					t.Errorf("item %d has a status of %d bytes, and the message %q", i, len(it.ReflectedStatus), it.Message)
				}
			}
		})
	}
	many := manyItems(500, "Deployment", func(i int, it *Item) {
		it.Health, it.Why, it.Text = atoll.Progressing, "Unavailable", strings.Repeat("\x01", 256)
		if i < 2 {
			it.Reflected = status(16 << 10)
		}
	})
	var gone []string
	for i := range 1000 {
		gone = append(gone, fmt.Sprintf("/ConfigMap/shop/item-%04d 5f0c3ad0-68a6-4a3e-9c39-%012d", i, i))
	}
	text, err := json.Marshal(BuildStatus(Input{Generation: 1, Items: many, Gone: gone}, nil, 1))
	if err != nil || len(text) > 37<<10 || len(text) <= 32<<10 {
		t.Errorf("the largest report has %d bytes (%v)", len(text), err)
	}
}
