package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The first numbers are those that a sort puts first.
func TestSelectFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 500 {
		keys := make([]int, 1+r.IntN(300))
		for i := range keys {
			keys[i] = r.IntN(1 + r.IntN(400))
		}
		n := r.IntN(len(keys) + 1)
		numbers := sequentialIndexes(len(keys))
		selectFirst(numbers, n, func(a, b int32) bool { return keys[a] < keys[b] })
		var got []int
		for _, i := range numbers[:n] {
			got = append(got, keys[i])
		}
		slices.Sort(got)
		slices.Sort(numbers)
		slices.Sort(keys)
		if !slices.Equal(got, keys[:n]) || !slices.Equal(numbers, sequentialIndexes(len(keys))) {
			t.Fatalf("first %d: %v, want %v", n, got, keys[:n])
		}
	}
}

// divideOneByOne hands out units one by one, minimums first: the plain form of divideByWeight.
func divideOneByOne(total int64, candidates []ShareCandidate, seed string) []int64 {
	d := newDivision(candidates, seed)
	for i := range candidates {
		d.weight[i] = uint64(candidates[i].Weight)
		d.least[i], d.most[i] = candidates[i].replicaBounds()
		d.roundShare[i] = d.least[i]
		total -= int64(d.least[i])
	}
	for ; total > 0; total-- {
		best := int32(0)
		for i := range int32(len(candidates)) {
			if d.isNextBefore(i, best) {
				best = i
			}
		}
		d.roundShare[best]++
	}
	out := make([]int64, len(candidates))
	for i, n := range d.roundShare {
		out[i] = int64(n)
	}
	return out
}

// Units that move at once, as many do in a large division, go where they go one by one.
func TestUnitsAtOnceAreAsOneByOne(t *testing.T) {
	r, atOnce := rand.New(rand.NewPCG(8, 9)), 0
	for round := range 300 {
		candidates, weights, least, most := make([]ShareCandidate, 40+r.IntN(160)), 1+r.Int64N(40), int64(0), int64(0)
		for i := range candidates {
			c := ShareCandidate{Cluster: fmt.Sprint("c", i), Weight: 1 + r.Int64N(weights), Max: 1 + r.Int64N(20)}
			c.Min = r.Int64N(min(c.Max, 1+r.Int64N(3)))
			candidates[i], least, most = c, least+c.Min, most+c.Max
		}
		total := least + r.Int64N(most-least+1)
		d := newDivision(candidates, "s")
		if got, left := DivideReplicas(total, candidates, ByWeight, "s"); left != 0 || !slices.Equal(got, divideOneByOne(total, candidates, "s")) {
			t.Fatalf("round %d: %d replicas: %v, want %v", round, total, got, divideOneByOne(total, candidates, "s"))
		}
		for i := range candidates {
			d.weight[i], d.roundShare[i] = uint64(candidates[i].Weight), uint64(candidates[i].Min)
			d.least[i], d.most[i] = candidates[i].replicaBounds()
		}
		before := slices.Clone(d.roundShare)
		if n := uint64(minUnitsAtOnce + r.IntN(20)); n <= uint64(most-least) && d.giveOrTakeOneEach(n, true) {
			atOnce++
			if want := divideOneByOne(least+int64(n), candidates, "s"); !slices.EqualFunc(d.roundShare, want, func(a uint64, b int64) bool { return int64(a) == b }) {
				t.Fatalf("round %d: %d units at once: %v, want %v", round, n, d.roundShare, want)
			}
			if !d.giveOrTakeOneEach(n, false) || !slices.Equal(d.roundShare, before) {
				t.Fatalf("round %d: taken back: %v, want %v", round, d.roundShare, before)
			}
		}
	}
	if atOnce < 20 {
		t.Errorf("units moved at once in %d rounds", atOnce)
	}
}

// A choice among the best options of each class is the choice among all options. Without a bound, only
// the best one comes first.
func TestTheBestOfEachClassAreEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	shorter := 0
	for range 2000 {
		p := randomProblem(r, 1+r.IntN(3), 60)
		if p.maxChosen = 1 + r.IntN(6); r.IntN(4) == 0 {
			p.maxChosen = unlimited
		}
		few, all := newSolver(p), newSolver(p)
		if few.canSearchExhaustively() {
			continue
		}
		for c := range all.optionsByClass {
			all.optionsByClass[c] = nil
		}
		for at := range p.options {
			if o := &p.options[at]; o.priority != prioLocked {
				all.optionsByClass[o.class] = append(all.optionsByClass[o.class], int32(at))
			}
		}
		for c, list := range all.optionsByClass {
			slices.SortFunc(list, func(a, b int32) int { return p.options[a].compareOption(&p.options[b]) })
			shorter += min(len(list)-len(few.optionsByClass[c]), 1)
		}
		got, gotShort := few.searchGreedily()
		want, wantShort := all.searchGreedily()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || !slices.Equal(gotShort, wantShort) {
			t.Fatalf("%s: chosen %v, of all %v", formatProblem(p), got, want)
		}
	}
	if shorter < 1000 {
		t.Errorf("%d lists were shorter", shorter)
	}
}

// maxDecisionAllocations bounds the allocations of a whole decision from nothing, by its kind. Lists
// are allocated at once, whatever the size of the fleet.
const maxDecisionAllocations = 80

// A decision allocates as often for many clusters as for few.
func TestDecisionsAllocateNothingPerCluster(t *testing.T) {
	for _, kind := range decisionKinds {
		count := func(n int) float64 {
			in, rooms := decisionInput(t, kind.placement, n, min(kind.replicas, int64(n)))
			return testing.AllocsPerRun(3, func() { decideWhole(in, rooms) })
		}
		few, many := count(1000), count(4000)
		if bound := few + 30; many > bound || kind.name != "spread" && kind.name != "zones" && many > maxDecisionAllocations {
			t.Errorf("%s: %v allocations for 1,000 clusters, %v for 4,000", kind.name, few, many)
		}
		if slices.Contains([]string{"all", "labels", "fields", "groups"}, kind.name) && many > few {
			t.Errorf("%s: the list of all fitting clusters grows step by step: %v allocations for 1,000 clusters, %v for 4,000", kind.name, few, many)
		}
	}
}
