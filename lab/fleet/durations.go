package fleet

import (
	"math"
	"slices"
	"time"
)

// Durations are percentiles of Count durations, exact to about 7 %.
type Durations struct {
	Count              int64
	P50, P90, P99, Max time.Duration
	// Buckets are the source of the percentiles: bucket i counts durations from
	// bucketFirst·bucketGrowth^i on.
	Buckets []int64 `json:",omitempty"`
}

const (
	bucketFirst  = 100 * time.Microsecond
	bucketGrowth = 1.15
	// bucketMost covers more than ten minutes.
	bucketMost = 115
)

// add counts one duration.
func (d *Durations) add(t time.Duration) {
	i := 0
	if t > bucketFirst {
		i = min(bucketMost-1, int(math.Log(float64(t)/float64(bucketFirst))/math.Log(bucketGrowth)))
	}
	if i >= len(d.Buckets) {
		d.Buckets = append(d.Buckets, make([]int64, i+1-len(d.Buckets))...)
	}
	d.Buckets[i]++
	d.Count++
	d.Max = max(d.Max, t)
}

// mergeFrom adds the durations of another value.
func (d *Durations) mergeFrom(o Durations) {
	if n := len(o.Buckets) - len(d.Buckets); n > 0 {
		d.Buckets = append(d.Buckets, make([]int64, n)...)
	}
	for i, n := range o.Buckets {
		d.Buckets[i] += n
	}
	d.Count += o.Count
	d.Max = max(d.Max, o.Max)
}

// withPercentiles returns a copy with percentiles.
func (d Durations) withPercentiles() Durations {
	d.Buckets = slices.Clone(d.Buckets)
	d.P50, d.P90, d.P99 = d.quantileOf(0.5), d.quantileOf(0.9), d.quantileOf(0.99)
	return d
}

// quantileOf returns the middle of the bucket that contains the quantile.
func (d Durations) quantileOf(q float64) time.Duration {
	rank, seen := int64(math.Ceil(q*float64(d.Count))), int64(0)
	for i, n := range d.Buckets {
		if seen += n; n > 0 && seen >= rank {
			middle := float64(bucketFirst) * math.Pow(bucketGrowth, float64(i)+0.5)
			return min(d.Max, time.Duration(middle))
		}
	}
	return 0
}
