package measure

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Distribution collects durations. The zero value is empty; it is safe for concurrent use.
type Distribution struct {
	mu     sync.Mutex
	values []float64
}

// Add adds one duration.
func (d *Distribution) Add(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values = append(d.values, t.Seconds())
}

// SortedValues returns a sorted copy of the values, in seconds.
func (d *Distribution) SortedValues() []float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	sorted := slices.Clone(d.values)
	slices.Sort(sorted)
	return sorted
}

// QuantileOf returns a quantile of sorted values by the nearest rank; 0 without values.
func QuantileOf(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
