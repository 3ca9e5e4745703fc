package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Rounding within both minimums and maximums can leave a unit in the wrong cluster. The units are then as if
// handed out one by one.
func TestUnitsThatRoundingMisplacesAreSwapped(t *testing.T) {
	for _, tc := range []struct {
		name  string
		total int64
		cs    []ShareCandidate
	}{
		{"between few", 11, []ShareCandidate{
			{Cluster: "c0", Weight: 7, Max: 3}, {Cluster: "c1", Weight: 3, Max: 1}, {Cluster: "c2", Weight: 3, Min: 2, Max: Unbounded},
			{Cluster: "c3", Weight: 1, Min: 3, Max: 4}, {Cluster: "c4", Weight: 3, Max: 1}, {Cluster: "c5", Weight: 5, Max: 4},
		}},
		{"between weights that differ much", 10, []ShareCandidate{
			{Cluster: "c0", Weight: 2, Max: 2}, {Cluster: "c1", Weight: 97, Max: 3}, {Cluster: "c2", Weight: 76, Max: 1},
			{Cluster: "c3", Weight: 15, Min: 1, Max: 2}, {Cluster: "c4", Weight: 42, Min: 2, Max: 3}, {Cluster: "c5", Weight: 75, Max: 2},
		}},
	} {
		got, left := DivideReplicas(tc.total, tc.cs, ByWeight, "s")
		if want := divideOneByOne(tc.total, tc.cs, "s"); left != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %v, left %d; one by one %v", tc.name, got, left, want)
		}
	}
}

// A swap moves one unit to the better claim, and never beyond the bounds.
func TestSwapOneUnit(t *testing.T) {
	for _, tc := range []struct {
		name        string
		least, most []uint64
		share, want []uint64
	}{
		{"to the better claim", []uint64{0, 0, 0}, []uint64{9, 9, 9}, []uint64{4, 1, 1}, []uint64{3, 2, 1}},
		{"shares are fair", []uint64{0, 0, 0}, []uint64{9, 9, 9}, []uint64{2, 2, 2}, nil},
		{"all that can lose are at their minimum", []uint64{4, 1, 1}, []uint64{9, 9, 9}, []uint64{4, 1, 1}, nil},
		{"all that can get are at their maximum", []uint64{0, 0, 0}, []uint64{9, 1, 1}, []uint64{4, 1, 1}, nil},
	} {
		d := newDivision([]ShareCandidate{{Cluster: "a"}, {Cluster: "b"}, {Cluster: "c"}}, "s")
		d.rank = []uint64{1, 2, 3} // the first wins ties
		copy(d.weight, []uint64{1, 1, 1})
		copy(d.least, tc.least)
		copy(d.most, tc.most)
		copy(d.roundShare, tc.share)
		swapped := d.swapOneUnit()
		want := tc.want
		if want == nil {
			want = tc.share
		}
		if swapped != (tc.want != nil) || !slices.Equal(d.roundShare, want) {
			t.Errorf("%s: %v, swapped %t; want %v", tc.name, d.roundShare, swapped, want)
		}
	}
}

// Clusters whose hashes are equal come in the order of their names.
func TestEqualHashesAreOrderedByName(t *testing.T) {
	d := newDivision([]ShareCandidate{{Cluster: "b"}, {Cluster: "a"}}, "s")
	d.rank = []uint64{7, 7}
	turns := d.buildTurns(func(int) divisionTurn { return divisionTurn{class: 1, measure: 2} })
	if got := d.compareTurns(&turns[0], &turns[1]); got != 1 {
		t.Errorf("the turn of b compares to that of a as %d, want 1", got)
	}
	if got := d.compareRanks(0, 1); got != 1 {
		t.Errorf("b compares to a as %d, want 1", got)
	}
}

// Turns go by class, then by the larger measure, then by rank.
func TestCompareTurns(t *testing.T) {
	d := newDivision([]ShareCandidate{{Cluster: "a"}, {Cluster: "b"}}, "s")
	d.rank = []uint64{9, 1}
	for _, tc := range []struct {
		name string
		a, b divisionTurn
	}{
		{"the lower class", divisionTurn{class: 0, measure: 1, i: 0}, divisionTurn{class: 1, measure: 5, i: 1}},
		{"the larger measure", divisionTurn{measure: 5, i: 0}, divisionTurn{measure: 4, i: 1}},
		{"the lower rank", divisionTurn{measure: 5, i: 1}, divisionTurn{measure: 5, i: 0}},
	} {
		if one, other := d.compareTurns(&tc.a, &tc.b), d.compareTurns(&tc.b, &tc.a); one >= 0 || other <= 0 {
			t.Errorf("%s: %d, and the other way %d", tc.name, one, other)
		}
	}
}

// Units move at once only where each of the clusters can get or lose one.
func TestUnitsAtOnceNeedAsManyClusters(t *testing.T) {
	candidates := make([]ShareCandidate, 20)
	for i := range candidates {
		candidates[i] = ShareCandidate{Cluster: string(rune('a' + i))}
	}
	for _, tc := range []struct {
		name   string
		n      uint64
		able   int // so many clusters can get or lose a unit
		give   bool
		atOnce bool
	}{
		{"all get one", 20, 20, true, true}, {"all lose one", 20, 20, false, true},
		{"as many as there are units", 16, 16, true, true}, {"one too few gets one", 17, 16, true, false},
		{"as many as there are units lose one", 16, 16, false, true}, {"one too few loses one", 17, 16, false, false},
		{"few units", minUnitsAtOnce - 1, 20, true, false}, {"more units than clusters", 21, 20, true, false},
	} {
		d := newDivision(candidates, "s")
		for i := range candidates {
			d.weight[i], d.roundShare[i], d.least[i], d.most[i] = 1, 3, 3, 3
			if i < tc.able {
				d.least[i], d.most[i] = 2, 4
			}
		}
		before := slices.Clone(d.roundShare)
		atOnce := d.giveOrTakeOneEach(tc.n, tc.give)
		var moved uint64
		for i, n := range d.roundShare {
			moved += max(n, before[i]) - min(n, before[i])
		}
		if want := map[bool]uint64{true: tc.n}[tc.atOnce]; atOnce != tc.atOnce || moved != want {
			t.Errorf("%s: at once %t, %d units moved; want %t, %d", tc.name, atOnce, moved, tc.atOnce, want)
		}
	}
}

// An order that makes each pivot the worst one takes no quadratic time, and the first numbers are right.
func TestSelectFirstOfTheWorstOrder(t *testing.T) {
	const all, n = 4000, 2000
	// The values are set while they are compared, so that the pivot is always among the largest (M. D.
	// McIlroy, A Killer Adversary for Quicksort).
	values, unset, solid, candidate, compared := make([]int, all), all+1, 0, int32(0), 0
	for i := range values {
		values[i] = unset
	}
	isBefore := func(a, b int32) bool {
		compared++
		if values[a] == unset && values[b] == unset {
			if a == candidate {
				values[a] = solid
			} else {
				values[b] = solid
			}
			solid++
		}
		if values[a] == unset {
			candidate = a
		} else if values[b] == unset {
			candidate = b
		}
		return values[a] < values[b]
	}
	numbers := sequentialIndexes(all)
	selectFirst(numbers, n, isBefore)
	first, others := 0, unset
	for at, i := range numbers {
		if at < n {
			first = max(first, values[i])
		} else {
			others = min(others, values[i])
		}
	}
	if first > others || compared > 64*all+2*all*12 {
		t.Errorf("the last of the first is %d, the first of the others %d, after %d comparisons", first, others, compared)
	}
	if slices.Sort(numbers); !slices.Equal(numbers, sequentialIndexes(all)) {
		t.Error("numbers are lost")
	}
}

// Options are of one class where they are in the same groups of every rule, also where there are too many
// groups for a table.
func TestClassesOfManyGroups(t *testing.T) {
	const groups = 400 // 400 classes of 401 groups are more than maxTableCells
	r := rand.New(rand.NewPCG(7, 8))
	p := choiceProblem{options: make([]candidateOption, 3*groups), maxChosen: unlimited, rules: []spreadRule{{groups: groups}, {groups: groups}}}
	for at := range p.options {
		first, second := int32(at%groups), int32(r.IntN(3))-1 // some are in no group of the second
		p.rules[0].groupOf, p.rules[1].groupOf = append(p.rules[0].groupOf, first), append(p.rules[1].groupOf, second)
	}
	s := newSolver(&p)
	type pair struct{ first, second int32 }
	classes, next := map[pair]int32{}, int32(0)
	for at := range p.options {
		in := pair{p.rules[0].groupOf[at], p.rules[1].groupOf[at]}
		want, known := classes[in]
		if !known {
			want, classes[in] = next, next // classes are numbered in the order of the options
			next++
		}
		if got := p.options[at].class; got != want {
			t.Fatalf("option %d in %v is of class %d, want %d", at, in, got, want)
		}
	}
	if len(s.groupsByClass) != len(classes) {
		t.Errorf("%d classes, want %d", len(s.groupsByClass), len(classes))
	}
}
