package fleetlist

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// largeFleet is the largest fleet that the project measures.
const largeFleet = 100_000

func newLargeFleet(tb testing.TB) *Index {
	tb.Helper()
	return NewIndex(makeRows(rand.New(rand.NewPCG(1, 9)), largeFleet))
}

// The memory of an answer follows from the page and the groups, whatever the size of the fleet.
func TestAnswersOfALargeFleetAllocateLittle(t *testing.T) {
	x := newLargeFleet(t)
	q := PageRequest{Filter: mustFilter(t, FilterInput{Text: "cluster-9 -status:Away", Selector: "env=prod"}), Order: mustOrder(t, "region"), Limit: DefaultPage}
	if n := testing.AllocsPerRun(1, func() { SelectPage(x.Rows(), q, keepGoing) }); n > 200 {
		t.Errorf("a page takes %.0f allocations", n)
	}
	by := mustProperty(t, "region")
	if n := testing.AllocsPerRun(1, func() {
		tally := NewTally(Filter{}, by)
		x.CountAll(tally, keepGoing)
		tally.Answer(x.Len(), 100)
	}); n > 200 {
		t.Errorf("counts take %.0f allocations", n)
	}
	if n := testing.AllocsPerRun(1, func() {
		s, _ := NewSearch("9 cluster", DefaultFound)
		for i := range x.Rows() {
			s.Offer(Named{Kind: "Cluster", Name: x.Rows()[i].Name()})
		}
		s.Found()
	}); n > 200 {
		t.Errorf("a search takes %.0f allocations", n)
	}
}

func BenchmarkLargeFleet(b *testing.B) {
	x := newLargeFleet(b)
	for name, q := range map[string]PageRequest{
		"page/status": {Order: mustOrder(b, "status"), Limit: DefaultPage},
		"page/name":   {Order: mustOrder(b, "name"), Limit: DefaultPage},
		"page/cpu":    {Order: mustOrder(b, "cpu"), Limit: DefaultPage},
		"page/tiles":  {Filter: mustFilter(b, FilterInput{Text: "region:region-1"}), Order: mustOrder(b, "status"), Limit: MaxPage},
		"page/words":  {Filter: mustFilter(b, FilterInput{Text: "nowhere in the fleet"}), Order: mustOrder(b, "region"), Limit: DefaultPage},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				SelectPage(x.Rows(), q, keepGoing)
			}
		})
	}
	for _, name := range []string{"region", "set", "label:env", "status"} {
		b.Run("counts/"+name, func(b *testing.B) {
			b.ReportAllocs()
			by := mustProperty(b, name)
			for b.Loop() {
				tally := NewTally(Filter{}, by)
				x.CountAll(tally, keepGoing)
				tally.Answer(x.Len(), 200)
			}
		})
	}
	b.Run("search", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := NewSearch("cluster-99", DefaultFound)
			if err != nil {
				b.Fatal(err)
			}
			for i := range x.Rows() {
				s.Offer(Named{Kind: "Cluster", Name: x.Rows()[i].Name()})
			}
			s.Found()
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		r := rand.New(rand.NewPCG(1, 10))
		tally := NewTally(Filter{}, mustProperty(b, "region"))
		x.CountAll(tally, keepGoing)
		for i := 0; b.Loop(); i++ {
			row := makeRow(r, fmt.Sprint("cluster-", i%largeFleet))
			change := []Change{{Name: row.Name(), After: &row}}
			x.Apply(change)
			tally.Change(change[0].Before, change[0].After)
		}
	})
}
