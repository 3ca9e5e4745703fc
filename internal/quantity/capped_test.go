package quantity

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// Sums and products are those of whole numbers, between 0 and the largest.
func TestAmountsDoNotRunOver(t *testing.T) {
	edges := []int64{math.MinInt64, -1, 0, 1, 2, 1 << 31, 1 << 32, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64}
	r := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		edges = append(edges, r.Int64()>>r.IntN(63))
	}
	within := func(n *big.Int) int64 {
		if !n.IsInt64() {
			return math.MaxInt64
		}
		return n.Int64()
	}
	for range 20000 {
		a, b := edges[r.IntN(len(edges))], edges[r.IntN(len(edges))]
		x, y := big.NewInt(max(a, 0)), big.NewInt(max(b, 0))
		if got, want := MultiplyCapped(a, b), within(new(big.Int).Mul(x, y)); got != want {
			t.Fatalf("%d times %d is %d, want %d", a, b, got, want)
		}
		if got, want := AddCapped(a, b), within(new(big.Int).Add(x, y)); got != want {
			t.Fatalf("%d plus %d is %d, want %d", a, b, got, want)
		}
	}
	for f, want := range map[float64]int64{-1: 0, 0: 0, 0.1: 1, 2: 2, 1 << 62: 1 << 62, 1 << 63: math.MaxInt64, 1e300: math.MaxInt64, math.Inf(1): math.MaxInt64, math.Inf(-1): 0} {
		if got := RoundUpCapped(f); got != want {
			t.Errorf("%g is %d, want %d", f, got, want)
		}
	}
	if got := RoundUpCapped(math.NaN()); got != 0 {
		t.Errorf("what is no number is %d", got)
	}
}

func TestQuantitiesDoNotRunOver(t *testing.T) {
	const most = math.MaxInt64
	for text, want := range map[string][2]int64{
		"0":                       {0, 0},
		"-5":                      {0, 0},
		"100m":                    {1, 100},
		"1500m":                   {2, 1500},
		"7":                       {7, 7000},
		"1Gi":                     {1 << 30, 1000 << 30},
		"9223372036854775":        {9223372036854775, 9223372036854775000},
		"9223372036854776":        {9223372036854776, most},
		"9223372036854775807":     {most, most},
		"99999999999999999999":    {most, most},
		"100E":                    {most, most},
		"8Ei":                     {most, most},
		"-100E":                   {0, 0},
		"9223372036854775807500m": {most, most},
	} {
		q, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := [2]int64{WholeUnits(q), MilliUnits(q)}; got != want {
			t.Errorf("%s: %d units and %d thousandths, want %d", text, got[0], got[1], want)
		}
	}
}
