package measure

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Distribution collects durations. The zero value is empty; it is safe for
// concurrent use.
type Distribution struct {
	mu     sync.Mutex
	values []float64
}

// Add one.
func (d *Distribution) Add(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values = append(d.values, t.Seconds())
}

// Values in seconds, sorted; a copy.
func (d *Distribution) Values() []float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	sorted := slices.Clone(d.values)
	slices.Sort(sorted)
	return sorted
}

// Quantile of sorted values, by the nearest rank; 0 of none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
