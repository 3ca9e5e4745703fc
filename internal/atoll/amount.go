package atoll

import (
	"math"
	"math/bits"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Numbers that objects state may be as large as an int64 is, and below zero, whatever their
// controllers would say to that. What is reckoned with them stops at math.MaxInt64 instead
// of beginning anew below zero, where so many pods would count as none; below zero they
// count as 0.

// Times is a times b, of amounts, between 0 and math.MaxInt64.
func Times(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// Plus is a and b together, of amounts, between 0 and math.MaxInt64.
func Plus(a, b int64) int64 {
	return int64(min(uint64(max(a, 0))+uint64(max(b, 0)), math.MaxInt64))
}

// Whole is the amount that f comes to, rounded up, between 0 and math.MaxInt64; what is no
// number is 0.
func Whole(f float64) int64 {
	switch f = math.Ceil(f); {
	case !(f > 0):
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(f)
}

// Units of a quantity, rounded up, between 0 and math.MaxInt64. A quantity's own Value is 0
// where it is more than an int64 holds.
func Units(q resource.Quantity) int64 {
	if q.Cmp(mostUnits) >= 0 {
		return math.MaxInt64
	}
	return max(q.Value(), 0)
}

// Thousandths of a quantity, rounded up, between 0 and math.MaxInt64: CPU is counted so.
func Thousandths(q resource.Quantity) int64 {
	if q.Cmp(mostThousandths) >= 0 {
		return math.MaxInt64
	}
	return max(q.MilliValue(), 0)
}

var (
	mostUnits       = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)
	mostThousandths = *resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI)
)
