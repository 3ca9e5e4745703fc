package schedule

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// weightedCandidates of these weights, without bounds.
func weightedCandidates(weights ...int64) []ShareCandidate {
	out := make([]ShareCandidate, len(weights))
	for i, w := range weights {
		out[i] = ShareCandidate{Cluster: fmt.Sprintf("c%d", i), Weight: w, Max: Unbounded}
	}
	return out
}

func TestDivide(t *testing.T) {
	for _, tc := range []struct {
		total   int64
		weights []int64
		want    []int64
		left    int64
	}{
		{9, []int64{1, 2}, []int64{3, 6}, 0},
		{10, []int64{1, 1}, []int64{5, 5}, 0},
		{0, []int64{1, 1}, []int64{0, 0}, 0},
		{-4, []int64{1}, []int64{0}, 0},
		{7, []int64{0, 3, -1}, []int64{0, 7, 0}, 0},
		{7, []int64{0, -2}, []int64{0, 0}, 7},
		{5, nil, []int64{}, 5},
		{1, []int64{3, 1}, []int64{1, 0}, 0},
		{math.MaxInt64, []int64{math.MaxInt64}, []int64{math.MaxInt64}, 0},
	} {
		got, left := DivideReplicas(tc.total, weightedCandidates(tc.weights...), ByWeight, "b")
		if !slices.Equal(got, tc.want) || left != tc.left {
			t.Errorf("Divide(%d, %v) = %v and %d left, want %v and %d", tc.total, tc.weights, got, left, tc.want, tc.left)
		}
	}
	got, left := DivideReplicas(math.MaxInt64, weightedCandidates(MaxWeight, math.MaxInt64), ByWeight, "b")
	if big := max(got[0], got[1]); left != 0 || big != math.MaxInt64/2+1 || min(got[0], got[1]) != math.MaxInt64/2 {
		t.Errorf("Divide(MaxInt64) among equals = %v, %d left", got, left)
	}
}

func TestDivideWithinBounds(t *testing.T) {
	claim := func(weight, least, most int64) ShareCandidate {
		return ShareCandidate{Weight: weight, Min: least, Max: most}
	}
	for _, tc := range []struct {
		name   string
		total  int64
		claims []ShareCandidate
		want   []int64
		left   int64
	}{
		{"a maximum sends the rest on", 12, []ShareCandidate{claim(1, 0, 2), claim(1, 0, Unbounded), claim(1, 0, Unbounded)}, []int64{2, 5, 5}, 0},
		{"a minimum is reached first", 10, []ShareCandidate{claim(1, 6, Unbounded), claim(9, 0, Unbounded)}, []int64{6, 4}, 0},
		{"and does not matter where the weight gives more", 10, []ShareCandidate{claim(9, 6, Unbounded), claim(1, 0, Unbounded)}, []int64{9, 1}, 0},
		{"not enough for the minimums", 5, []ShareCandidate{claim(1, 6, Unbounded), claim(4, 6, Unbounded), claim(100, 0, Unbounded)}, []int64{1, 4, 0}, 0},
		{"both at once", 20, []ShareCandidate{claim(1, 5, 5), claim(1, 0, 3), claim(1, 0, Unbounded)}, []int64{5, 3, 12}, 0},
		{"more than all may have", 20, []ShareCandidate{claim(1, 0, 5), claim(3, 0, 7)}, []int64{5, 7}, 8},
		{"a maximum below the minimum", 20, []ShareCandidate{claim(1, 9, 5), claim(1, 0, Unbounded)}, []int64{5, 15}, 0},
		{"no weight, no replicas, whatever the minimum", 4, []ShareCandidate{claim(0, 3, 5), claim(1, 0, Unbounded)}, []int64{0, 4}, 0},
	} {
		for i := range tc.claims {
			tc.claims[i].Cluster = fmt.Sprint("c", i)
		}
		if got, left := DivideReplicas(tc.total, tc.claims, ByWeight, "b"); !slices.Equal(got, tc.want) || left != tc.left {
			t.Errorf("%s: %v and %d left, want %v and %d", tc.name, got, left, tc.want, tc.left)
		}
	}
}

func TestDivideOnTop(t *testing.T) {
	claim := func(has, room int64, bounds ...int64) ShareCandidate {
		c := ShareCandidate{Current: has, FreeCapacity: room, Max: Unbounded}
		if len(bounds) == 2 {
			c.Min, c.Max = bounds[0], bounds[1]
		}
		return c
	}
	for _, tc := range []struct {
		name   string
		total  int64
		how    DivisionMethod
		claims []ShareCandidate
		want   []int64
		left   int64
	}{
		{"new ones go by room", 10, ByFreeCapacity, []ShareCandidate{claim(0, 30), claim(0, 20)}, []int64{6, 4}, 0},
		{"what runs stays", 10, ByFreeCapacity, []ShareCandidate{claim(4, 0), claim(2, 100)}, []int64{4, 6}, 0},
		{"unknown room comes last", 10, ByFreeCapacity, []ShareCandidate{claim(0, 7), claim(0, -1)}, []int64{7, 3}, 0},
		{"no free capacity is known", 10, ByFreeCapacity, []ShareCandidate{claim(0, -1), claim(0, -1)}, []int64{5, 5}, 0},
		{"no room", 10, ByFreeCapacity, []ShareCandidate{claim(1, 2), claim(0, 3)}, []int64{3, 3}, 4},
		{"smaller in proportion", 5, ByFreeCapacity, []ShareCandidate{claim(6, 0), claim(4, 99)}, []int64{3, 2}, 0},
		{"a smaller maximum moves what is above", 10, ByFreeCapacity, []ShareCandidate{claim(8, 50, 0, 3), claim(2, 10)}, []int64{3, 7}, 0},
		{"minimums first", 10, ByFreeCapacity, []ShareCandidate{claim(0, 5, 4, 9), claim(0, 1000)}, []int64{4, 6}, 0},
		{"as far as there is room", 10, ByFreeCapacity, []ShareCandidate{claim(0, 2, 4, 9), claim(0, 1000)}, []int64{2, 8}, 0},
		{"a minimum is kept when it shrinks", 4, ByFreeCapacity, []ShareCandidate{claim(3, 0, 3, 9), claim(9, 0)}, []int64{3, 1}, 0},

		{"one cluster, where it fits", 10, Aggregated, []ShareCandidate{claim(0, 8), claim(0, 20), claim(0, 12)}, []int64{0, 10, 0}, 0},
		{"the fewest", 30, Aggregated, []ShareCandidate{claim(0, 8), claim(0, 20), claim(0, 12)}, []int64{0, 20, 10}, 0},
		{"what is used is filled first, the fullest first", 12, Aggregated, []ShareCandidate{claim(1, 5), claim(4, 2), claim(0, 99)}, []int64{6, 6, 0}, 0},
		{"then others", 20, Aggregated, []ShareCandidate{claim(1, 5), claim(4, 2), claim(0, 99)}, []int64{6, 6, 8}, 0},
		{"unknown room comes last", 20, Aggregated, []ShareCandidate{claim(3, -1), claim(0, 10), claim(0, -1)}, []int64{10, 10, 0}, 0},
		{"a maximum bounds it", 20, Aggregated, []ShareCandidate{claim(0, 50, 0, 15), claim(0, 9)}, []int64{15, 5}, 0},
		{"no room", 20, Aggregated, []ShareCandidate{claim(2, 3), claim(0, 4)}, []int64{5, 4}, 11},
		{"the least go first", 6, Aggregated, []ShareCandidate{claim(2, 9), claim(5, 9), claim(3, 9)}, []int64{0, 5, 1}, 0},
		{"but for minimums", 6, Aggregated, []ShareCandidate{claim(2, 9, 2, 9), claim(5, 9), claim(3, 9)}, []int64{2, 4, 0}, 0},
		{"and in the end those too", 1, Aggregated, []ShareCandidate{claim(2, 9, 2, 9), claim(5, 9, 4, 9)}, []int64{0, 1}, 0},
	} {
		for i := range tc.claims {
			tc.claims[i].Cluster = fmt.Sprint("c", i)
		}
		if got, left := DivideReplicas(tc.total, tc.claims, tc.how, "b"); !slices.Equal(got, tc.want) || left != tc.left {
			t.Errorf("%s: %v and %d left, want %v and %d", tc.name, got, left, tc.want, tc.left)
		}
	}
}

// maxShare is the most that a claim may come to.
func maxShare(c ShareCandidate, how DivisionMethod) int64 {
	most := max(c.Max, 0)
	switch {
	case how == ByWeight && c.Weight <= 0:
		return 0
	case how == ByWeight || c.FreeCapacity < 0 || c.FreeCapacity > math.MaxInt64-max(c.Current, 0):
		return most
	}
	return min(most, max(c.Current, 0)+c.FreeCapacity)
}

func sumOf(claims []ShareCandidate, of func(ShareCandidate) int64) *big.Int {
	sum := new(big.Int)
	for _, c := range claims {
		sum.Add(sum, big.NewInt(of(c)))
	}
	return sum
}

// The package's promises about divisions hold for every input.
func checkDivision(t *testing.T, total int64, cs []ShareCandidate, how DivisionMethod, seed string) {
	t.Helper()
	got, left := DivideReplicas(total, cs, how, seed)
	story := func(what string) string {
		return fmt.Sprintf("%s: method %d, %d over %+v: %v and %d left", what, how, total, cs, got, left)
	}
	sum := big.NewInt(left)
	for i, n := range got {
		if n < 0 || n > maxShare(cs[i], how) {
			t.Fatal(story(fmt.Sprintf("%s is out of its bounds", cs[i].Cluster)))
		}
		sum.Add(sum, big.NewInt(n))
	}
	if sum.Cmp(big.NewInt(max(total, 0))) != 0 {
		t.Fatal(story("the sum is not exact"))
	}
	room := sumOf(cs, func(c ShareCandidate) int64 { return maxShare(c, how) })
	if want := new(big.Int).Sub(big.NewInt(max(total, 0)), room); left > 0 != (want.Sign() > 0) || left > 0 && want.Int64() != left {
		t.Fatal(story("what fits is not placed"))
	}
	checkOrder(t, total, cs, how, seed)
	if how == ByWeight {
		checkWeights(t, cs, got, story)
	} else {
		checkMoves(t, total, cs, how, got, story)
	}
	checkNeighbours(t, total, cs, how, seed)
}

// checkOrder: the order of the input makes no difference.
func checkOrder(t *testing.T, total int64, cs []ShareCandidate, how DivisionMethod, seed string) {
	t.Helper()
	got, left := sharesByName(total, cs, how, seed)
	shuffled := slices.Clone(cs)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if again, l := sharesByName(total, shuffled, how, seed); !reflect.DeepEqual(got, again) || l != left {
		t.Fatalf("the order of the input matters: %v and %d, then %v and %d", got, left, again, l)
	}
}

func sharesByName(total int64, cs []ShareCandidate, how DivisionMethod, seed string) (map[string]int64, int64) {
	shares, left := DivideReplicas(total, cs, how, seed)
	out := map[string]int64{}
	for i, n := range shares {
		out[cs[i].Cluster] = n
	}
	return out, left
}

// checkWeights checks that clusters which no bound holds back have shares by their weights.
func checkWeights(t *testing.T, cs []ShareCandidate, got []int64, story func(string) string) {
	t.Helper()
	free := func(i int) bool { return cs[i].Weight > 0 && got[i] > cs[i].Min && got[i] < cs[i].Max }
	for i := range cs {
		for j := range cs {
			if !free(i) || !free(j) {
				continue
			}
			wi, wj := min(cs[i].Weight, MaxWeight), min(cs[j].Weight, MaxWeight)
			if wi == wj && got[i]-got[j] > 1 {
				t.Fatal(story("equal weights, unequal shares"))
			}
			if wi > wj && got[i] < got[j] {
				t.Fatal(story("the heavier has less"))
			}
		}
	}
}

// checkMoves checks that no unit moves in vain: clusters do not both lose and gain.
func checkMoves(t *testing.T, total int64, cs []ShareCandidate, how DivisionMethod, got []int64, story func(string) string) {
	t.Helper()
	has := sumOf(cs, func(c ShareCandidate) int64 { return min(max(c.Current, 0), max(c.Max, 0)) })
	more := has.Cmp(big.NewInt(max(total, 0))) <= 0
	used, fewer := 0, 0
	for i, c := range cs {
		have := min(max(c.Current, 0), max(c.Max, 0))
		if more && got[i] < have || !more && got[i] > have {
			t.Fatal(story(c.Cluster + " moves without need"))
		}
		if have > 0 {
			used++
		}
		if got[i] > 0 {
			fewer++
		}
	}
	if how == Aggregated && !more && fewer > used {
		t.Fatal(story("more clusters than before"))
	}
}

// checkNeighbours: what a little more, a cluster less and the next step make of it.
func checkNeighbours(t *testing.T, total int64, cs []ShareCandidate, how DivisionMethod, seed string) {
	t.Helper()
	got, _ := sharesByName(total, cs, how, seed)
	settled := slices.Clone(cs)
	for i := range settled {
		grown := max(got[cs[i].Cluster]-max(cs[i].Current, 0), 0)
		settled[i].Current = got[cs[i].Cluster]
		if settled[i].FreeCapacity >= 0 {
			settled[i].FreeCapacity = max(settled[i].FreeCapacity-grown, 0)
		}
	}
	if again, _ := sharesByName(total, settled, how, seed); !reflect.DeepEqual(got, again) {
		t.Fatalf("method %d, %d over %+v: %v, and then %v", how, total, cs, got, again)
	}
	if total >= 0 && total < math.MaxInt64-1000 {
		bigger := total + 1 + total%1000
		more, _ := sharesByName(bigger, settled, how, seed)
		for c, n := range got {
			if more[c] < n {
				t.Fatalf("method %d, growing %d to %d over %+v takes from %s: %v, then %v", how, total, bigger, cs, c, got, more)
			}
		}
	}
	if len(cs) > 1 {
		fewer, _ := sharesByName(total, settled[1:], how, seed)
		for c, n := range fewer {
			if n < got[c] {
				t.Fatalf("method %d, losing %s of %+v takes from %s: %v, then %v", how, cs[0].Cluster, cs, c, got, fewer)
			}
		}
	}
}

func TestDivideHoldsItsPromises(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	odd := func() int64 {
		switch r.IntN(5) {
		case 0:
			return r.Int64N(1_000_000_000)
		case 1:
			return r.Int64() - r.Int64()
		}
		return r.Int64N(8)
	}
	for i := range 6000 {
		cs := make([]ShareCandidate, r.IntN(12))
		for j := range cs {
			c := ShareCandidate{Cluster: fmt.Sprintf("c%d", j), Weight: odd(), Max: Unbounded, FreeCapacity: r.Int64N(9) - 1}
			if r.IntN(3) == 0 {
				c.Min = max(odd(), 0)
			}
			if r.IntN(3) == 0 {
				c.Max = max(odd(), 0)
			}
			if r.IntN(2) == 0 {
				c.Current = max(odd(), 0)
			}
			if r.IntN(6) == 0 {
				c.FreeCapacity = max(odd(), 0)
			}
			cs[j] = c
		}
		total := r.Int64N(50)
		if i%3 == 0 {
			total = r.Int64()
		}
		for _, how := range []DivisionMethod{ByWeight, ByFreeCapacity, Aggregated} {
			checkDivision(t, total, cs, how, fmt.Sprint(i%7))
		}
	}
}

func FuzzDivide(f *testing.F) {
	f.Add(int64(10), int64(1), int64(2), int64(3), int64(0), uint8(0), "seed")
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(1), int64(math.MinInt64), uint8(1), "")
	f.Add(int64(40), int64(5), int64(9), int64(7), int64(3), uint8(2), "x")
	f.Fuzz(func(t *testing.T, total, a, b, c, d int64, how uint8, seed string) {
		cs := weightedCandidates(a, b, c, d)
		cs[0].Max, cs[1].Min, cs[2].Current, cs[3].FreeCapacity = max(b, 0), max(c, 0), max(d, 0), max(a, -1)
		cs[1].FreeCapacity, cs[2].FreeCapacity = max(d, -1), max(b, -1)
		checkDivision(t, total, cs, DivisionMethod(how%3), seed)
	})
}

// Aggregated uses as few clusters as any division could.
func TestAggregatedIsTheFewest(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 500 {
		cs, total := make([]ShareCandidate, 1+r.IntN(6)), r.Int64N(40)
		for i := range cs {
			cs[i] = ShareCandidate{Cluster: fmt.Sprint("c", i), FreeCapacity: r.Int64N(12), Max: Unbounded}
		}
		got, left := DivideReplicas(total, cs, Aggregated, "s")
		used := 0
		for _, n := range got {
			if n > 0 {
				used++
			}
		}
		for some := range 1 << len(cs) {
			var room int64
			n := 0
			for i := range cs {
				if some>>i&1 == 1 {
					room, n = room+cs[i].FreeCapacity, n+1
				}
			}
			if room >= total-left && n < used {
				t.Fatalf("%d over %+v takes %d clusters: %v; %b are enough", total, cs, used, got, some)
			}
		}
	}
}

// Divide minimises the sum of share²/weight - share·(2·total/sum), that is, the
// weighted squared distance to the exact quotas: no other division is nearer.
func TestDivideIsTheNearestOfAllDivisions(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		cs := make([]ShareCandidate, 1+r.IntN(4))
		var sum int64
		for i := range cs {
			cs[i] = ShareCandidate{Cluster: fmt.Sprintf("c%d", i), Weight: 1 + r.Int64N(9), Max: Unbounded}
			sum += cs[i].Weight
		}
		total := r.Int64N(12)
		distance := func(shares []int64) *big.Rat {
			out := new(big.Rat)
			for i, c := range cs {
				diff := new(big.Rat).Sub(big.NewRat(shares[i], 1), big.NewRat(total*c.Weight, sum))
				diff.Mul(diff, diff)
				out.Add(out, diff.Quo(diff, big.NewRat(c.Weight, 1)))
			}
			return out
		}
		mine, _ := DivideReplicas(total, cs, ByWeight, "x")
		best := distance(mine)
		eachDivision(total, len(cs), func(shares []int64) {
			if distance(shares).Cmp(best) < 0 {
				t.Fatalf("%d over %v: %v is nearer to the quotas than %v", total, cs, shares, mine)
			}
		})
	}
}

func eachDivision(total int64, n int, visit func([]int64)) {
	shares := make([]int64, n)
	var rec func(i int, left int64)
	rec = func(i int, left int64) {
		if i == n-1 {
			shares[i] = left
			visit(shares)
			return
		}
		for shares[i] = 0; shares[i] <= left; shares[i]++ {
			rec(i+1, left-shares[i])
		}
	}
	rec(0, total)
}

// Ties do not always fall to the same clusters.
func TestTiesFallDifferentlyPerBundle(t *testing.T) {
	wins := map[string]int{}
	for i := range 300 {
		shares, _ := sharesByName(1, weightedCandidates(1, 1, 1), ByWeight, fmt.Sprint("bundle-", i))
		for c, n := range shares {
			wins[c] += int(n)
		}
	}
	for c, n := range wins {
		if n < 60 {
			t.Errorf("%s wins %d of 300 ties among 3", c, n)
		}
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		r := rand.New(rand.NewPCG(5, 6))
		plain, bounded := make([]ShareCandidate, n), make([]ShareCandidate, n)
		for i := range plain {
			plain[i] = ShareCandidate{Cluster: fmt.Sprintf("cluster-%d", i), Weight: 1 + r.Int64N(100), Max: Unbounded, FreeCapacity: r.Int64N(50)}
			bounded[i] = plain[i]
			bounded[i].Min, bounded[i].Max = r.Int64N(3), 3+r.Int64N(30)
		}
		for _, tc := range []struct {
			name   string
			claims []ShareCandidate
			how    DivisionMethod
		}{{"weights", plain, ByWeight}, {"bounds", bounded, ByWeight}, {"room", bounded, ByFreeCapacity}, {"aggregated", bounded, Aggregated}} {
			b.Run(fmt.Sprintf("%s/%d", tc.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					DivideReplicas(int64(n)*12+345, tc.claims, tc.how, "0b6e5a1c-7f0e-4c1d-9d55-3f1f7c0c6f7a")
				}
			})
		}
	}
}

// Dividing allocates a fixed number of lists, whatever the number of clusters.
func TestDivideAllocatesNothingPerCluster(t *testing.T) {
	count := func(n int, how DivisionMethod) float64 {
		cs := make([]ShareCandidate, n)
		for i := range cs {
			cs[i] = ShareCandidate{Cluster: fmt.Sprint("c", i), Weight: int64(1 + i%7), Max: int64(5 + i%11), FreeCapacity: int64(i % 13)}
		}
		return testing.AllocsPerRun(10, func() { DivideReplicas(int64(n)*4+3, cs, how, "s") })
	}
	for _, how := range []DivisionMethod{ByWeight, ByFreeCapacity, Aggregated} {
		if few, many := count(10, how), count(2000, how); many > few+2 || many > 16 {
			t.Errorf("method %d: %v allocations for 10 clusters, %v for 2,000", how, few, many)
		}
	}
}
