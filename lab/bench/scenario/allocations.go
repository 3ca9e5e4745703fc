package scenario

import (
	"context"
	"slices"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
)

const (
	allocationsMetric = "go_memstats_mallocs_total"
	// restWindow and restWindows are the length and number of the intervals in which the
	// allocations of a hub at rest are counted.
	restWindow  = 3 * time.Second
	restWindows = 5
)

// allocationsAtRest is what a hub allocates without changes: the pings of streams, watches
// and timers by the second, and the metrics page by the reading.
type allocationsAtRest struct{ perReading, perSecond float64 }

// readAllocationsAtRest reads a hub at rest several times, and returns the last reading too.
func (s *testbed) readAllocationsAtRest(ctx context.Context) (allocationsAtRest, costReading, error) {
	first, err := s.readCost(ctx)
	if err != nil {
		return allocationsAtRest{}, first, err
	}
	short, err := s.readCostRepeatedly(ctx, first, 0)
	if err != nil {
		return allocationsAtRest{}, first, err
	}
	long, err := s.readCostRepeatedly(ctx, short[restWindows], restWindow)
	if err != nil {
		return allocationsAtRest{}, first, err
	}
	return newAllocationsAtRest(allocationSpans(short), allocationSpans(long)), long[restWindows], nil
}

// readCostRepeatedly returns the first reading and restWindows more, each after a pause.
func (s *testbed) readCostRepeatedly(ctx context.Context, first costReading, pause time.Duration) ([]costReading, error) {
	readings := []costReading{first}
	for range restWindows {
		if err := lab.PauseFor(ctx, pause); err != nil {
			return nil, err
		}
		r, err := s.readCost(ctx)
		if err != nil {
			return nil, err
		}
		readings = append(readings, r)
	}
	return readings, nil
}

// allocationSpan is the allocations and API writes between two readings.
type allocationSpan struct{ allocations, requests, seconds float64 }

// allocationSpans returns the spans between successive readings.
func allocationSpans(readings []costReading) []allocationSpan {
	var out []allocationSpan
	for i, to := range readings[1:] {
		from := readings[i]
		out = append(out, allocationSpan{
			allocations: to.metrics.SumSeries(allocationsMetric) - from.metrics.SumSeries(allocationsMetric),
			requests:    to.metrics.WriteCounts().CountsSince(from.metrics.WriteCounts()).TotalCount(),
			seconds:     to.at.Sub(from.at).Seconds(),
		})
	}
	return out
}

// newAllocationsAtRest solves the two unknowns from spans of different lengths with one
// reading each.
func newAllocationsAtRest(short, long []allocationSpan) allocationsAtRest {
	a, b := medianSpan(short), medianSpan(long)
	perSecond := max(0, (b.allocations-a.allocations)/(b.seconds-a.seconds))
	return allocationsAtRest{perReading: a.allocations - perSecond*a.seconds, perSecond: perSecond}
}

// allocationsPerRequest returns the median of the spans' allocations for each API write,
// without those of the rest. A median leaves out a span in which the API server renewed its
// watches or etcd deleted its history: these come by the clock, and belong to no change.
func (r allocationsAtRest) allocationsPerRequest(spans []allocationSpan) float64 {
	var each []float64
	for _, s := range spans {
		each = append(each, (s.allocations-r.perReading-r.perSecond*s.seconds)/max(1, s.requests))
	}
	return medianOf(each)
}

// medianSpan returns a span of the median allocations and the median length.
func medianSpan(spans []allocationSpan) allocationSpan {
	var allocations, seconds []float64
	for _, s := range spans {
		allocations, seconds = append(allocations, s.allocations), append(seconds, s.seconds)
	}
	return allocationSpan{allocations: medianOf(allocations), seconds: medianOf(seconds)}
}

func medianOf(values []float64) float64 {
	return measure.QuantileOf(slices.Sorted(slices.Values(values)), 0.5)
}
