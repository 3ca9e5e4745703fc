package schedule

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"
)

func clusters(weights ...int64) []Weighted {
	out := make([]Weighted, len(weights))
	for i, w := range weights {
		out[i] = Weighted{fmt.Sprintf("c%d", i), w}
	}
	return out
}

func TestDivide(t *testing.T) {
	for _, tc := range []struct {
		total   int64
		weights []int64
		want    map[string]int64
	}{
		{9, []int64{1, 2}, map[string]int64{"c0": 3, "c1": 6}},
		{10, []int64{1, 1}, map[string]int64{"c0": 5, "c1": 5}},
		{0, []int64{1, 1}, map[string]int64{"c0": 0, "c1": 0}},
		{-4, []int64{1}, map[string]int64{"c0": 0}},
		{7, []int64{0, 3, -1}, map[string]int64{"c1": 7}},
		{7, []int64{0, -2}, map[string]int64{}},
		{5, nil, map[string]int64{}},
		{1, []int64{3, 1}, map[string]int64{"c0": 1, "c1": 0}},
		{math.MaxInt64, []int64{math.MaxInt64}, map[string]int64{"c0": math.MaxInt64}},
		{math.MaxInt64, []int64{MaxWeight, math.MaxInt64}, map[string]int64{"c0": math.MaxInt64 / 2, "c1": math.MaxInt64/2 + 1}},
	} {
		got := Divide(tc.total, clusters(tc.weights...), "b")
		if tc.total == math.MaxInt64 && len(got) == 2 {
			if got["c0"]+got["c1"] != tc.total || max(got["c0"]-got["c1"], got["c1"]-got["c0"]) != 1 {
				t.Errorf("Divide(MaxInt64) among equals = %v", got)
			}
			continue
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("Divide(%d, %v) = %v, want %v", tc.total, tc.weights, got, tc.want)
		}
	}
}

// Whatever comes in, what the package promises about divisions holds.
func checkDivision(t *testing.T, total int64, cs []Weighted, seed string) {
	t.Helper()
	got := Divide(total, cs, seed)
	shuffled := append([]Weighted(nil), cs...)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if again := Divide(total, shuffled, seed); !reflect.DeepEqual(got, again) {
		t.Fatalf("the order of the input matters: %v, then %v", got, again)
	}
	sum, positive := new(big.Int), 0
	for _, c := range cs {
		n, ok := got[c.Cluster]
		if ok != (c.Weight > 0) || n < 0 {
			t.Fatalf("cluster %+v got %d, %t", c, n, ok)
		}
		if c.Weight > 0 {
			positive++
		}
		sum.Add(sum, big.NewInt(n))
	}
	if positive == 0 {
		return
	}
	if sum.Cmp(big.NewInt(max(total, 0))) != 0 {
		t.Fatalf("shares of %d over %v add up to %s", total, cs, sum)
	}
	for _, a := range cs {
		for _, b := range cs {
			if a.Weight == b.Weight && got[a.Cluster]-got[b.Cluster] > 1 {
				t.Fatalf("equal weights, unequal shares: %v over %v", got, cs)
			}
			if min(a.Weight, MaxWeight) > b.Weight && got[a.Cluster] < got[b.Cluster] {
				t.Fatalf("the heavier has less: %v over %v", got, cs)
			}
		}
	}
	if total >= 0 && total < math.MaxInt64-1000 {
		more := Divide(total+1+total%1000, cs, seed)
		for c, n := range got {
			if more[c] < n {
				t.Fatalf("growing %d to %d takes from %s: %v, then %v", total, total+1+total%1000, c, got, more)
			}
		}
	}
	if positive > 1 {
		fewer := Divide(total, cs[1:], seed)
		for c, n := range fewer {
			if n < got[c] {
				t.Fatalf("losing %s takes from %s: %v, then %v", cs[0].Cluster, c, got, fewer)
			}
		}
	}
}

func TestDivideHoldsItsPromises(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		cs := make([]Weighted, r.IntN(12))
		for j := range cs {
			w := r.Int64N(6)
			switch r.IntN(4) {
			case 0:
				w = r.Int64N(1_000_000_000)
			case 1:
				w = r.Int64() - r.Int64()
			}
			cs[j] = Weighted{fmt.Sprintf("c%d", j), w}
		}
		total := r.Int64N(50)
		if i%3 == 0 {
			total = r.Int64()
		}
		checkDivision(t, total, cs, fmt.Sprint(i%7))
	}
}

func FuzzDivide(f *testing.F) {
	f.Add(int64(10), int64(1), int64(2), int64(3), int64(0), "seed")
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(1), int64(math.MinInt64), "")
	f.Fuzz(func(t *testing.T, total, a, b, c, d int64, seed string) {
		checkDivision(t, total, clusters(a, b, c, d), seed)
	})
}

// Divide minimises the sum of share²/weight - share·(2·total/sum), that is, the
// weighted squared distance to the exact quotas: no other division is nearer.
func TestDivideIsTheNearestOfAllDivisions(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		cs := make([]Weighted, 1+r.IntN(4))
		var sum int64
		for i := range cs {
			cs[i] = Weighted{fmt.Sprintf("c%d", i), 1 + r.Int64N(9)}
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
		div := Divide(total, cs, "x")
		mine := make([]int64, len(cs))
		for i, c := range cs {
			mine[i] = div[c.Cluster]
		}
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
		for c, n := range Divide(1, clusters(1, 1, 1), fmt.Sprint("bundle-", i)) {
			wins[c] += int(n)
		}
	}
	for c, n := range wins {
		if n < 60 {
			t.Errorf("%s wins %d of 300 ties among 3", c, n)
		}
	}
}

func BenchmarkDivide10000(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	cs := make([]Weighted, 10_000)
	for i := range cs {
		cs[i] = Weighted{fmt.Sprintf("cluster-%d", i), 1 + r.Int64N(100)}
	}
	b.ReportAllocs()
	for b.Loop() {
		Divide(123_457, cs, "bundle")
	}
}
