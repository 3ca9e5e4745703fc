package quantity

import (
	"math"
	"math/bits"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Numbers that objects state may be as large as an int64, and below zero. Results stop at
// math.MaxInt64 instead of overflowing to negative values, which would count as no pods.
// Negative numbers count as 0.

// MultiplyCapped is a times b, of amounts, between 0 and math.MaxInt64.
func MultiplyCapped(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// AddCapped is a and b together, of amounts, between 0 and math.MaxInt64.
func AddCapped(a, b int64) int64 {
	return int64(min(uint64(max(a, 0))+uint64(max(b, 0)), math.MaxInt64))
}

// RoundUpCapped is the amount that f comes to, rounded up, between 0 and math.MaxInt64; what is no
// number is 0.
func RoundUpCapped(f float64) int64 {
	switch f = math.Ceil(f); {
	case !(f > 0):
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(f)
}

// WholeUnits returns the whole units of a quantity, rounded up, between 0 and math.MaxInt64. A quantity's own Value is 0
// where it is more than an int64 holds.
func WholeUnits(q resource.Quantity) int64 {
	if q.Cmp(maxUnits) >= 0 {
		return math.MaxInt64
	}
	return max(q.Value(), 0)
}

// MilliUnits returns the thousandths of a quantity, rounded up, between 0 and math.MaxInt64: CPU is counted so.
func MilliUnits(q resource.Quantity) int64 {
	if q.Cmp(maxMilliUnits) >= 0 {
		return math.MaxInt64
	}
	return max(q.MilliValue(), 0)
}

var (
	maxUnits      = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
	maxMilliUnits = *resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI)
)
